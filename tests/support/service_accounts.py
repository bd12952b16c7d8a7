"""ServiceAccounts of a real API server: their rights, their tokens, and what a kubelet mounts of them into a pod."""

from pathlib import Path
from typing import Any

from e2e.cluster.state import Cluster
from groundplane_router.kubernetes.access import ApiAccess
from tests.support.kubernetes_api import Administrator

RBAC = "/apis/rbac.authorization.k8s.io/v1"
READ_CORPORA = {"apiGroups": ["groundplane.dev"], "resources": ["tenantcorpora"], "verbs": ["list", "watch"]}
REVIEW_TOKENS = {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
API_AUDIENCE = "https://kubernetes.default.svc"


class ServiceAccounts:
    """Accounts of one namespace, made by the administrator."""

    def __init__(self, admin: Administrator, cluster: Cluster, namespace: str) -> None:
        self._admin = admin
        self._cluster = cluster
        self.namespace = namespace

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/serviceaccounts"

    def create(self, name: str, *, cluster_rules: Any = (), rules: Any = ()) -> str:
        """Make an account with rights in the whole cluster, or in its namespace, and return its uid."""
        uid: str = self._admin.create(self._path, {"metadata": {"name": name}})["metadata"]["uid"]
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        if cluster_rules:
            self._bind(f"{self.namespace}-{name}", "ClusterRole", RBAC, subject, cluster_rules)
        if rules:
            self._bind(name, "Role", f"{RBAC}/namespaces/{self.namespace}", subject, rules)
        return uid

    def delete(self, name: str) -> None:
        """Delete an account, and create none in its place."""
        self._admin.delete(f"{self._path}/{name}")

    def token(self, name: str, audience: str = "groundplane", seconds: int = 600) -> str:
        """Return a token as a kubelet requests them for projected volumes."""
        spec = {"audiences": [audience], "expirationSeconds": seconds}
        token: str = self._admin.create(f"{self._path}/{name}/token", {"spec": spec})["status"]["token"]
        return token

    def mount(self, name: str, directory: Path) -> ApiAccess:
        """Put into `directory` what every pod of the account has, and return the way to the API server."""
        directory.mkdir(exist_ok=True)
        (directory / "token").write_text(self.token(name, API_AUDIENCE))
        (directory / "ca.crt").write_bytes((self._cluster.directory / "pki" / "ca.crt").read_bytes())
        return ApiAccess(host=self._cluster.address, port=self._cluster.ports.api, directory=directory)

    def _bind(self, name: str, kind: str, where: str, subject: Any, rules: Any) -> None:
        """Make a role and bind it."""
        self._admin.create(f"{where}/{kind.lower()}s", {"metadata": {"name": name}, "rules": list(rules)})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        self._admin.create(f"{where}/{kind.lower()}bindings", binding)
