"""Reasons of conditions and events: declared once, documented in docs/reference.md, stable for whoever matches on them."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a condition is as it is, in one word; `meaning` says it to people."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> "Reason":
        """Return the member: the word is its value."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    # Accepted
    ACCEPTED = "Accepted", "the spec is right, and tenant and subjects are this resource's"
    INVALID_SPEC = "InvalidSpec", "the spec cannot be carried out as it stands: edit it; the message names the field"
    PLATFORM_NAMESPACE = (
        "PlatformNamespace",
        "the platform corpus is accepted in the operator's namespace only: create it there",
    )
    SUBJECT_NAMESPACE = (
        "SubjectNamespace",
        "subjects of other namespaces are not allowed in this installation: name ServiceAccounts of the resource's own",
    )
    CORPUS_CLAIMED = "CorpusClaimed", "another resource holds this tenant, or the platform corpus"
    SUBJECT_CLAIMED = "SubjectClaimed", "another resource holds a subject: a subject belongs to one corpus"
    NO_OBJECT_STORE = (
        "NoObjectStore",
        "neither spec.objectStore nor spec.storage is set, and the operator has no default bucket",
    )
    STORAGE_SHRINK_REFUSED = (
        "StorageShrinkRefused",
        "the volume is larger than spec.storage: a volume can grow, never shrink",
    )

    # Ready
    SHARD_READY = "ShardReady", "a pod of the corpus serves"
    SHARD_NOT_READY = "ShardNotReady", "no pod of the corpus serves; Progressing and Degraded say why"
    NOT_ACCEPTED = "NotAccepted", "nothing was made, since the resource is not accepted"
    SUSPENDED = "Suspended", "the shard is taken down and its data kept, as spec.suspended asks"
    DELETING = "Deleting", "the resource is being deleted"

    # Progressing
    APPLYING = "Applying", "children are being made or changed"
    ROLLING_OUT = "RollingOut", "pods are replaced; the message names the first field that differs"
    ROLLOUT_WAITING = "RolloutWaiting", "pods are to be replaced when the roll-outs of other corpora allow it"
    SHARD_STARTING = "ShardStarting", "the pod starts, or its shard restores its state"
    SHARD_STOPPING = "ShardStopping", "pods are ending"
    VOLUME_GROWING = "VolumeGrowing", "the volume is being made larger"
    EARLIER_CHILDREN = "EarlierChildren", "children of an earlier resource of this name are still being removed"
    CLEANING_UP = "CleaningUp", "log and snapshots are being removed, as deletionPolicy Delete asks"
    FINISHED = "Finished", "everything is as the spec asks"
    REFUSED = "Refused", "nothing is done before the spec is edited; Accepted says why"

    # Degraded
    AS_EXPECTED = "AsExpected", "nothing is wrong"
    NAME_TAKEN = "NameTaken", "an object that the operator did not make has the name of a child: remove or rename it"
    VOLUME_OF_ANOTHER_CORPUS = (
        "VolumeOfAnotherCorpus",
        "the volume that is left of an earlier resource of this name holds another tenant's data",
    )
    SECRET_MISSING = "SecretMissing", "the Secret with the bucket's keys does not exist or lacks a key: create it"
    KEYS_MISSING = "KeysMissing", "the operator has no public keys to give to the shard yet"
    ROLLOUT_FAILED = "RolloutFailed", "the new pod did not become ready in time; the old one serves where there is one"
    RESTORE_FAILED = "RestoreFailed", "restoring from spec.restoreFrom failed; the message says why"
    POD_NOT_STARTING = "PodNotStarting", "the pod cannot be scheduled, pulled or started; the message says why"
    STORE_UNAVAILABLE = "StoreUnavailable", "the shard cannot use its store: bucket, keys, network or disk"
    BEHIND_WITNESS = (
        "BehindWitness",
        "the store holds less than was witnessed: put the objects back, or accept the loss (docs/recovery.md)",
    )
    CORPUS_DAMAGED = "CorpusDamaged", "stored bytes failed their check: see docs/recovery.md"
    SHARD_SUPERSEDED = "ShardSuperseded", "another process took the corpus over; the pod is replaced"
    SHARD_UNREACHABLE = "ShardUnreachable", "the operator gets no answer of a ready shard: figures are those of before"
    PLATFORM_NOT_READY = "PlatformNotReady", "the platform corpus is declared and does not serve"
    API_REFUSED = "ApiRefused", "the API server refused a change; the message is its own"

    # SnapshotHealthy
    SNAPSHOT_CURRENT = "SnapshotCurrent", "the newest snapshot is as young as spec.snapshots asks, or nothing changed"
    SNAPSHOT_LATE = "SnapshotLate", "writes have waited for a snapshot for three times spec.snapshots.every"
    SNAPSHOT_UNKNOWN = "SnapshotUnknown", "the shard has not said yet"

    # Suspended, Paused
    NOT_SUSPENDED = "NotSuspended", "spec.suspended is not set"
    PAUSED = "Paused", "the annotation groundplane.dev/paused stops every write of the operator"
    NOT_PAUSED = "NotPaused", "the operator works on the resource"

    # Events alone
    CLEANED_UP = "CleanedUp", "log and snapshots were removed, and a listing proved it"
    CLEANUP_INCOMPLETE = "CleanupIncomplete", "the resource is gone, and objects may be left; the message says where"
