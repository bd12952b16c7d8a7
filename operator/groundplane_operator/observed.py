"""What one pass over a resource saw: the only input of every decision, made by `observe`, never changed afterwards.

`Observed` is everything for one key. The shell fills it with live objects as the API server gave them (`children`), with
what it knows of other resources from its caches (`claimants`, `fleet`, `platform`), and with what pods and shard said.
Reads that failed raise: nothing here means "could not be read". What is absent is None or not in the mapping.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from groundplane.api.parse import parse_manifest
from groundplane.api.v1alpha1 import (
    CONDITION_TYPES,
    DEFAULT_ACCESS,
    ObjectMeta,
    TenantCorpusSpec,
    TenantCorpusStatus,
)
from groundplane.errors import InvalidInput
from groundplane.wire.internal import ShardStatus
from groundplane_operator import names
from groundplane_operator.claims import Claimant
from groundplane_operator.render.common import Manifest
from groundplane_operator.rollout import Fleet
from groundplane_operator.settings import OperatorSettings


class ChildKind(StrEnum):
    """The kinds of children, in the order in which they are applied."""

    SERVICE_ACCOUNT = "ServiceAccount"
    CONFIG_MAP = "ConfigMap"
    SERVICE = "Service"
    NETWORK_POLICY = "NetworkPolicy"
    VOLUME_CLAIM = "PersistentVolumeClaim"
    DEPLOYMENT = "Deployment"
    CLEANUP_JOB = "Job"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A TenantCorpus as it was read. `spec` is None where it cannot be taken apart; `fault` says why, for people."""

    name: str
    namespace: str
    uid: str
    metadata: ObjectMeta
    spec: TenantCorpusSpec | None
    fault: str | None = None
    status: TenantCorpusStatus = TenantCorpusStatus()

    @property
    def generation(self) -> int:
        """Return the generation of the spec."""
        return self.metadata.generation or 0

    @property
    def is_deleting(self) -> bool:
        """Return whether somebody has deleted it."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_paused(self) -> bool:
        """Return whether its annotation stops the operator."""
        return names.is_paused(self.metadata.annotations)

    @property
    def has_finalizer(self) -> bool:
        """Return whether its deletion waits for us."""
        return names.FINALIZER in self.metadata.finalizers


class PodSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the shard. `detail`: what its /readyz said while it was not ready, None: it was not asked or did not answer.

    `trouble` says for people why it cannot start (not scheduled, image not pulled, container ended again and again);
    `restore_trouble` the last words of its restore container after a failure. Both are None otherwise.
    """

    name: str
    uid: str
    is_ready: bool
    is_ending: bool = False
    detail: str | None = None
    trouble: str | None = None
    restore_trouble: str | None = None


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the shard said of itself; times are seconds since 1970."""

    epoch: int
    sequence: int
    documents: int
    document_sequence: int = 0
    snapshot_sequence: int | None = None
    snapshot_time: float | None = None
    key_ids: tuple[str, ...] = ()


class PlatformSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The platform corpus of the installation."""

    is_declared: bool = False
    is_ready: bool = False


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One resource with all that was seen around it.

    `credentials`: the keys of the Secret that the corpus's bucket needs, None if there is no such Secret (or none is
    needed). `public_keys`: PEM by file name. `shard`: None unless a pod was ready and the shard answered.
    """

    resource: Resource
    settings: OperatorSettings
    claimants: tuple[Claimant, ...]
    children: Mapping[ChildKind, Manifest] = {}
    pods: tuple[PodSeen, ...] = ()
    shard: ShardReport | None = None
    credentials: frozenset[str] | None = None
    public_keys: Mapping[str, str] = {}
    platform: PlatformSeen = PlatformSeen()
    fleet: Fleet = Fleet()
    is_namespace_ending: bool = False

    @property
    def all_claimants(self) -> list[Claimant]:
        """Return `claimants` with this resource as it was just read in the place of what a cache may say of it."""
        mine = claimant_of(self.resource)
        return [mine, *(each for each in self.claimants if each.uid != mine.uid)]

    @property
    def is_serving(self) -> bool:
        """Return whether a pod of the corpus is ready."""
        return any(pod.is_ready for pod in self.pods)


def parse_resource(manifest: Mapping[str, Any]) -> Resource:
    """Return a live TenantCorpus as the decisions see it; a spec that cannot be carried out is a `fault`, no error.

    Raises InvalidInput if not even metadata or status can be read, which the API server does not let happen.
    """
    try:
        metadata = msgspec.convert(manifest["metadata"], ObjectMeta)
        status = msgspec.convert(manifest.get("status") or {}, TenantCorpusStatus)
    except (msgspec.ValidationError, KeyError) as error:
        raise InvalidInput(f"TenantCorpus cannot be read: {str(error)[:256]}; is its CRD the operator's?") from error
    spec, fault = None, None
    try:
        spec = parse_manifest(dict(manifest)).spec
    except InvalidInput as error:
        fault = error.message
    return Resource(
        name=metadata.name,
        namespace=metadata.namespace or "",
        uid=metadata.uid or "",
        metadata=metadata,
        spec=spec,
        fault=fault,
        status=ordered_status(status),
    )


def ordered_status(status: TenantCorpusStatus) -> TenantCorpusStatus:
    """Return `status` with its lists in one order: the API server may keep those that it merges by key in another.

    Without this a status that says the same would be written for ever.
    """
    order = {kind: place for place, kind in enumerate(CONDITION_TYPES)}
    grants = (
        msgspec.structs.replace(grant, access=tuple(sorted(grant.access or DEFAULT_ACCESS)))
        for grant in status.subjects
    )
    return msgspec.structs.replace(
        status,
        conditions=tuple(sorted(status.conditions, key=lambda each: (order.get(each.type, len(order)), each.type))),
        subjects=tuple(sorted(grants, key=lambda grant: grant.subject.name)),
    )


def report_of(status: ShardStatus) -> ShardReport:
    """Return what the decisions need of a shard's answer."""
    return ShardReport(
        epoch=status.epoch,
        sequence=status.sequence,
        documents=status.documents,
        document_sequence=status.document_sequence,
        snapshot_sequence=status.snapshot_sequence,
        snapshot_time=status.snapshot_time,
        key_ids=tuple(status.key_ids),
    )


def claimant_of(resource: Resource) -> Claimant:
    """Return what a resource asks for and what its status says that it holds."""
    spec, status = resource.spec, resource.status
    return Claimant(
        name=f"{resource.namespace}/{resource.name}",
        uid=resource.uid,
        created=resource.metadata.creation_timestamp or "",
        wants_key=spec.corpus_key if spec is not None else None,
        wants_subjects=frozenset(grant.subject.name for grant in spec.subjects) if spec is not None else frozenset(),
        holds_key=status.storage_key,
        holds_subjects=frozenset(grant.subject.name for grant in status.subjects),
    )
