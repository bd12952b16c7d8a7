"""A namespace with an operator before a real API server, the installation's Secret in it, and what tests ask of both."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.state import Cluster
from groundplane_operator.cluster import KINDS
from tests.support.api_proxy import ApiProxy
from tests.support.kubernetes_api import Manifest, administrator
from tests.support.live_objects import LiveObjects, wait_for
from tests.support.manifest_cases import manifest
from tests.support.operator_process import SECRET, OperatorProcess

CHILD_KINDS = ("ConfigMap", "Deployment", "NetworkPolicy", "Service", "ServiceAccount")
VOLATILE = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "clusterIP",
        "clusterIPs",
    }
)


class Scene:
    """One namespace under test."""

    def __init__(self, api: LiveObjects, proxy: ApiProxy, namespace: str, directory: Path) -> None:
        self.api = api
        self.proxy = proxy
        self.namespace = namespace
        self.operator = OperatorProcess(
            proxy.write_kubeconfig(directory / "proxy.kubeconfig"), namespace, directory / "operator.log"
        )

    def make_secret(self) -> None:
        """Create the Secret with the bucket's keys."""
        data = {name: base64.b64encode(b"x").decode() for name in ("access-key", "secret-key")}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        self.api.create(body)

    def create(self, name: str = "acme", **spec: Any) -> Manifest:
        """Create a TenantCorpus for the tenant of the same name, unless the spec says whose it is."""
        owner = {} if {"tenant", "platform"} & set(spec) else {"tenant": name}
        return self.api.create(manifest({**owner, **spec}, name))

    def corpus(self, name: str = "acme") -> Manifest:
        """Return a TenantCorpus that must be there."""
        found = self.api.get("TenantCorpus", name)
        assert found is not None, f"TenantCorpus {name} is gone"
        return found

    def condition(self, kind: str, name: str = "acme") -> Manifest:
        """Return a condition, {} if there is none yet."""
        conditions = self.corpus(name).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_for_condition(self, kind: str, status: str, reason: str, name: str = "acme", seconds: float = 30) -> None:
        """Return when the condition has this status and reason."""
        wait_for(
            lambda: (found := self.condition(kind, name)).get("status") == status and found.get("reason") == reason,
            f"{kind} of {name} is {status}, {reason}",
            seconds,
            lambda: f"it is {self.condition(kind, name)}\n{self.log_end()}",
        )

    def children(self, name: str = "acme") -> dict[str, Manifest]:
        """Return the children by kind."""
        found = {kind: self.api.get(kind, f"corpus-{name}") for kind in CHILD_KINDS}
        return {kind: live for kind, live in found.items() if live is not None}

    def wait_for_children(self, name: str = "acme", seconds: float = 60) -> dict[str, Manifest]:
        """Return the children when all are there and the operator has nothing left to apply."""
        wait_for(
            lambda: (
                len(self.children(name)) == len(CHILD_KINDS)
                and self.condition("Progressing", name).get("reason") == "ShardStarting"
            ),
            f"every child of {name} is applied",
            seconds,
            self.log_end,
        )
        return self.children(name)

    def everything(self) -> dict[str, list[str]]:
        """Return the names of all objects of the namespace that the operator may have made, but Events and pods, by kind."""
        kinds = sorted(set(KINDS) - {"Event", "Namespace", "Pod", "TenantCorpus"})
        found = {kind: [each["metadata"]["name"] for each in self.api.list_all(kind)] for kind in kinds}
        return {kind: [each for each in listed if each not in _BUILT_IN] for kind, listed in found.items()}

    def end_pods(self, prefix: str) -> None:
        """Let a pod of this name's beginning end well, as a kubelet would report it."""

        def found() -> str | None:
            names = [pod["metadata"]["name"] for pod in self.api.list_all("Pod")]
            return next((name for name in names if name.startswith(prefix)), None)

        pod = wait_for(found, f"a pod {prefix}* is made", explain=self.log_end)
        self.api.merge("Pod", pod, {"status": {"phase": "Succeeded"}}, "status")

    def log_end(self) -> str:
        """Return the end of the operator's log."""
        return self.operator.log_path.read_text()[-3_000:] if self.operator.log_path.exists() else ""


_BUILT_IN = frozenset({"default", "kube-root-ca.crt"})


@contextmanager
def scene_of(control_plane: Cluster, namespace: str, directory: Path) -> Iterator[Scene]:
    """Give a scene whose operator is not started yet; it ends with the block."""
    with administrator(control_plane) as admin, ApiProxy(control_plane) as proxy:
        scene = Scene(LiveObjects(admin, namespace), proxy, namespace, directory)
        try:
            yield scene
        finally:
            if scene.operator.is_running:
                scene.operator.kill()


def lasting(live: Manifest) -> Manifest:
    """Return an object without what the API server makes up each time."""
    return {name: _lasting(value) for name, value in live.items() if name != "status"}


def _lasting(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _lasting(value) for name, value in part.items() if name not in VOLATILE}
    if isinstance(part, list):
        return [_lasting(each) for each in part]
    return part
