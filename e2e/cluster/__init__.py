"""A real Kubernetes cluster for the tests, built from pinned sources and thrown away afterwards; docs/cluster.md."""
