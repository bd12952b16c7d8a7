"""Where a corpus stands whose children are as they should be: what it still waits for, and what keeps its shard from serving.

A pod that reports itself superseded never contends again, so it is replaced unless another pod of its corpus serves.
"""

import re
from collections.abc import Mapping
from typing import Final

from groundplane.api.formats import parse_size_bytes
from groundplane.errors import InvalidInput
from groundplane_operator.children import Children, missing_for_pods
from groundplane_operator.observed import ChildKind, Observed, PodSeen
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Corpus, Manifest
from groundplane_operator.render.deployment import try_read_revision
from groundplane_operator.rollout import rollout_of
from groundplane_operator.steps import Delete, ObjectTarget, Step, Wait
from groundplane_operator.store_location import Volume

STARTING_SECONDS: Final = 5.0
FAILED_SECONDS: Final = 15.0
GROWING_SECONDS: Final = 15.0
_AMOUNT: Final = re.compile(r" \d+/\d+ MiB$")
_SUPERSEDED: Final = "superseded"
_STARTING: Final = frozenset(
    {"starting", "checking_store", "restoring", "taking_over", "stopping", "not_ready", "restore_unfinished"}
)
_STORE_CODES: Final = frozenset({"local_disk", "disk_full", "invalid_settings"})
_REASONS: Final[Mapping[str, Reason]] = {
    "behind_witness": Reason.BEHIND_WITNESS,
    "witness_damaged": Reason.CORPUS_DAMAGED,
    "went_back": Reason.CORPUS_DAMAGED,
    "no_manifest": Reason.CORPUS_DAMAGED,
    "log_gap": Reason.CORPUS_DAMAGED,
    "corrupt_data": Reason.CORPUS_DAMAGED,
    "no_snapshot": Reason.CORPUS_DAMAGED,
    "foreign_owner": Reason.CORPUS_DAMAGED,
    "unsupported_format": Reason.CORPUS_DAMAGED,
}


def plan_pods(seen: Observed) -> Delete | None:
    """Return the superseded pods to be deleted, None while there is none, or another pod serves or is about to.

    In a roll-out the new pod takes over a moment before it is ready. Were the old one deleted in that moment, its ReplicaSet
    would start another, which would take over in turn.
    """
    live = [pod for pod in seen.pods if not pod.is_ending]
    superseded = [pod for pod in live if _code(pod) == _SUPERSEDED]
    others = [pod for pod in live if _code(pod) != _SUPERSEDED]
    if not superseded or any(pod.is_ready or pod.trouble is None for pod in others):
        return None
    namespace = seen.resource.namespace
    targets = tuple(
        ObjectTarget(api_version="v1", kind="Pod", namespace=namespace, name=pod.name, uid=pod.uid)
        for pod in sorted(superseded, key=lambda pod: pod.name)
    )
    message = f"{targets[0].name} says that another process took the corpus over, and no pod is ready"
    return Delete(targets=targets, reason=Reason.SHARD_SUPERSEDED, message=message)


def plan_progress(seen: Observed, corpus: Corpus, children: Children) -> Step | None:
    """Return what the corpus waits for, None if it is as the spec asks."""
    if corpus.spec.suspended:
        return _wait_for_the_end(seen)
    found = (children.held_back, missing_for_pods(seen, corpus), _wait_for_pods(seen))
    waits = [wait for wait in found if wait is not None]
    if waits:  # a fault before what only takes its time: nobody would see it behind a roll-out that waits for others
        return next((wait for wait in waits if wait.is_degraded), waits[0])
    return _wait_for_volume(seen, corpus) or _wait_for_answer(seen)


def _wait_for_the_end(seen: Observed) -> Wait | None:
    if not seen.pods:
        return None
    return Wait(reason=Reason.SHARD_STOPPING, message="the pod publishes its last snapshot", seconds=STARTING_SECONDS)


def _wait_for_pods(seen: Observed) -> Wait | None:
    deployment = seen.children.get(ChildKind.DEPLOYMENT)
    if deployment is None:
        return None
    state = rollout_of(deployment)
    failed = next((pod.restore_trouble for pod in seen.pods if pod.restore_trouble is not None), None)
    if failed is not None:
        message = f"{failed}; create another resource to restore into"
        return Wait(reason=Reason.RESTORE_FAILED, message=message, seconds=FAILED_SECONDS, is_degraded=True)
    fault = _fault_of_pods(seen)
    if state.has_failed:
        message = f"{_changed(deployment)}: {fault.message if fault is not None else 'the new pod is not ready'}"
        return Wait(reason=Reason.ROLLOUT_FAILED, message=message, seconds=FAILED_SECONDS, is_degraded=True)
    if fault is not None and (not state.is_complete or not seen.is_serving):
        return fault
    if not state.is_complete and state.is_replacement:
        return Wait(reason=Reason.ROLLING_OUT, message=_changed(deployment), seconds=STARTING_SECONDS)
    if not state.is_complete or not seen.is_serving:
        return Wait(reason=Reason.SHARD_STARTING, message=_said(seen.pods), seconds=STARTING_SECONDS)
    return None


def _fault_of_pods(seen: Observed) -> Wait | None:
    """Return what keeps a pod from its work, where somebody can do something about it."""
    for pod in seen.pods:
        if (
            pod.is_ending or pod.is_ready or _code(pod) == _SUPERSEDED
        ):  # at the end of every hand-over one is superseded
            continue
        if pod.trouble is not None:
            return _degraded(Reason.POD_NOT_STARTING, f"pod {pod.name}: {pod.trouble}")
        reason = _reason_of(_code(pod))
        if reason is not None:
            return _degraded(reason, f"pod {pod.name} says {_lasting(pod.detail)}")
    return None


def _wait_for_volume(seen: Observed, corpus: Corpus) -> Wait | None:
    volume, live = corpus.store, seen.children.get(ChildKind.VOLUME_CLAIM)
    if not isinstance(volume, Volume) or live is None or capacity_bytes(live) >= volume.size_bytes:
        return None
    return Wait(
        reason=Reason.VOLUME_GROWING,
        message=f"the volume has {capacity_bytes(live)} bytes: waits for {volume.size_bytes}",
        seconds=GROWING_SECONDS,
    )


def _wait_for_answer(seen: Observed) -> Wait | None:
    if seen.shard is not None:
        return None
    return _degraded(Reason.SHARD_UNREACHABLE, "a ready shard gives the operator no answer: check its network policies")


def capacity_bytes(claim: Manifest) -> int:
    """Return how large a live volume is, 0 before it is bound."""
    return _size_bytes(claim.get("status", {}).get("capacity", {}).get("storage"))


def requested_bytes(claim: Manifest) -> int:
    """Return how large a live claim asks to be, 0 if it does not say."""
    return _size_bytes(claim["spec"].get("resources", {}).get("requests", {}).get("storage"))


def _size_bytes(quantity: str | int | None) -> int:
    try:
        return 0 if quantity is None else parse_size_bytes(quantity, "storage")
    except InvalidInput:
        return 0


def _changed(deployment: Manifest) -> str:
    revision = try_read_revision(deployment)
    return f"{revision.change} differs" if revision is not None and revision.change else "pods are replaced"


def _said(pods: tuple[PodSeen, ...]) -> str:
    """Return what a pod that is on its way said last, without how far it is: that would be a write at every look."""
    codes = sorted({pod.detail.partition(" ")[0] for pod in pods if pod.detail and not pod.is_ready})
    return f"the shard says {', '.join(codes)}" if codes else "the pod is not ready yet"


def _code(pod: PodSeen) -> str:
    """Return the code in what a pod's /readyz said: `checking_store after store_denied`, `restoring 3/9 MiB`, `superseded`."""
    words = (pod.detail or "").split()
    if "after" in words[:-1]:
        return words[words.index("after") + 1]
    return words[0] if words else ""


def _lasting(detail: str | None) -> str:
    """Return what a pod said without how far its download is."""
    return _AMOUNT.sub("", detail or "")


def _reason_of(code: str) -> Reason | None:
    if code in _REASONS:
        return _REASONS[code]
    if code in _STORE_CODES or code.startswith("store_"):
        return Reason.STORE_UNAVAILABLE
    return None if code in _STARTING or not code else Reason.SHARD_NOT_READY


def _degraded(reason: Reason, message: str) -> Wait:
    return Wait(reason=reason, message=message, seconds=FAILED_SECONDS, is_degraded=True)
