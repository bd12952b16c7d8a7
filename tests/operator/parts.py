"""A corpus, what a pass saw of it, and how a cluster would have left its children: the raw material of these tests."""

from typing import Any

import msgspec

from groundplane_operator import names
from groundplane_operator.acceptance import resolve_corpus
from groundplane_operator.children import wanted_children
from groundplane_operator.observed import ChildKind, Observed, PodSeen, ShardReport, parse_resource
from groundplane_operator.rollout import Fleet
from groundplane_operator.settings import OperatorSettings
from groundplane_operator.status import with_claims
from groundplane_operator.steps import Refuse

UID = "0b51a2ab-6a1f-4a54-8f6e-0a5a1c4d9c11"
OTHER_UID = "5d0c8a52-3b1e-4f5e-9d0f-2f6d1f1f7b22"
NOW = 1_790_000_000.0
SECRET = {"name": "bucket-keys"}
BUCKET = {
    "bucket": "corpora",
    "prefix": "prod",
    "endpoint": "http://minio.storage.svc:9000",
    "credentialsSecret": SECRET,
}
IN_BUCKET = {"tenant": "acme", "objectStore": BUCKET}
ON_VOLUME = {"tenant": "acme", "storage": {"size": "10Gi", "className": "fast"}}
KEYS = {"router-aa.pem": "-----BEGIN PUBLIC KEY-----\nAA\n", "operator-bb.pem": "-----BEGIN PUBLIC KEY-----\nBB\n"}
SETTINGS = OperatorSettings(namespace="groundplane-system", shard_image="groundplane:1")
SHARD = ShardReport(
    epoch=2, sequence=40, documents=7, document_sequence=40, snapshot_sequence=40, snapshot_time=NOW - 60
)
READY = PodSeen(name="corpus-acme-1", uid="p1", is_ready=True)


def resource_of(spec: dict[str, Any], *, generation: int = 1, status: Any = None, **metadata: Any) -> Any:
    """Return a resource as `observe` would have read it."""
    known = {
        "name": "acme",
        "namespace": "agents",
        "uid": UID,
        "generation": generation,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    manifest = {
        "apiVersion": "groundplane.dev/v1alpha1",
        "kind": "TenantCorpus",
        "metadata": {**known, **metadata},
        "spec": spec,
    }
    found = parse_resource(manifest)
    return found if status is None else msgspec.structs.replace(found, status=status)


def accepted(spec: dict[str, Any], **metadata: Any) -> Any:
    """Return a resource whose claims are in its status, with the finalizer that it needs."""
    wants_finalizer = spec.get("deletionPolicy") == "Delete" and "storage" not in spec
    metadata = {"finalizers": [names.FINALIZER] if wants_finalizer else [], **metadata}
    resource = resource_of(spec, **metadata)
    return resource_of(spec, **{"status": with_claims(resource.status, resource), **metadata})


def seen_of(resource: Any, **parts: Any) -> Observed:
    """Return what a pass saw: by default everything that a corpus needs from outside, and none of its children."""
    known: dict[str, Any] = {
        "settings": SETTINGS,
        "claimants": (),
        "credentials": frozenset({"access-key", "secret-key"}),
        "public_keys": KEYS,
        "fleet": Fleet(),
    }
    return Observed(resource=resource, **{**known, **parts})


def corpus_of(spec: dict[str, Any], settings: OperatorSettings = SETTINGS, **metadata: Any) -> Any:
    """Return the corpus that is rendered from `spec`."""
    corpus = resolve_corpus(resource_of(spec, **metadata), settings)
    if isinstance(corpus, Refuse):
        raise TypeError(corpus.message)
    return corpus


def finished(resource: Any, **parts: Any) -> Observed:
    """Return what a pass sees of a corpus that is as it should be: its children as applied, its pod ready."""
    known: dict[str, Any] = {"pods": () if resource.spec.suspended else (READY,), "shard": SHARD}
    seen = seen_of(resource, **{**known, **parts})
    return seen_of(resource, **{**known, "children": made_children(seen), **parts})


def made_children(seen: Observed) -> dict[ChildKind, Any]:
    """Return the children that a pass over `seen` wants, as the API server and its controllers would show them."""
    corpus = resolve_corpus(seen.resource, seen.settings)
    if isinstance(corpus, Refuse):
        raise TypeError(corpus.message)
    wanted = wanted_children(seen, corpus, NOW - 100).wanted
    made = {kind: as_live(manifest) for kind, manifest in wanted.items() if manifest is not None}
    if ChildKind.DEPLOYMENT in made:
        made[ChildKind.DEPLOYMENT] = rolled(made[ChildKind.DEPLOYMENT])
    if ChildKind.VOLUME_CLAIM in made:
        claim = made[ChildKind.VOLUME_CLAIM]
        claim["status"] = {"capacity": dict(claim["spec"]["resources"]["requests"])}
    return made


def as_live(manifest: Any, uid: str = "c1", **metadata: Any) -> Any:
    """Return a manifest as the API server shows it after it was applied."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "generation": 1, **metadata}}


def rolled(deployment: Any, *, revision: int = 1, reason: str = "NewReplicaSetAvailable", **counts: int) -> Any:
    """Return a Deployment with the status of one that its controller is through with, or with `counts` instead."""
    metadata = deployment["metadata"]
    replicas = deployment["spec"]["replicas"]
    annotations = {**metadata.get("annotations", {}), "deployment.kubernetes.io/revision": str(revision)}
    status = {
        "observedGeneration": metadata["generation"],
        "replicas": replicas,
        "updatedReplicas": replicas,
        "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
    }
    return {**deployment, "metadata": {**metadata, "annotations": annotations}, "status": {**status, **counts}}
