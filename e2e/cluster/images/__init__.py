"""Images without a registry: each as a docker-archive in the cache, named by what it is made of; docs/image.md."""
