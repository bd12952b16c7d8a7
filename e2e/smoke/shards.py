"""Shards in pods, before there is an operator that makes them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from e2e.cluster.api import Manifest
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import Workload
from groundplane.wire.internal import StoredDocument
from tests.support.processes import ShardProcess

PORT = 8081
STORE, WORK, KEYS = "/store", "/work", "/keys"


class PodShard(ShardProcess):
    """What is known of a shard that runs in a pod: its corpus, and the keys whose capabilities it accepts."""

    def __init__(self, name: str, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, key=f"t-{name}", settings=settings)
        self.name = name
        self._keys = directory / "keys"

    def settings(self) -> dict[str, str]:
        """Return the shard's variables in its pod."""
        return {
            "GROUNDPLANE_CORPUS_KEY": self.key,
            "GROUNDPLANE_INCARNATION": self.incarnation,
            "GROUNDPLANE_WORK_DIRECTORY": f"{WORK}/shard",  # the mount itself belongs to root: no pod may change its mode
            "GROUNDPLANE_KEYS_DIRECTORY": KEYS,
            "GROUNDPLANE_HOST": "0.0.0.0",
            "GROUNDPLANE_PORT": str(PORT),
            **(self._settings or {"GROUNDPLANE_STORE_DIRECTORY": f"{STORE}/corpora"}),
        }

    def workload(
        self, image: str, *, volumes: Mapping[str, Manifest] | None = None, claims: Mapping[str, str] | None = None
    ) -> Workload:
        """Return the shard's container; `volumes` and `claims` are those of its store."""
        return Workload(
            name=self.name,
            image=image,
            command=("groundplane-shard",),
            environment=self.settings(),
            volumes={WORK: {"emptyDir": {}}, KEYS: {"configMap": {"name": self.name}}, **(volumes or {})},
            claims=claims or {},
            port=PORT,
            annotations={"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)},
        )

    def render_keys(self) -> Manifest:
        """Return the ConfigMap with the public keys."""
        keys = {path.name: path.read_text() for path in sorted(self._keys.iterdir())}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, "data": keys}

    @contextmanager
    def reached(self, kubectl: Kubectl, resource: str) -> Iterator[None]:
        """Let requests go to a pod of this shard while the block runs."""
        with kubectl.forwarded(resource, PORT) as url:
            self.url = url
            yield

    def stored_text(self, client: httpx.Client, doc_id: str) -> str:
        """Return the text of a document as the shard holds it now; raises on any other answer."""
        answer = client.get(f"{self.url}/document", params={"id": doc_id}, headers=self.headers()).raise_for_status()
        return msgspec.msgpack.decode(answer.content, type=StoredDocument).text
