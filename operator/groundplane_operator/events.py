"""Events of a resource: one for each condition that changed, and none while nothing does.

An event's name is made from what it tells, so telling it again (after a crash between status and event, or by a pass that
was repeated) finds it there and adds nothing. Source: Kubernetes API, `events.k8s.io/v1` Event.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from groundplane.api.v1alpha1 import API_VERSION, KIND, Condition
from groundplane_operator.names import FIELD_MANAGER
from groundplane_operator.observed import Resource
from groundplane_operator.render.common import Manifest

MAX_NOTE_CHARACTERS: Final = 1_024
_GOOD: Final = {"Accepted": "True", "Degraded": "False", "SnapshotHealthy": "True"}
"""What of these conditions is no reason to look; the others tell where things stand, not that something is wrong."""


def render_events(
    resource: Resource, before: Iterable[Condition], after: Iterable[Condition], *, instance: str, now: float
) -> Iterator[Manifest]:
    """Yield an Event for every condition whose status or reason is another one than before.

    instance: the name of this operator's pod. A condition that appears in its good state, or without one, is no news.
    """
    known = {each.type: (each.status, each.reason) for each in before}
    for condition in after:
        if known.get(condition.type) == (condition.status, condition.reason):
            continue
        if condition.type not in known and condition.status in {_GOOD.get(condition.type, "False"), "Unknown"}:
            continue
        yield render_event(
            resource,
            reason=condition.reason,
            note=f"{condition.type} is {condition.status}: {condition.message or condition.reason}",
            is_warning=condition.type in _GOOD and condition.status == _opposite(_GOOD[condition.type]),
            instance=instance,
            now=now,
        )


def render_event(
    resource: Resource, *, reason: str, note: str, is_warning: bool, instance: str, now: float
) -> Manifest:
    """Return one Event about `resource`."""
    told = f"{resource.uid}/{resource.generation}/{reason}/{note}"
    regarding: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "namespace": resource.namespace,
        "name": resource.name,
        "uid": resource.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{resource.name}.{hashlib.sha256(told.encode()).hexdigest()[:16]}",
            "namespace": resource.namespace,
        },
        "eventTime": datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": f"groundplane.dev/{FIELD_MANAGER}",
        "reportingInstance": instance,
        "action": "Reconcile",
        "reason": reason,
        "regarding": regarding,
        "note": note[:MAX_NOTE_CHARACTERS],
        "type": "Warning" if is_warning else "Normal",
    }


def _opposite(status: str) -> str:
    return "False" if status == "True" else "True"
