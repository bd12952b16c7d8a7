"""Kubernetes-style resources that platform teams write."""
