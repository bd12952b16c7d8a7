"""Whose a live object with the name of a child is: ours, an earlier resource's, or somebody else's.

An object of ours is controlled by this resource, or, where somebody took that off, still labelled as this corpus's. A
volume that outlived an earlier resource is taken over if it holds this very corpus. Nothing else is touched.
"""

from typing import Any, Final

from groundplane.api.v1alpha1 import KIND
from groundplane_operator import names
from groundplane_operator.observed import ChildKind, Observed
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Corpus, Manifest
from groundplane_operator.steps import Wait

GOING_SECONDS: Final = 5.0
TAKEN_SECONDS: Final = 30.0


def plan_ownership(seen: Observed, corpus: Corpus) -> Wait | None:
    """Return why children cannot be applied yet, None if every object that is there is ours to change."""
    for kind in ChildKind:
        live = seen.children.get(kind)
        waiting = None if live is None else _refuse_foreign(kind, live, corpus)
        if waiting is not None:
            return waiting
    return None


def is_owned(live: Manifest, uid: str) -> bool:
    """Return whether the resource of `uid` controls a live object."""
    return _controller(live).get("uid") == uid


def _refuse_foreign(kind: ChildKind, live: Manifest, corpus: Corpus) -> Wait | None:
    metadata = live["metadata"]
    what = f"{kind} {corpus.namespace}/{metadata['name']}"
    controller = _controller(live)
    is_earlier = controller.get("kind") == KIND and controller.get("name") == corpus.name
    if metadata.get("deletionTimestamp") or (is_earlier and controller.get("uid") != corpus.uid):
        return Wait(
            reason=Reason.EARLIER_CHILDREN, message=f"waits until {what} has been removed", seconds=GOING_SECONDS
        )
    if kind == ChildKind.VOLUME_CLAIM:
        key = metadata.get("annotations", {}).get(names.STORAGE_KEY_ANNOTATION)
        if key is not None and key != corpus.spec.corpus_key:
            message = (
                f"{what} holds the data of {key}: expected {corpus.spec.corpus_key}; remove it, or take another name"
            )
            return _degraded(Reason.VOLUME_OF_ANOTHER_CORPUS, message)
    labels = metadata.get("labels", {})
    is_labelled = labels.get(names.CORPUS_LABEL) == corpus.name and labels.get(names.MANAGED_BY_LABEL)
    if controller.get("uid") == corpus.uid or (not controller and is_labelled == names.FIELD_MANAGER):
        return None
    return _degraded(Reason.NAME_TAKEN, f"{what} is not the operator's: remove or rename it")


def _degraded(reason: Reason, message: str) -> Wait:
    return Wait(reason=reason, message=message, seconds=TAKEN_SECONDS, is_degraded=True)


def _controller(live: Manifest) -> dict[str, Any]:
    references: list[dict[str, Any]] = live["metadata"].get("ownerReferences", [])
    return next((each for each in references if each.get("controller")), {})
