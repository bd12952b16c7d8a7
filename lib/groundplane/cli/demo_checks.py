"""The steps of the demo: each asks the running system something and says which of its expectations came true."""

from collections.abc import Awaitable, Callable

import msgspec

from groundplane.client import AsyncClient, RequestRefused, RetrievalUnavailable
from groundplane.demo import (
    GREP_QUESTION,
    MEMO_QUESTION,
    NOTHING_QUESTION,
    PLATFORM_QUESTION,
    SAME_QUESTION,
    SECRET_DOCUMENT,
    SECRET_QUESTION,
    TENANT_QUESTION,
)
from groundplane.wire.names import Reason, Scope
from groundplane.wire.public import GroundAnswer, Hit

MEMO_NAME, MEMO_FINGERPRINT = "holiday-entitlement", "v1"
MEMO_RESPONSE = "30 days a year. Approved by the people team."


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the agents of both tenants, acme's indexer, and acme's agent at the router without an embedder."""

    acme: AsyncClient
    globex: AsyncClient
    acme_indexer: AsyncClient
    acme_cut_off: AsyncClient


class Expectation(msgspec.Struct, frozen=True):
    """What should have come out, and whether it did."""

    text: str
    is_met: bool


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a step as the transcript shows it: who asked what, and what came back."""

    who: str
    request: str
    outcome: str
    hits: tuple[Hit, ...] = ()


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one step showed."""

    title: str
    asked: tuple[Asked, ...]
    expectations: tuple[Expectation, ...]

    @classmethod
    def failed(cls, title: str, why: str) -> "StepResult":
        """Return the result of a step whose request brought no answer."""
        return cls(title=title, asked=(), expectations=(Expectation(f"every request is answered ({why})", False),))


Step = Callable[[Clients], Awaitable[StepResult]]


async def own_corpus(clients: Clients) -> StepResult:
    """Show a hybrid hit from the tenant's own corpus."""
    answer = await clients.acme.ground(TENANT_QUESTION)
    return StepResult(
        title="An answer from the tenant's own corpus",
        asked=(_asked("acme", TENANT_QUESTION, answer),),
        expectations=(
            Expectation("the hybrid tier answers", answer.tier == "hybrid"),
            Expectation("the first hit is the tenant's own", _first_scope(answer) == Scope.TENANT),
        ),
    )


async def platform_corpus(clients: Clients) -> StepResult:
    """Show a hybrid hit from the corpus that all tenants share."""
    answer = await clients.globex.ground(PLATFORM_QUESTION)
    return StepResult(
        title="An answer from the platform's corpus",
        asked=(_asked("globex", PLATFORM_QUESTION, answer),),
        expectations=(
            Expectation("the hybrid tier answers", answer.tier == "hybrid"),
            Expectation("the first hit is the platform's", _first_scope(answer) == Scope.PLATFORM),
        ),
    )


async def same_question(clients: Clients) -> StepResult:
    """Show that one question has one answer a tenant."""
    acme, globex = await clients.acme.ground(SAME_QUESTION), await clients.globex.ground(SAME_QUESTION)
    first = [answer.hits[0].doc_id if answer.hits else "" for answer in (acme, globex)]
    return StepResult(
        title="The same question, asked by both tenants",
        asked=(_asked("acme", SAME_QUESTION, acme), _asked("globex", SAME_QUESTION, globex)),
        expectations=(
            Expectation("acme is answered from its own document", first[0].startswith("acme-")),
            Expectation("globex is answered from its own document", first[1].startswith("globex-")),
            Expectation(
                "neither sees a document of the other", not _foreign(acme, "globex") and not _foreign(globex, "acme")
            ),
        ),
    )


async def isolation(clients: Clients) -> StepResult:
    """Show that a document of one tenant is out of the other's reach, by search and by id."""
    own = await clients.acme.evidence(SECRET_QUESTION)
    foreign = await clients.globex.evidence(SECRET_QUESTION, k=50)
    fetched = await clients.acme.document(SECRET_DOCUMENT)
    refusal = await _refusal(clients.globex, SECRET_DOCUMENT)
    return StepResult(
        title="A document of one tenant, out of the other's reach",
        asked=(
            Asked(who="acme", request=SECRET_QUESTION, outcome=f"{len(own.hits)} hits", hits=tuple(own.hits[:1])),
            Asked(who="globex", request=f"{SECRET_QUESTION} (k=50)", outcome=f"{len(foreign.hits)} hits"),
            Asked(
                who="globex", request=f"GET /v1/documents/{SECRET_DOCUMENT}", outcome=refusal or "it got the document"
            ),
        ),
        expectations=(
            Expectation("acme finds it", any(hit.doc_id == SECRET_DOCUMENT for hit in own.hits)),
            Expectation("acme gets it by id", fetched.id == SECRET_DOCUMENT),
            Expectation("globex does not find it", all(not hit.doc_id.startswith("acme-") for hit in foreign.hits)),
            Expectation("globex does not get it by id", refusal.startswith("404")),
        ),
    )


async def memo(clients: Clients) -> StepResult:
    """Show an approved answer that costs no model call."""
    await clients.acme_indexer.put_memo(MEMO_NAME, MEMO_FINGERPRINT, MEMO_RESPONSE)
    answer = await clients.acme.ground(MEMO_QUESTION, name=MEMO_NAME, fingerprint=MEMO_FINGERPRINT)
    other = await clients.globex.ground(MEMO_QUESTION, name=MEMO_NAME, fingerprint=MEMO_FINGERPRINT)
    response = None if answer.memo is None else msgspec.json.decode(answer.memo.response)
    return StepResult(
        title="An approved answer from the memo, without a model call",
        asked=(_asked("acme", MEMO_QUESTION, answer), _asked("globex", MEMO_QUESTION, other)),
        expectations=(
            Expectation(
                "the memo tier answers with what was stored", answer.tier == "memo" and response == MEMO_RESPONSE
            ),
            Expectation("the embedder was not asked", answer.timing_ms.embed is None),
            Expectation("another tenant has no such memo", other.tier != "memo"),
        ),
    )


async def nothing(clients: Clients) -> StepResult:
    """Show that a question about nothing is answered with nothing."""
    answer = await clients.acme.ground(NOTHING_QUESTION)
    return StepResult(
        title="A question about which the corpora have nothing",
        asked=(_asked("acme", NOTHING_QUESTION, answer),),
        expectations=(
            Expectation("the answer is nothing, from no tier", (answer.status, answer.tier) == ("nothing", "none")),
            Expectation("nothing is cited", not answer.hits),
        ),
    )


async def cut_off(clients: Clients) -> StepResult:
    """Show that a search that cannot be done is never an empty answer."""
    failure = await _failure(clients.acme_cut_off, TENANT_QUESTION)
    answer = await clients.acme_cut_off.ground(GREP_QUESTION)
    outcome = "200" if failure is None else f"{failure.status} {failure.reason} ({failure.detail})"
    return StepResult(
        title="The same shards behind a router whose embedder is cut off",
        asked=(
            Asked(who="acme", request=f"evidence: {TENANT_QUESTION}", outcome=outcome),
            _asked("acme", GREP_QUESTION, answer),
        ),
        expectations=(
            Expectation("evidence is 503", failure is not None and failure.status == 503),
            Expectation("with its reason", failure is not None and failure.reason == Reason.EMBED_ERROR),
            Expectation("ground falls through to keyword search", answer.tier == "grep" and bool(answer.hits)),
            Expectation("and is marked degraded", answer.status == "degraded" and answer.unavailable is not None),
        ),
    )


STEPS: tuple[Step, ...] = (own_corpus, platform_corpus, same_question, isolation, memo, nothing, cut_off)


def _asked(who: str, question: str, answer: GroundAnswer) -> Asked:
    facts = [answer.status, answer.tier, f"{answer.timing_ms.total:.0f} ms"]
    if answer.memo is not None:
        facts += [f"“{msgspec.json.decode(answer.memo.response)}”"]
    if answer.unavailable is not None:
        facts += [f"{answer.unavailable.reason} ({answer.unavailable.detail})"]
    return Asked(who=who, request=question, outcome=" · ".join(facts), hits=tuple(answer.hits[:2]))


def _first_scope(answer: GroundAnswer) -> Scope | None:
    return answer.hits[0].scope if answer.hits else None


def _foreign(answer: GroundAnswer, tenant: str) -> bool:
    return any(hit.doc_id.startswith(f"{tenant}-") for hit in answer.hits)


async def _refusal(client: AsyncClient, doc_id: str) -> str:
    try:
        await client.document(doc_id)
    except RequestRefused as refused:
        return f"{refused.status} {refused.code}"
    return ""


async def _failure(client: AsyncClient, query: str) -> RetrievalUnavailable | None:
    try:
        await client.evidence(query)
    except RetrievalUnavailable as unavailable:
        return unavailable
    return None
