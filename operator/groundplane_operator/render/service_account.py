"""The identity of the shard's pod: one that the API server knows and gives no token."""

from groundplane_operator.render.common import Corpus, Manifest, manifest, seal


def render_service_account(corpus: Corpus) -> Manifest:
    """Return the ServiceAccount; its tokens are never mounted, since a shard never calls the API server."""
    return seal(manifest(corpus, "v1", "ServiceAccount", automountServiceAccountToken=False))
