"""Manifests that must be refused, with a word of the refusal: put before the parser and before a real API server."""

from typing import Any, NamedTuple

UUID = "0b51a2ab-6a1f-4a54-8f6e-0a5a1c4d9c11"
STORE = {"bucket": "corpora", "prefix": "prod"}


class Refused(NamedTuple):
    """A spec that must be refused; `word` stands in the refusal of either judge."""

    spec: dict[str, Any]
    word: str
    name: str = "acme"


class RefusedEdit(NamedTuple):
    """An edit that must be refused."""

    before: dict[str, Any]
    after: dict[str, Any]
    word: str


def manifest(spec: dict[str, Any], name: str = "acme") -> dict[str, Any]:
    """Return a resource of `spec`."""
    return {"apiVersion": "groundplane.dev/v1alpha1", "kind": "TenantCorpus", "metadata": {"name": name}, "spec": spec}


def _tenant(**fields: Any) -> dict[str, Any]:
    return {"tenant": "acme", **fields}


def _env(**variable: Any) -> dict[str, Any]:
    return _tenant(podTemplate={"env": [variable]})


REFUSED = {
    "no-owner": Refused({}, "tenant"),
    "two-owners": Refused({"tenant": "acme", "platform": True}, "platform"),
    "platform-false": Refused({"platform": False}, "platform"),
    "empty-tenant": Refused({"tenant": ""}, "tenant"),
    "long-tenant": Refused({"tenant": "a" * 1_025}, "tenant"),
    "control-character": Refused({"tenant": "a\tb"}, "control character"),
    "long-name": Refused(_tenant(), "metadata.name", name="a" * 51),
    "name-with-a-dot": Refused(_tenant(), "metadata.name", name="acme.eu"),
    "two-places": Refused(_tenant(objectStore=STORE, storage={"size": "1Gi"}), "objectStore"),
    "bucket-name": Refused(_tenant(objectStore={"bucket": "B"}), "bucket"),
    "endpoint-without-scheme": Refused(
        _tenant(objectStore={"bucket": "corpora", "endpoint": "minio:9000"}), "endpoint"
    ),
    "storage-of-nothing": Refused(_tenant(storage={"size": "0"}), "size"),
    "storage-of-words": Refused(_tenant(storage={"size": "much"}), "size"),
    "cache-of-nothing": Refused(_tenant(cache={"sizeLimit": 0}), "sizeLimit"),
    "cache-medium": Refused(_tenant(cache={"medium": "Disk"}), "medium"),
    "snapshots-too-often": Refused(_tenant(snapshots={"every": "9s"}), "10s to 24h"),
    "snapshots-too-rarely": Refused(_tenant(snapshots={"every": "25h"}), "10s to 24h"),
    "no-snapshot-kept": Refused(_tenant(snapshots={"keep": 0}), "keep"),
    "deletion-policy": Refused(_tenant(deletionPolicy="Destroy"), "deletionPolicy"),
    "restore-from-a-name": Refused(_tenant(restoreFrom={"incarnation": "acme"}), "incarnation"),
    "restore-before-the-log": Refused(_tenant(restoreFrom={"incarnation": UUID, "sequence": -1}), "sequence"),
    "subject-twice": Refused(_tenant(subjects=[{"namespace": "agents", "serviceAccount": "a"}] * 2), "subjects[1]"),
    "subject-without-account": Refused(_tenant(subjects=[{"namespace": "agents"}]), "serviceAccount"),
    "no-access": Refused(_tenant(subjects=[{"namespace": "n", "serviceAccount": "a", "access": []}]), "access"),
    "access-twice": Refused(
        _tenant(subjects=[{"namespace": "n", "serviceAccount": "a", "access": ["read", "read"]}]), "access"
    ),
    "owned-label": Refused(_tenant(podTemplate={"labels": {"groundplane.dev/corpus": "x"}}), "operator owns"),
    "owned-annotation": Refused(_tenant(podTemplate={"annotations": {"app.kubernetes.io/name": "x"}}), "operator owns"),
    "variable-without-value": Refused(_env(name="A"), "exactly one"),
    "variable-with-two-values": Refused(_env(name="A", value="1", valueFrom={"fieldRef": {}}), "exactly one"),
    "owned-variable": Refused(_env(name="GROUNDPLANE_PORT", value="1"), "use the fields of the resource"),
    "bad-variable-name": Refused(_env(name="1A", value="1"), "name"),
}

ACCEPTED = {
    "tenant-alone": _tenant(),
    "platform": {"platform": True},
    "odd-tenant": {"tenant": "Ünïcode / tenant:1"},
    "bucket": _tenant(objectStore={**STORE, "endpoint": "https://minio.storage.svc:9000"}),
    "volume-in-bytes": _tenant(storage={"size": 1_073_741_824, "className": "fast"}),
    "volume-with-a-suffix": _tenant(storage={"size": "1.5Gi"}),
    "tuned": _tenant(
        subjects=[{"namespace": "agents", "serviceAccount": "a", "access": ["read", "write"]}],
        cache={"sizeLimit": "8Gi", "medium": "Memory"},
        resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        snapshots={"every": "1h30m", "keep": 5},
        suspended=True,
        deletionPolicy="Delete",
        restoreFrom={"incarnation": UUID, "sequence": 7},
        podTemplate={
            "labels": {"team": "search"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "env": [{"name": "GROUNDPLANE_EXACT_MIB", "value": "96"}],
        },
    ),
}

REFUSED_EDITS = {
    "other-tenant": RefusedEdit(_tenant(), {"tenant": "globex"}, "tenant never changes"),
    "tenant-to-platform": RefusedEdit(_tenant(), {"platform": True}, "never changes"),
    "other-bucket": RefusedEdit(
        _tenant(objectStore=STORE), _tenant(objectStore={**STORE, "bucket": "other"}), "bucket never changes"
    ),
    "no-prefix": RefusedEdit(
        _tenant(objectStore=STORE), _tenant(objectStore={"bucket": "corpora"}), "prefix never changes"
    ),
    "an-endpoint": RefusedEdit(
        _tenant(objectStore=STORE), _tenant(objectStore={**STORE, "endpoint": "http://minio"}), "endpoint never changes"
    ),
    "bucket-to-volume": RefusedEdit(
        _tenant(objectStore=STORE), _tenant(storage={"size": "1Gi"}), "place of log and snapshots never changes"
    ),
    "default-to-bucket": RefusedEdit(_tenant(), _tenant(objectStore=STORE), "place of log and snapshots never changes"),
    "smaller-volume": RefusedEdit(
        _tenant(storage={"size": "2Gi"}), _tenant(storage={"size": "1.9Gi"}), "can grow, never shrink"
    ),
    "smaller-volume-in-bytes": RefusedEdit(
        _tenant(storage={"size": "2Gi"}), _tenant(storage={"size": 1}), "can grow, never shrink"
    ),
    "other-class": RefusedEdit(
        _tenant(storage={"size": "2Gi", "className": "fast"}),
        _tenant(storage={"size": "2Gi", "className": "slow"}),
        "className never changes",
    ),
    "restore-later": RefusedEdit(
        _tenant(), _tenant(restoreFrom={"incarnation": UUID}), "restoreFrom is set at creation only"
    ),
    "restore-elsewhere": RefusedEdit(
        _tenant(restoreFrom={"incarnation": UUID, "sequence": 1}),
        _tenant(restoreFrom={"incarnation": UUID, "sequence": 2}),
        "restoreFrom is set at creation only",
    ),
}

ACCEPTED_EDITS = {
    "larger-volume": (_tenant(storage={"size": "1Gi"}), _tenant(storage={"size": "2Gi"})),
    "the-same-size-in-other-words": (_tenant(storage={"size": "1Gi"}), _tenant(storage={"size": "1024Mi"})),
    "other-secret": (
        _tenant(objectStore={**STORE, "credentialsSecret": {"name": "old"}}),
        _tenant(objectStore={**STORE, "credentialsSecret": {"name": "new"}}),
    ),
    "suspend": (_tenant(), _tenant(suspended=True)),
}
