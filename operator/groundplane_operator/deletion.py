"""Deletion with policy Delete: the pods end, a Job empties the bucket, the resource is let go. Always within a bound.

Children go with their owner reference, a volume too; only what lies in a bucket needs us. The Job fences the writer by
itself, so pods that do not end in time, on a node that is gone for example, do not stop it. When `cleanup_seconds` are
over, or nothing can be started any more, the resource is released all the same, and what may be left is reported.
"""

from typing import Final

from groundplane_operator.acceptance import resolve_corpus
from groundplane_operator.children import target_of
from groundplane_operator.observed import ChildKind, Observed
from groundplane_operator.ownership import is_owned
from groundplane_operator.reasons import Reason
from groundplane_operator.render.cleanup_job import render_cleanup_job
from groundplane_operator.render.common import Corpus, Manifest
from groundplane_operator.render.service_account import render_service_account
from groundplane_operator.steps import Apply, Delete, Refuse, Release, Step, Wait
from groundplane_operator.store_location import Bucket
from groundplane_operator.witness import parse_time

STOPPING_SECONDS: Final = 3.0
POD_SECONDS: Final = 120.0
"""For pods to end: twice their grace period. After that the Job starts beside them."""


def wants_cleanup(corpus: Corpus) -> bool:
    """Return whether the deletion of `corpus` has to wait for us."""
    return corpus.spec.deletion_policy == "Delete" and isinstance(corpus.store, Bucket)


def plan_deletion(seen: Observed, now: float) -> Step:
    """Return the next step towards the end of a deleted resource."""
    resource = seen.resource
    if not resource.has_finalizer:
        return Wait(
            reason=Reason.DELETING, message="waits for the finalizers of others", seconds=seen.settings.poll_seconds
        )
    corpus = resolve_corpus(resource, seen.settings)
    if isinstance(corpus, Refuse):
        left = f"log and snapshots of incarnation {resource.uid}"
        return Release(
            reason=Reason.CLEANUP_INCOMPLETE,
            message=f"{left} are left: the spec cannot be read any more ({corpus.message})",
        )
    if not wants_cleanup(corpus):
        return Release()
    if seen.is_namespace_ending:
        return _give_up(corpus, "nothing can be started in a namespace that is being deleted")
    seconds = now - parse_time(resource.metadata.deletion_timestamp or "")
    if seconds >= seen.settings.cleanup_seconds:
        return _give_up(corpus, f"the clean-up has not ended within {seen.settings.cleanup_seconds} s")
    return _plan_stop(seen, seconds) or _plan_job(seen, corpus)


def _plan_stop(seen: Observed, seconds: float) -> Step | None:
    deployment = seen.children.get(ChildKind.DEPLOYMENT)
    if deployment is not None and is_owned(deployment, seen.resource.uid):
        return Delete(targets=(target_of(deployment),), reason=Reason.DELETING, message="the shard is stopped")
    if seen.pods and seconds < POD_SECONDS:
        return Wait(reason=Reason.SHARD_STOPPING, message="waits for the pods to end", seconds=STOPPING_SECONDS)
    return None


def _plan_job(seen: Observed, corpus: Corpus) -> Step:
    job = seen.children.get(ChildKind.CLEANUP_JOB)
    if job is None or not is_owned(job, corpus.uid):
        rendered = render_cleanup_job(corpus)
        account = None if ChildKind.SERVICE_ACCOUNT in seen.children else render_service_account(corpus)
        manifests = tuple(manifest for manifest in (account, rendered) if manifest is not None)
        return Apply(manifests=manifests, difference="Job metadata.name")
    if _has_condition(job, "Complete"):
        return Release(reason=Reason.CLEANED_UP, message=f"nothing is left of {_place(corpus)}")
    if _has_condition(job, "Failed"):
        return _give_up(corpus, "the clean-up Job failed")
    return Wait(reason=Reason.CLEANING_UP, message=f"removes {_place(corpus)}", seconds=STOPPING_SECONDS)


def _give_up(corpus: Corpus, why: str) -> Release:
    return Release(reason=Reason.CLEANUP_INCOMPLETE, message=f"objects may be left below {_place(corpus)}: {why}")


def _place(corpus: Corpus) -> str:
    """Return where the corpus lies, without the URL's query."""
    url = corpus.store.url.partition("?")[0] if isinstance(corpus.store, Bucket) else ""
    return f"{url}/{corpus.spec.corpus_key}/{corpus.uid}"


def _has_condition(job: Manifest, kind: str) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)
