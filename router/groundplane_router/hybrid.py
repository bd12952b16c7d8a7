"""The hybrid tier: one query vector, the caller's shard and the platform's in parallel, one fused ranking.

The outcome is `Answered` (searched completely, perhaps without a find) or `Unanswered` (could not be searched, with a reason);
nothing in between. While a corpus is being re-embedded all are asked by words alone, since scores of two kinds do not compare,
and the answer says so; without a find it is `Unanswered`. Only a caller that said `partial: allow` gets an `Answered` in which a scope is missing, and it is marked.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from groundplane.errors import Unavailable
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.internal import SearchAnswer, SearchRequest
from groundplane.wire.names import Reason, Scope
from groundplane.wire.public import Basis, Hit, ScopeBasis, ScopeReport
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants, scope_of
from groundplane_router.embedders.fit import UNAVAILABLE_CODE
from groundplane_router.fusion import FusionRule, ScopeAnswer, fuse, window_for
from groundplane_router.metrics import RouterMetrics
from groundplane_router.question import EncodedQuery, QueryEncoder, Question
from groundplane_router.shards import BAD_ANSWER, Shards
from groundplane_router.vector_space import EMBEDDING_MISMATCH, REINDEXING, VectorSpaces

NOT_SEARCHED: Final = "not_searched"
"""Detail of a scope that was not asked, because the query had no vector."""

_STALE_ID: Final = frozenset({EMBEDDING_MISMATCH, "embedding_unknown"})
_SHARD_SHARE: Final = 0.9
"""Part of the time left that a shard may wait: its own "not reached" must arrive before the router stops listening."""

_LARGEST_COSINE: Final = 1.001
"""Rounding of float32 may put a cosine a little above 1; more than this is no cosine."""


class ScopeReports(msgspec.Struct, frozen=True, kw_only=True):
    """How the search of each scope went; None: not declared."""

    tenant: ScopeReport | None = None
    platform: ScopeReport | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; None where the stage was not reached."""

    embed_ms: float | None = None
    search_ms: float | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The corpora were searched; no hits means that they say nothing.

    Not `semantic`: a corpus is being re-embedded, so all were asked by words alone, and there are hits.
    """

    semantic: bool = True
    hits: list[Hit]
    basis: Basis
    reports: ScopeReports
    spent: Spent


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """The corpora could not be searched."""

    failure: Unavailable
    reports: ScopeReports
    spent: Spent


class _Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What one scope came back with: an answer, or why there is none."""

    scope: Scope
    ms: float
    answer: SearchAnswer | None = None
    failure: Unavailable | None = None


class Hybrid:
    """Asks both shards and fuses."""

    def __init__(
        self, encoder: QueryEncoder, spaces: VectorSpaces, shards: Shards, rule: FusionRule, metrics: RouterMetrics
    ) -> None:
        self._encoder = encoder
        self._spaces = spaces
        self._shards = shards
        self._rule = rule
        self._metrics = metrics

    async def search(self, grants: Grants, question: Question, deadline: Deadline) -> Answered | Unanswered:
        """Return the best `k` chunks of the caller's corpora, or why they could not be searched.

        Raises InvalidInput for a filter that a shard refuses.
        """
        with self._metrics.stage("embed") as embed:
            try:
                query = await self._encoder.encode(grants, question.query, deadline)
            except Unavailable as failure:
                return self._unanswered(failure, _not_searched(grants), Spent(embed_ms=embed.ms))
        with self._metrics.stage("search") as search:
            request = _request(query, question)
            searched = await self._search_all(grants, request, deadline)
            reindexing = next((one.failure for one in searched if _is_reindexing(one)), None)
            if reindexing is not None:
                request = msgspec.structs.replace(request, vector=None)
                searched = await self._search_all(grants, request, deadline)
        spent = Spent(embed_ms=embed.ms, search_ms=search.ms)
        try:
            _check_complete(searched, allow_partial=question.allow_partial)
            with self._metrics.stage("merge"):
                hits = self._fuse(query, question, searched)
        except Unavailable as failure:
            return self._unanswered(failure, _reports(searched), spent)
        if reindexing is not None and not hits:  # not asked by meaning, so not "nothing to say"
            return self._unanswered(reindexing, _reports(searched), spent)
        return Answered(
            semantic=reindexing is None,
            hits=hits,
            basis=_basis(searched),
            reports=_reports(searched),
            spent=spent,
        )

    async def _search_all(self, grants: Grants, request: SearchRequest, deadline: Deadline) -> list[_Searched]:
        corpora = [corpus for corpus in (grants.own, grants.platform) if corpus is not None]
        return await asyncio.gather(*(self._search_scope(corpus, grants, request, deadline) for corpus in corpora))

    async def _search_scope(
        self, corpus: CorpusEntry, grants: Grants, request: SearchRequest, deadline: Deadline
    ) -> _Searched:
        watch = self._metrics.stopwatch()
        scope = scope_of(corpus)
        if corpus is not grants.own:
            request = msgspec.structs.replace(request, min_sequence=0)
        try:
            answer = await self._ask(corpus, request, deadline)
        except Unavailable as failure:
            return _Searched(scope=scope, ms=watch.ms, failure=_scope_failure(failure, is_own=corpus is grants.own))
        return _Searched(scope=scope, ms=watch.ms, answer=answer)

    async def _ask(self, corpus: CorpusEntry, request: SearchRequest, deadline: Deadline) -> SearchAnswer:
        """Return the shard's answer; an embedding id that it no longer takes is looked up again once."""
        try:
            return await self._ask_once(corpus, request, deadline)
        except Unavailable as failure:
            if failure.detail not in _STALE_ID:
                raise
        self._spaces.forget(corpus)
        return await self._ask_once(corpus, request, deadline)

    async def _ask_once(self, corpus: CorpusEntry, request: SearchRequest, deadline: Deadline) -> SearchAnswer:
        embedding_id = None if request.vector is None else await self._spaces.id_for(corpus, deadline)
        addressed = msgspec.structs.replace(
            request,
            incarnation=corpus.incarnation,
            embedding_id=embedding_id,
            deadline_ms=max(1, int(deadline.remaining_seconds * 1_000 * _SHARD_SHARE)),
        )
        answer = await self._shards.search(corpus, addressed, deadline)
        _check_answer(answer, request)
        return answer

    def _fuse(self, query: EncodedQuery, question: Question, searched: Sequence[_Searched]) -> list[Hit]:
        answers = [ScopeAnswer(scope=one.scope, answer=one.answer) for one in searched if one.answer is not None]
        try:
            return fuse(query.terms, answers, k=question.k, rule=self._rule, explain=question.explain)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _bad_answer("a chunk that cannot be decoded") from error

    def _unanswered(self, failure: Unavailable, reports: ScopeReports, spent: Spent) -> Unanswered:
        self._metrics.unavailable.labels(failure.reason or Reason.SEARCH_FAILED).inc()
        return Unanswered(failure=failure, reports=reports, spent=spent)


def _is_reindexing(one: _Searched) -> bool:
    return one.failure is not None and one.failure.detail == REINDEXING


def _request(query: EncodedQuery, question: Question) -> SearchRequest:
    """Return the request without what differs between shards."""
    return SearchRequest(
        incarnation="",
        analyser=query.analyser,
        terms=query.terms,
        window=window_for(question.k),
        vector=query.vector,
        filter=question.filter,
        min_sequence=question.min_sequence,
    )


def _check_complete(searched: Sequence[_Searched], *, allow_partial: bool) -> None:
    """Raise the failure that decides: the own corpus's before the platform's, none if a part is allowed and there is one."""
    failures = [one.failure for one in searched if one.failure is not None]
    if failures and not (allow_partial and len(failures) < len(searched)):
        raise failures[0]


def _scope_failure(failure: Unavailable, *, is_own: bool) -> Unavailable:
    """Return `failure` as the caller sees it: `no_corpus` is said of its own corpus only."""
    if is_own or failure.reason != Reason.NO_CORPUS:
        return failure
    return Unavailable(
        failure.message, code=failure.code, reason=Reason.SEARCH_FAILED, detail=f"platform_{failure.detail}"
    )


def _check_answer(answer: SearchAnswer, request: SearchRequest) -> None:
    """Raise Unavailable for an answer that would spoil the ranking or pass for "nothing" without a search.

    That is: counts that do not fit the terms, numbers out of range, a corpus of chunks without one neighbour of the query
    (vectors always have some, where no filter leaves them out), a sequence before the one that was asked for.
    """
    if answer.sequence < request.min_sequence:
        raise _bad_answer("an older state than was asked for")
    asks_meaning = request.vector is not None
    if asks_meaning and not answer.candidates and answer.statistics.chunks > 0 and request.filter is None:
        raise _bad_answer("no candidates from a corpus that is not empty")
    terms = len(request.terms)
    counts = answer.statistics
    sound = (
        len(counts.document_frequencies) == terms
        and min(counts.documents, counts.chunks, counts.total_tokens, *counts.document_frequencies) >= 0
        and max(counts.document_frequencies, default=0) <= counts.chunks
        and max(counts.documents, len(answer.candidates)) <= counts.chunks
        and all(
            len(one.term_frequencies) == terms
            and one.length >= 0
            and (one.cosine is not None) == asks_meaning
            and -_LARGEST_COSINE <= (one.cosine or 0.0) <= _LARGEST_COSINE
            and min(one.term_frequencies, default=0) >= 0
            for one in answer.candidates
        )
    )
    if not sound:
        raise _bad_answer("statistics or scores that cannot be")


def _bad_answer(fault: str) -> Unavailable:
    return Unavailable(
        f"a shard answered {fault}: see its log and version",
        code=UNAVAILABLE_CODE,
        reason=Reason.SEARCH_FAILED,
        detail=BAD_ANSWER,
    )


def _basis(searched: Sequence[_Searched]) -> Basis:
    known = {
        one.scope.value: ScopeBasis(incarnation=one.answer.incarnation, sequence=one.answer.document_sequence)
        for one in searched
        if one.answer is not None
    }
    return Basis(tenant=known.get("tenant"), platform=known.get("platform"))


def _reports(searched: Sequence[_Searched]) -> ScopeReports:
    reports = {one.scope.value: _report(one) for one in searched}
    return ScopeReports(tenant=reports.get("tenant"), platform=reports.get("platform"))


def _report(one: _Searched) -> ScopeReport:
    if one.answer is None:
        return ScopeReport(ok=False, ms=one.ms, detail=one.failure.detail if one.failure else None)
    return ScopeReport(
        ok=True,
        documents=one.answer.statistics.documents,
        sequence=one.answer.sequence,
        age_seconds=one.answer.age_seconds,
        ms=one.ms,
    )


def _not_searched(grants: Grants) -> ScopeReports:
    report = ScopeReport(ok=False, detail=NOT_SEARCHED)
    if grants.scope is Scope.PLATFORM:
        return ScopeReports(platform=report)
    return ScopeReports(tenant=report, platform=report if grants.platform else None)
