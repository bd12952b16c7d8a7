"""Roll-outs: where the pods of a Deployment stand, and whether the fleet lets another corpus replace its pods.

At most `max_concurrent` corpora replace pods at the same time, and none begins while a corpus whose pods were replaced has
failed: a fault that comes with an image or a setting stops at the first corpora. The first pods of a new corpus are no
roll-out. A corpus that is rolling or has failed may always go on: it takes no further place, and may be the repair.

The answer holds for the moment: the shell asks and applies under one lock, and counts what it has applied as rolling.
Source: Kubernetes "Deployment status": Progressing with reason NewReplicaSetAvailable means complete, with reason
ProgressDeadlineExceeded failed; the revision is an annotation that the Deployment controller counts up.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from groundplane_operator.render.common import Manifest

_REVISION = "deployment.kubernetes.io/revision"
_SHOWN = 3


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Deployment is. `is_replacement` is false for the first pods of all."""

    is_complete: bool
    has_failed: bool = False
    is_replacement: bool = False

    @property
    def is_rolling(self) -> bool:
        """Return whether pods are being replaced."""
        return self.is_replacement and not self.is_complete and not self.has_failed


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The corpora, as namespace/name, whose pods are being replaced and those where that failed."""

    rolling: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()


def rollout_of(deployment: Manifest) -> Rollout:
    """Return how far a live Deployment is."""
    status = deployment.get("status", {})
    wanted = deployment["spec"].get("replicas", 1)
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    progress = _condition(status, "Progressing")
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas")}
    is_settled = progress.get("reason") == "NewReplicaSetAvailable" or wanted == 0
    return Rollout(
        is_complete=is_seen and counts == {wanted} and is_settled,
        has_failed=is_seen and progress.get("reason") == "ProgressDeadlineExceeded",
        is_replacement=_is_replacement(deployment, is_seen=is_seen),
    )


def fleet_of(states: Mapping[str, Rollout]) -> Fleet:
    """Return the fleet whose Deployments are that far, by corpus as namespace/name."""
    return Fleet(
        rolling=frozenset(name for name, state in states.items() if state.is_rolling),
        failed=frozenset(name for name, state in states.items() if state.is_replacement and state.has_failed),
    )


def try_hold_back(corpus: str, fleet: Fleet, max_concurrent: int) -> str | None:
    """Return why `corpus` may not replace its pods now, for people; None if it may."""
    if corpus in fleet.rolling | fleet.failed:
        return None
    if fleet.failed:
        return f"roll-outs are stopped since that of {_shown(fleet.failed)} failed: repair it, or suspend it"
    if len(fleet.rolling) >= max_concurrent:
        return f"waits for {_shown(fleet.rolling)}: at most {max_concurrent} at the same time"
    return None


def _is_replacement(deployment: Manifest, *, is_seen: bool) -> bool:
    """Return whether pods were there before the present ones; what the controller has not seen yet counts as a change."""
    if deployment["spec"].get("replicas", 1) == 0:
        return False
    revision = str(deployment["metadata"].get("annotations", {}).get(_REVISION, "0"))
    was_seen = deployment.get("status", {}).get("observedGeneration", 0) > 0
    return (revision.isdecimal() and int(revision) > 1) or (was_seen and not is_seen)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions", ()) if each.get("type") == kind), {})


def _shown(names: frozenset[str]) -> str:
    listed = ", ".join(sorted(names)[:_SHOWN])
    return listed if len(names) <= _SHOWN else f"{listed} and {len(names) - _SHOWN} more"
