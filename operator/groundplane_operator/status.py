"""The status after a step: conditions, phase, figures. It is the router's directory, so it must never run ahead of the truth.

`observedGeneration`, in status and conditions, is the last generation that was finished, that is for which a pass ended
with Done; until then an edit leaves it where it was, and `kubectl wait` cannot pass early. One exception: a refusal
finishes nothing but the question whether the generation is accepted, so Accepted alone carries its number. Subjects,
endpoint, incarnation and storage key change only with Accept: a refused edit leaves the last accepted grants in force.

No text holds what changes by itself (a percentage, a number of seconds): it would be a write at every look.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from groundplane.api.v1alpha1 import (
    Condition,
    SnapshotStatus,
    TenantCorpusStatus,
)
from groundplane_operator import names
from groundplane_operator.claims import kept_claims
from groundplane_operator.observed import ChildKind, Observed, Resource, claimant_of, ordered_status
from groundplane_operator.reasons import Reason
from groundplane_operator.steps import Accept, Apply, Delete, Done, Pause, Refuse, Step, Wait
from groundplane_operator.witness import format_time, parse_time

MAX_MESSAGE_CHARACTERS: Final = 1_024
LATE_FACTOR: Final = 3
_NO_PLATFORM: Final = "no platform corpus is declared: questions are answered from this corpus alone"


class Verdict(msgspec.Struct, frozen=True):
    """What a condition says, before its generation and time are known."""

    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str = ""


def status_after(seen: Observed, step: Step, now: float) -> TenantCorpusStatus:
    """Return the status that has to stand after `step`; equal to the one that was read if nothing has to be written."""
    resource = seen.resource
    status = resource.status
    if isinstance(step, Pause):
        verdicts = {
            "Paused": Verdict("True", Reason.PAUSED, f"remove the annotation {names.PAUSED_ANNOTATION} to go on")
        }
        return _with_conditions(seen, status, verdicts, now)
    if isinstance(step, Accept):
        status = with_claims(status, resource)
    if isinstance(step, Refuse):
        status = _with_kept_claims(seen)
    status = _with_figures(status, seen)
    if isinstance(step, Done):
        image = _live_image(seen) or status.image
        status = msgspec.structs.replace(status, observed_generation=resource.generation, image=image)
    status = _with_conditions(seen, status, _verdicts(seen, step, now), now)
    return _with_refused_generation(status, resource.generation) if isinstance(step, Refuse) else status


def with_claims(status: TenantCorpusStatus, resource: Resource) -> TenantCorpusStatus:
    """Return `status` with what an accepted spec claims and where the router finds it."""
    if resource.spec is None:
        return status
    claimed = msgspec.structs.replace(
        status,
        subjects=resource.spec.subjects,
        endpoint=names.endpoint(resource.name, resource.namespace),
        incarnation=resource.uid,
        storage_key=resource.spec.corpus_key,
    )
    return ordered_status(claimed)


def _with_kept_claims(seen: Observed) -> TenantCorpusStatus:
    """Return the status without what another resource holds: two that claim one thing must not both be in the directory."""
    status = seen.resource.status
    key, subjects = kept_claims(claimant_of(seen.resource), seen.all_claimants)
    kept = tuple(grant for grant in status.subjects if grant.subject.name in subjects)
    return msgspec.structs.replace(status, storage_key=key, subjects=kept)


def phase_of(conditions: Mapping[str, Condition]) -> str:
    """Return the one word that `kubectl get` shows, derived from the conditions and from nothing else."""
    is_true = {kind for kind, condition in conditions.items() if condition.status == "True"}
    ready = conditions.get("Ready")
    if ready is not None and ready.reason == Reason.DELETING:
        return "Deleting"
    for kind, phase in (("Paused", "Paused"), ("Suspended", "Suspended")):
        if kind in is_true:
            return phase
    if "Accepted" not in is_true:
        return "Rejected" if "Accepted" in conditions else "Pending"
    if "Degraded" in is_true:
        return "Degraded"
    return "Ready" if "Ready" in is_true else "Starting"


def _verdicts(seen: Observed, step: Step, now: float) -> dict[str, Verdict]:
    verdicts = {
        "Accepted": _accepted(step),
        "Ready": _ready(seen, step),
        "Progressing": _progressing(step),
        "Degraded": _degraded(seen, step),
        "SnapshotHealthy": _snapshot_healthy(seen, now),
        "Suspended": _suspended(seen, step),
        "Paused": Verdict("False", Reason.NOT_PAUSED),
    }
    return {kind: verdict for kind, verdict in verdicts.items() if verdict is not None}


def _accepted(step: Step) -> Verdict | None:
    if isinstance(step, Refuse):
        return Verdict("False", step.reason, step.message)
    return Verdict("True", Reason.ACCEPTED)


def _ready(seen: Observed, step: Step) -> Verdict:
    spec = seen.resource.spec
    if seen.resource.is_deleting:
        return Verdict("False", Reason.DELETING)
    if isinstance(step, Refuse) and _with_kept_claims(seen).storage_key is None:
        return Verdict("False", Reason.NOT_ACCEPTED, step.message)
    if spec is not None and spec.suspended and not isinstance(step, Refuse):
        return Verdict("False", Reason.SUSPENDED)
    if seen.is_serving:
        is_alone = spec is not None and not spec.platform and not seen.platform.is_declared
        return Verdict("True", Reason.SHARD_READY, _NO_PLATFORM if is_alone else "")
    return Verdict("False", Reason.SHARD_NOT_READY, step.message if isinstance(step, Wait) else "")


def _progressing(step: Step) -> Verdict:
    match step:
        case Wait(reason=reason, message=message) | Delete(reason=reason, message=message):
            return Verdict("True", reason, message)
        case Apply(is_rollout=True, difference=difference):
            return Verdict("True", Reason.ROLLING_OUT, f"{difference} differs")
        case Apply(difference=difference):
            return Verdict("True", Reason.APPLYING, f"{difference} differs")
        case Refuse():
            return Verdict("False", Reason.REFUSED)
        case Done():
            return Verdict("False", Reason.FINISHED)
        case _:
            return Verdict("True", Reason.APPLYING)


def _degraded(seen: Observed, step: Step) -> Verdict | None:
    """Return None on the way: what was wrong before may still be, and a condition must not flap between two steps."""
    match step:
        case Wait(is_degraded=True, reason=reason, message=message):
            return Verdict("True", reason, message)
        case Done() if _lacks_platform(seen):
            return Verdict("True", Reason.PLATFORM_NOT_READY, "the platform corpus is declared and does not serve")
        case Wait() | Refuse() | Done():
            return Verdict("False", Reason.AS_EXPECTED)
        case _:
            known = _known(seen.resource.status)
            return None if "Degraded" in known else Verdict("False", Reason.AS_EXPECTED)


def _lacks_platform(seen: Observed) -> bool:
    spec, platform = seen.resource.spec, seen.platform
    is_tenant = spec is not None and not spec.platform and not spec.suspended
    return is_tenant and platform.is_declared and not platform.is_ready


def _suspended(seen: Observed, step: Step) -> Verdict | None:
    spec = seen.resource.spec
    if isinstance(step, Refuse) or spec is None:
        return None if "Suspended" in _known(seen.resource.status) else Verdict("False", Reason.NOT_SUSPENDED)
    if spec.suspended:
        return Verdict("True", Reason.SUSPENDED, "set spec.suspended to false to resume")
    return Verdict("False", Reason.NOT_SUSPENDED)


def _snapshot_healthy(seen: Observed, now: float) -> Verdict | None:
    """Return None where the shard does not say: what it said last stands."""
    shard, spec, known = seen.shard, seen.resource.spec, _known(seen.resource.status)
    if shard is None or spec is None:
        return None if "SnapshotHealthy" in known else Verdict("Unknown", Reason.SNAPSHOT_UNKNOWN)
    if shard.document_sequence <= (shard.snapshot_sequence or 0):
        return Verdict("True", Reason.SNAPSHOT_CURRENT)
    ready = known.get("Ready")
    since_ready = ready.last_transition_time if ready is not None and ready.status == "True" else None
    since = max(shard.snapshot_time or 0.0, parse_time(since_ready) if since_ready else 0.0)
    late_seconds = LATE_FACTOR * spec.snapshots.every_seconds
    if since and now - since > late_seconds:
        message = f"writes have waited for a snapshot for more than {late_seconds:g} s: see the shard's log"
        return Verdict("False", Reason.SNAPSHOT_LATE, message)
    return Verdict("True", Reason.SNAPSHOT_CURRENT)


def _with_figures(status: TenantCorpusStatus, seen: Observed) -> TenantCorpusStatus:
    shard = seen.shard
    if shard is None:
        return status
    snapshot = status.snapshot
    if shard.snapshot_sequence is not None and shard.snapshot_time is not None:
        snapshot = SnapshotStatus(sequence=shard.snapshot_sequence, time=format_time(shard.snapshot_time))
    return msgspec.structs.replace(status, documents=shard.documents, sequence=shard.sequence, snapshot=snapshot)


def _live_image(seen: Observed) -> str | None:
    spec = seen.children.get(ChildKind.DEPLOYMENT, {}).get("spec", {}).get("template", {}).get("spec", {})
    containers = (each for each in spec.get("containers", ()) if each.get("name") == names.SHARD_CONTAINER)
    return next((container.get("image") for container in containers), None)


def _with_conditions(
    seen: Observed, status: TenantCorpusStatus, verdicts: Mapping[str, Verdict], now: float
) -> TenantCorpusStatus:
    """Return `status` with the verdicts as conditions; those without a verdict stay."""
    known = _known(seen.resource.status)
    after = dict(known)
    for kind, verdict in verdicts.items():
        after[kind] = _condition(kind, verdict, known.get(kind), status.observed_generation, now)
    after_all = msgspec.structs.replace(status, conditions=tuple(after.values()), phase=phase_of(after))
    return ordered_status(after_all)


def _condition(
    kind: str, verdict: Verdict, before: Condition | None, observed_generation: int | None, now: float
) -> Condition:
    is_same = before is not None and before.status == verdict.status
    return Condition(
        type=kind,
        status=verdict.status,
        reason=str(verdict.reason),
        message=verdict.message[:MAX_MESSAGE_CHARACTERS],
        observed_generation=observed_generation,
        last_transition_time=before.last_transition_time if is_same and before is not None else format_time(now),
    )


def _with_refused_generation(status: TenantCorpusStatus, generation: int) -> TenantCorpusStatus:
    conditions = (
        msgspec.structs.replace(each, observed_generation=generation) if each.type == "Accepted" else each
        for each in status.conditions
    )
    return msgspec.structs.replace(status, conditions=tuple(conditions))


def _known(status: TenantCorpusStatus) -> dict[str, Condition]:
    return {condition.type: condition for condition in status.conditions}
