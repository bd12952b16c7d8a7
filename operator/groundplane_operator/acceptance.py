"""Whether a resource is carried out: is its spec right, may it stand in its namespace, does it get what it claims?"""

from typing import Final

from groundplane.errors import InvalidInput
from groundplane_operator.claims import try_refuse
from groundplane_operator.observed import Observed, Resource, claimant_of
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Corpus
from groundplane_operator.settings import OperatorSettings
from groundplane_operator.steps import Refuse
from groundplane_operator.store_location import NO_STORE_CODE, resolve_store

RETRY_SECONDS: Final = 30.0


def accept(seen: Observed) -> Corpus | Refuse:
    """Return what is to be rendered, or why nothing is.

    A refusal that lies in the spec alone waits for its next generation; one that others may lift is looked at again.
    """
    corpus = resolve_corpus(seen.resource, seen.settings)
    if isinstance(corpus, Refuse):
        return corpus
    refusal = _try_refuse_namespace(corpus)
    if refusal is not None:
        return refusal
    claimed = try_refuse(claimant_of(seen.resource), seen.all_claimants)
    return corpus if claimed is None else Refuse(reason=claimed.reason, message=claimed.message, seconds=RETRY_SECONDS)


def resolve_corpus(resource: Resource, settings: OperatorSettings) -> Corpus | Refuse:
    """Return the corpus that a spec describes, without asking whether it may exist."""
    if resource.spec is None:
        return Refuse(reason=Reason.INVALID_SPEC, message=resource.fault or "spec cannot be read: edit it")
    try:
        store = resolve_store(resource.spec, settings.default_store)
    except InvalidInput as error:
        if error.code == NO_STORE_CODE:
            return Refuse(reason=Reason.NO_OBJECT_STORE, message=error.message, seconds=RETRY_SECONDS)
        return Refuse(reason=Reason.INVALID_SPEC, message=error.message)
    return Corpus(
        name=resource.name,
        namespace=resource.namespace,
        uid=resource.uid,
        spec=resource.spec,
        store=store,
        settings=settings,
    )


def _try_refuse_namespace(corpus: Corpus) -> Refuse | None:
    """Refuse what only the operator's own namespace may hold: whoever writes there could change the operator itself."""
    settings = corpus.settings
    if corpus.namespace == settings.namespace:
        return None
    if corpus.spec.platform:
        return Refuse(
            reason=Reason.PLATFORM_NAMESPACE,
            message=f"the platform corpus lies in namespace {corpus.namespace}: expected {settings.namespace}, the operator's",
        )
    foreign = next((grant for grant in corpus.spec.subjects if grant.namespace != corpus.namespace), None)
    if foreign is None or settings.any_subject_namespace:
        return None
    return Refuse(
        reason=Reason.SUBJECT_NAMESPACE,
        message=f"subject {foreign.namespace}/{foreign.service_account}: expected a ServiceAccount of namespace "
        f"{corpus.namespace}; the installation allows no others (GROUNDPLANE_ANY_SUBJECT_NAMESPACE)",
    )
