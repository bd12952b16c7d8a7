"""Who may reach a shard and whom it may reach: everything else is denied, for clean-up Jobs too."""

from typing import Final

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, manifest, seal
from groundplane_operator.store_location import Bucket

_DNS_PORT: Final = 53


def render_network_policy(corpus: Corpus) -> Manifest | None:
    """Return the policy: in from router, operator and metrics, out to name servers and the store. None: switched off."""
    if not corpus.settings.network_policies:
        return None
    peers = corpus.settings.peers
    ingress = {
        "from": [*peers.router, *peers.operator, *peers.metrics],
        "ports": [{"protocol": "TCP", "port": names.SHARD_PORT}],
    }
    spec: Manifest = {
        "podSelector": {"matchLabels": {names.CORPUS_LABEL: corpus.name}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [ingress],
    }
    if isinstance(corpus.store, Bucket):  # a shard on a volume calls nobody
        dns: Manifest = {"to": list(peers.dns)} if peers.dns else {}
        spec["egress"] = [
            {**dns, "ports": [{"protocol": name, "port": _DNS_PORT} for name in ("UDP", "TCP")]},
            _store_egress(corpus, corpus.store),
        ]
    return seal(manifest(corpus, "networking.k8s.io/v1", "NetworkPolicy", spec=spec))


def _store_egress(corpus: Corpus, bucket: Bucket) -> Manifest:
    """Return the way to the store.

    Where its peers are named any port is open to them: a policy counts the ports of pods, and those behind a Service
    may listen on others than the URL names.
    """
    peers = corpus.settings.peers.object_store
    return {"to": list(peers)} if peers else {"ports": [{"protocol": "TCP", "port": bucket.port}]}
