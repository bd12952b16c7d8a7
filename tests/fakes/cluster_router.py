"""An installation whose router follows TenantCorpora and asks an API server who is calling."""

from pathlib import Path
from typing import Any

import httpx

from groundplane_router.kubernetes.access import ApiAccess
from tests.fakes.installation import INCARNATIONS, Installation
from tests.fakes.shard_server import FakeShard
from tests.support.corpora import condition

NAMESPACE = "corpora"


class ClusterRouter(Installation):
    """Tenants acme and globex and the platform, over fake shards; the API server is the test's."""

    def __init__(self, directory: Path, access: ApiAccess, *, identity: str = "tokenreview", **settings: Any) -> None:
        super().__init__(
            directory,
            directory_kind="kubernetes",
            identity_kind=identity,
            kubernetes_host=access.host,
            kubernetes_port=access.port,
            service_account_directory=str(access.directory),
            **settings,
        )
        self.has_directory = False

    async def ask(self, token: str, query: str = "pumps and valves") -> httpx.Response:
        """Ask for evidence as whoever has `token`."""
        return await self.http.post("/v1/evidence", json={"query": query}, headers={"Authorization": f"Bearer {token}"})

    async def metric(self, name: str) -> float:
        """Return a metric without labels."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).partition(" ")[2])


def corpus_status(name: str, shard: FakeShard, *, uid: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the status that an operator writes for a shard: `<name>-agent` of namespace `agents` may read and write."""
    return {
        "storageKey": shard.key,
        "incarnation": uid or INCARNATIONS[name],
        "endpoint": shard.entry().endpoint,
        "conditions": [condition("Accepted"), condition("Ready")],
        "subjects": [{"namespace": "agents", "serviceAccount": f"{name}-agent", "access": ["read", "write"]}],
    } | fields
