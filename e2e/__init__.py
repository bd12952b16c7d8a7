"""Tests against a real cluster, and the cluster they need."""
