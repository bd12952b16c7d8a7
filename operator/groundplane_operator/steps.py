"""What a pass over a resource does next: `plan.next_step` returns one of these, the shell performs it and comes back.

| step | the shell | comes back |
| --- | --- | --- |
| Accept | writes the claims into the status, and nothing else | at once |
| SetFinalizer | adds or removes our finalizer | at once |
| Apply | server-side applies each manifest, in order, as the field manager, by force | at once |
| Delete | deletes each object, if its uid is still that one | at once |
| Wait | nothing | after `seconds` |
| Refuse | nothing | after `seconds`, or only for the next generation |
| Pause | nothing | when the annotation changes |
| Release | removes our finalizer and reports `reason` in an Event; writes no status | never |
| Done | nothing | after `seconds` |

After every step but Release the shell writes `status.status_after(seen, step, now)` if it differs from what was read. A
step equal to the one before it for the same key means that something undoes our work: the shell's queue backs off then.
Where the API server refuses a step for good (403, 422), the shell reports `Wait(API_REFUSED, …, is_degraded=True)` instead.
Roll-outs: an Apply with `is_rollout` replaces pods, so the shell holds one lock from making `Observed.fleet` until it is done.
"""

from typing import Final

import msgspec

from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Manifest

AT_ONCE: Final = 0.0


class ObjectTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One live object to be deleted; another one of the same name has another uid and is left alone."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Accept(_Step, frozen=True, kw_only=True):
    """Take the tenant and the subjects that the spec names, before anything is made for them."""


class SetFinalizer(_Step, frozen=True, kw_only=True):
    """Make deletion wait for us, or let it go."""

    present: bool


class Apply(_Step, frozen=True, kw_only=True):
    """Apply what differs. `difference` names the first leaf, such as `Deployment spec.replicas`."""

    manifests: tuple[Manifest, ...]
    difference: str
    is_rollout: bool = False


class Delete(_Step, frozen=True, kw_only=True):
    """Delete what must not be there."""

    targets: tuple[ObjectTarget, ...]
    reason: Reason
    message: str


class Wait(_Step, frozen=True, kw_only=True):
    """Something else has to happen first; `is_degraded` if somebody should know."""

    reason: Reason
    message: str
    seconds: float
    is_degraded: bool = False


class Refuse(_Step, frozen=True, kw_only=True):
    """The spec is not carried out. `seconds` None: only an edit can change that."""

    reason: Reason
    message: str
    seconds: float | None = None


class Pause(_Step, frozen=True, kw_only=True):
    """Nobody wants us to do anything; saying so once is the only write."""


class Release(_Step, frozen=True, kw_only=True):
    """Let a deleted resource go. `reason` None: there was nothing to report."""

    reason: Reason | None = None
    message: str = ""


class Done(_Step, frozen=True, kw_only=True):
    """Everything is as the spec asks."""

    seconds: float


Step = Accept | SetFinalizer | Apply | Delete | Wait | Refuse | Pause | Release | Done


def again_seconds(step: Step) -> float | None:
    """Return after how many seconds the key is due again; None: not before something about it changes."""
    match step:
        case Accept() | SetFinalizer() | Apply() | Delete():
            return AT_ONCE
        case Wait(seconds=seconds) | Refuse(seconds=seconds) | Done(seconds=seconds):
            return seconds
        case Pause() | Release():
            return None
