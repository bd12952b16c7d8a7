"""TenantCorpora as an operator leaves them, for tests of whoever reads them."""

from typing import Any

SUBJECT = {"namespace": "agents", "serviceAccount": "acme-agent", "access": ["read", "write"]}
UIDS = {
    "platform": "10000000-0000-4000-8000-000000000000",
    "acme": "20000000-0000-4000-8000-000000000000",
    "globex": "30000000-0000-4000-8000-000000000000",
}


def condition(kind: str, status: str = "True", reason: str = "Because") -> dict[str, Any]:
    """Return one condition."""
    return {
        "type": kind, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def status(name: str = "acme", **fields: Any) -> dict[str, Any]:
    """Return the status of a corpus that is ready."""
    return {
        "observedGeneration": 1,
        "phase": "Ready",
        "conditions": [condition("Accepted"), condition("Ready")],
        "subjects": [{**SUBJECT, "serviceAccount": f"{name}-agent"}],
        "endpoint": f"http://corpus-{name}.corpora.svc:8081",
        "incarnation": UIDS[name],
        "documents": 812,
        "sequence": 4711,
        "snapshot": {"sequence": 4000, "time": "2026-01-01T00:00:00Z"},
        "storageKey": "platform" if name == "platform" else f"t-{name}",
        "image": "groundplane:test",
    } | fields


def resource(
    name: str = "acme",
    *,
    namespace: str = "corpora",
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **status_fields: Any,
) -> dict[str, Any]:
    """Return a TenantCorpus that is ready; `status_fields` replace parts of its status."""
    owner = {"platform": True} if name == "platform" else {"tenant": name}
    return {
        "apiVersion": "groundplane.dev/v1alpha1",
        "kind": "TenantCorpus",
        "metadata": {"name": name, "namespace": namespace, "uid": UIDS[name]} | (metadata or {}),
        "spec": owner | {"subjects": [{**SUBJECT, "serviceAccount": f"{name}-agent"}]} | (spec or {}),
        "status": status(name, **status_fields),
    }
