"""TenantCorpus, group `groundplane.dev`, version `v1alpha1`: one corpus, who may use it and where it is kept.

The model lives here once: the CRD is generated from it, `groundplane up` and the operator read manifests through it.
An absent field stays None; the default that applies is a property (`every_seconds`), so that a reader sees the rule
and an edit of a default never rewrites what somebody applied. `parse.parse_manifest` decodes and checks.
"""

from typing import Annotated, Any, Literal

import msgspec

from groundplane.api.formats import (
    BUCKET,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    DURATION,
    ENVIRONMENT_NAME,
    HTTP_URL,
    OBJECT_PREFIX,
    QUANTITY,
    UUID,
    parse_duration_seconds,
    parse_size_bytes,
)
from groundplane.wire.directory import Access, Grant, Subject
from groundplane.wire.names import MAX_TENANT_CHARACTERS, CorpusKey, TenantId, corpus_key

GROUP = "groundplane.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TenantCorpus"

DEFAULT_NAMESPACE = "default"
DEFAULT_ACCESS: tuple[Access, ...] = ("read",)
DEFAULT_CACHE_BYTES = 4 * 2**30
DEFAULT_SNAPSHOT_SECONDS = 600.0
DEFAULT_SNAPSHOTS_KEEP = 3
MIN_SNAPSHOT_SECONDS = 10
MAX_SNAPSHOT_SECONDS = 86_400
MAX_SUBJECTS = 256
MAX_NAME_CHARACTERS = 50
"""Of a resource's name: what is made from it (Service, pods, their labels) has to stay within a DNS label."""
MAX_LABELS = 64
RESERVED_PREFIXES = (f"{GROUP}/", "app.kubernetes.io/")
"""Of labels and annotations that the operator owns on a shard's pod."""
OWNED_VARIABLES = (
    "GROUNDPLANE_CORPUS_KEY",
    "GROUNDPLANE_HOST",
    "GROUNDPLANE_INCARNATION",
    "GROUNDPLANE_KEYS_DIRECTORY",
    "GROUNDPLANE_OBJECT_STORE",
    "GROUNDPLANE_PORT",
    "GROUNDPLANE_S3_ACCESS_KEY",
    "GROUNDPLANE_S3_CREDENTIALS_DIRECTORY",
    "GROUNDPLANE_S3_SECRET_KEY",
    "GROUNDPLANE_S3_SESSION_TOKEN",
    "GROUNDPLANE_SNAPSHOTS_KEEP",
    "GROUNDPLANE_SNAPSHOT_SECONDS",
    "GROUNDPLANE_STORE_DIRECTORY",
    "GROUNDPLANE_WITNESS_FILE",
    "GROUNDPLANE_WITNESS_WRITE",
    "GROUNDPLANE_WORK_DIRECTORY",
)
"""Settings of a shard that follow from the resource, so that `podTemplate.env` may not set them."""
CONDITION_TYPES = ("Accepted", "Ready", "Progressing", "Degraded", "SnapshotHealthy", "Suspended", "Paused")

Label = Annotated[str, msgspec.Meta(pattern=DNS_LABEL, max_length=63)]
Subdomain = Annotated[str, msgspec.Meta(pattern=DNS_SUBDOMAIN, max_length=253)]
Quantity = Annotated[str, msgspec.Meta(pattern=QUANTITY, max_length=32)] | Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[str, msgspec.Meta(pattern=DURATION, max_length=32)]
Labels = Annotated[dict[str, str], msgspec.Meta(max_length=MAX_LABELS)]
KubernetesObject = dict[str, Any]  # a part of the Kubernetes API that is handed on as it is


def _about(description: str) -> msgspec.Meta:
    """Return what `kubectl explain` says of a field."""
    return msgspec.Meta(description=description)


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    pass


class _Observed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Written by a server, perhaps a newer one: fields that we do not know are left alone."""


class ObjectMeta(_Observed, frozen=True, kw_only=True):
    """The part of Kubernetes' object metadata that Groundplane reads."""

    name: Label
    namespace: Label | None = None
    uid: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []


class SubjectGrant(_Spec, frozen=True, kw_only=True):
    """A ServiceAccount that may use the corpus. `access` defaults to [read]."""

    namespace: Label
    service_account: Subdomain
    access: Annotated[tuple[Access, ...], msgspec.Meta(min_length=1, max_length=2)] | None = None

    @property
    def subject(self) -> Subject:
        """Return whom this grants something."""
        return Subject(namespace=self.namespace, service_account=self.service_account)

    @property
    def grant(self) -> Grant:
        """Return the grant as the router's directory holds it."""
        return Grant(subject=self.subject, access=self.access or DEFAULT_ACCESS)


class SecretReference(_Spec, frozen=True, kw_only=True):
    """A Secret in the namespace of the resource."""

    name: Subdomain


class ObjectStore(_Spec, frozen=True, kw_only=True):
    """A bucket for log and snapshots. Without `credentials_secret` the pod's own cloud identity is used."""

    bucket: Annotated[
        Annotated[str, msgspec.Meta(pattern=BUCKET, max_length=63)], _about("Name of the bucket; never changes.")
    ]
    prefix: Annotated[
        Annotated[str, msgspec.Meta(pattern=OBJECT_PREFIX, max_length=512)] | None,
        _about("Path in the bucket below which this corpus lies; never changes."),
    ] = None
    endpoint: Annotated[
        Annotated[str, msgspec.Meta(pattern=HTTP_URL, max_length=512)] | None,
        _about("URL of the S3 server; AWS unless set. Never changes."),
    ] = None
    credentials_secret: Annotated[
        SecretReference | None,
        _about(
            "Secret with the keys access-key and secret-key, perhaps session-token; without it the pod's own cloud identity is used."
        ),
    ] = None


class Storage(_Spec, frozen=True, kw_only=True):
    """A volume for log and snapshots, where there is no object store. It can grow, never shrink."""

    size: Annotated[Quantity, _about("Size of the volume; it can grow, never shrink.")]
    class_name: Annotated[
        Subdomain | None, _about("StorageClass of the volume; the cluster's default unless set. Never changes.")
    ] = None

    @property
    def size_bytes(self) -> int:
        """Return `size` in bytes."""
        return parse_size_bytes(self.size, "spec.storage.size")


class Cache(_Spec, frozen=True, kw_only=True):
    """The shard's working directory, an emptyDir. Medium `Memory` leaves nothing at rest on the node."""

    size_limit: Annotated[Quantity | None, _about("Limit of the working directory, 4Gi unless set.")] = None
    medium: Annotated[Literal["", "Memory"], _about("Memory keeps the working directory off the node's disk.")] = ""

    @property
    def size_limit_bytes(self) -> int:
        """Return `sizeLimit` in bytes, 4 GiB by default."""
        return (
            DEFAULT_CACHE_BYTES
            if self.size_limit is None
            else parse_size_bytes(self.size_limit, "spec.cache.sizeLimit")
        )


class Resources(_Spec, frozen=True, kw_only=True):
    """Requests and limits of the shard container."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Snapshots(_Spec, frozen=True, kw_only=True):
    """How often a corpus that changes is snapshotted, and how many snapshots are kept."""

    every: Annotated[
        Duration | None, _about("Longest time between snapshots of a corpus that changes, 10s to 24h; 10m unless set.")
    ] = None
    keep: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=100)] | None,
        _about("Snapshots kept, 3 unless set; the log is kept from the oldest of them on."),
    ] = None

    @property
    def every_seconds(self) -> float:
        """Return `every` in seconds, 600 by default."""
        return (
            DEFAULT_SNAPSHOT_SECONDS
            if self.every is None
            else parse_duration_seconds(self.every, "spec.snapshots.every")
        )

    @property
    def keep_count(self) -> int:
        """Return `keep`, 3 by default."""
        return DEFAULT_SNAPSHOTS_KEEP if self.keep is None else self.keep


class RestoreFrom(_Spec, frozen=True, kw_only=True):
    """An earlier life of the corpus to start from, into an empty corpus only. No `sequence`: as far as its log goes."""

    incarnation: Annotated[
        Annotated[str, msgspec.Meta(pattern=UUID, max_length=36)],
        _about("The life to start from, as its status.incarnation showed it."),
    ]
    sequence: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        _about("Last record of that life that is taken over; all of its log unless set."),
    ] = None


class EnvironmentVariable(_Spec, frozen=True, kw_only=True):
    """One extra environment variable of the shard container: `value`, or `valueFrom` as Kubernetes has it."""

    name: Annotated[str, msgspec.Meta(pattern=ENVIRONMENT_NAME, max_length=256)]
    value: str | None = None
    value_from: KubernetesObject | None = None


class PodTemplate(_Spec, frozen=True, kw_only=True):
    """What is added to the shard's pod."""

    labels: Labels = {}
    annotations: Labels = {}
    node_selector: Labels = {}
    tolerations: Annotated[list[KubernetesObject], msgspec.Meta(max_length=64)] = []
    affinity: KubernetesObject = {}
    priority_class_name: Subdomain | None = None
    env: Annotated[list[EnvironmentVariable], msgspec.Meta(max_length=64)] = []


class TenantCorpusSpec(_Spec, frozen=True, kw_only=True):
    """What the platform team asks for. Exactly one of `tenant` and `platform: true`, and it never changes."""

    tenant: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TENANT_CHARACTERS)] | None,
        _about("Id of the tenant whose corpus this is; never changes."),
    ] = None
    platform: Annotated[
        bool | None,
        _about(
            "True for the corpus that every tenant's questions are answered from too: one an installation, in the operator's namespace."
        ),
    ] = None
    subjects: Annotated[
        Annotated[tuple[SubjectGrant, ...], msgspec.Meta(max_length=MAX_SUBJECTS)],
        _about("ServiceAccounts that may use this corpus; each belongs to one corpus."),
    ] = ()
    object_store: Annotated[
        ObjectStore | None,
        _about("Bucket for log and snapshots; the operator's default unless this or storage is set."),
    ] = None
    storage: Annotated[Storage | None, _about("Volume for log and snapshots, where there is no object store.")] = None
    cache: Annotated[Cache, _about("The shard's working directory.")] = Cache()
    resources: Annotated[Resources, _about("Requests and limits of the shard container.")] = Resources()
    snapshots: Annotated[Snapshots, _about("How often snapshots are made and how many are kept.")] = Snapshots()
    suspended: Annotated[bool, _about("True takes the shard down and keeps its data.")] = False
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        _about("What happens to log and snapshots when the resource is deleted; Retain unless set."),
    ] = "Retain"
    restore_from: Annotated[
        RestoreFrom | None, _about("An earlier life of this corpus to start from; set at creation only.")
    ] = None
    pod_template: Annotated[PodTemplate, _about("What is added to the shard's pod.")] = PodTemplate()

    @property
    def tenant_id(self) -> TenantId | None:
        """Return the tenant, None for the platform corpus."""
        return None if self.tenant is None else TenantId(self.tenant)

    @property
    def corpus_key(self) -> CorpusKey:
        """Return the name of the corpus in storage."""
        return corpus_key(self.tenant or "")


class Condition(_Observed, frozen=True, kw_only=True):
    """One condition, as `metav1.Condition`; `type` is one of CONDITION_TYPES, or of a newer operator."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class SnapshotStatus(_Observed, frozen=True, kw_only=True):
    """The newest published snapshot; `time` is RFC 3339."""

    sequence: int
    time: str


class TenantCorpusStatus(_Observed, frozen=True, kw_only=True):
    """What the operator last finished; the router's directory is built from it."""

    observed_generation: int | None = None
    phase: str | None = None
    conditions: tuple[Condition, ...] = ()
    subjects: tuple[SubjectGrant, ...] = ()
    endpoint: str | None = None
    incarnation: str | None = None
    documents: int | None = None
    sequence: int | None = None
    snapshot: SnapshotStatus | None = None
    storage_key: CorpusKey | None = None
    image: str | None = None


class TenantCorpus(_Spec, frozen=True, kw_only=True):
    """A corpus: whose it is, who may use it and where it is kept."""

    api_version: Literal["groundplane.dev/v1alpha1"]
    kind: Literal["TenantCorpus"]
    metadata: ObjectMeta
    spec: TenantCorpusSpec
    status: TenantCorpusStatus | None = None

    @property
    def full_name(self) -> str:
        """Return `namespace/name`, the namespace being `default` where the manifest has none."""
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"
