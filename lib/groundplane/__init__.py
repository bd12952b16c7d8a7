"""Groundplane: grounds LLM agents in their own tenant's records."""
