"""What a pass does next: one function of what was seen, without reading or writing anything.

    paused → deleted → refused → claims → finalizer → ownership → children → superseded pods → waiting → done

The first part of that row which is not as it should be decides. Every step brings the corpus nearer to the spec or says
what it waits for, so any order, loss and repetition of events ends in the same children; in a steady state the answer is
Done, and nothing is written. `steps` says what the shell does with each answer, `observed` what it has to have seen.
"""

from groundplane_operator.acceptance import accept
from groundplane_operator.children import plan_children, wanted_children
from groundplane_operator.deletion import plan_deletion, wants_cleanup
from groundplane_operator.observed import ChildKind, Observed, Resource
from groundplane_operator.ownership import plan_ownership
from groundplane_operator.progress import plan_pods, plan_progress, requested_bytes
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Corpus
from groundplane_operator.status import with_claims
from groundplane_operator.steps import Accept, Done, Pause, Refuse, SetFinalizer, Step
from groundplane_operator.store_location import Volume


def next_step(seen: Observed, now: float) -> Step:
    """Return the next step towards what the resource asks for. `now` is seconds since 1970."""
    resource = seen.resource
    if resource.is_paused:
        return Pause()
    if resource.is_deleting:
        return plan_deletion(seen, now)
    corpus = accept(seen)
    if isinstance(corpus, Refuse):
        return corpus
    if with_claims(resource.status, resource) != resource.status:
        return Accept()
    return _plan_finalizer(resource, corpus) or _plan_corpus(seen, corpus, now)


def _plan_finalizer(resource: Resource, corpus: Corpus) -> SetFinalizer | None:
    """Deletion waits for us only where there is something to remove: no finalizer, nothing that can get stuck."""
    wanted = wants_cleanup(corpus)
    return None if wanted == resource.has_finalizer else SetFinalizer(present=wanted)


def _plan_corpus(seen: Observed, corpus: Corpus, now: float) -> Step:
    ownership = plan_ownership(seen, corpus) or _plan_storage(seen, corpus)
    if ownership is not None:
        return ownership
    children = wanted_children(seen, corpus, now)
    return (
        plan_children(seen, children)
        or plan_pods(seen)
        or plan_progress(seen, corpus, children)
        or Done(seconds=corpus.settings.poll_seconds)
    )


def _plan_storage(seen: Observed, corpus: Corpus) -> Refuse | None:
    """Refuse to shrink a volume; growing it is a change of the claim like any other."""
    volume, live = corpus.store, seen.children.get(ChildKind.VOLUME_CLAIM)
    if not isinstance(volume, Volume) or live is None or requested_bytes(live) <= volume.size_bytes:
        return None
    return Refuse(
        reason=Reason.STORAGE_SHRINK_REFUSED,
        message=f"the volume has {requested_bytes(live)} bytes, spec.storage.size asks for {volume.size_bytes}: raise it, "
        "or restore into another corpus",
    )
