"""The address of the shard: one port, only pods that are ready."""

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, manifest, seal


def render_service(corpus: Corpus) -> Manifest:
    """Return the Service that `names.endpoint` points to."""
    port = {
        "name": names.SHARD_PORT_NAME,
        "port": names.SHARD_PORT,
        "protocol": "TCP",
        "targetPort": names.SHARD_PORT_NAME,
    }
    spec = {"type": "ClusterIP", "selector": names.shard_selector(corpus.name), "ports": [port]}
    return seal(manifest(corpus, "v1", "Service", spec=spec))
