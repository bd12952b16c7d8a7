"""The three tiers and their truth table: memo, then hybrid, then grep, the first that answers wins.

| memo | hybrid | grep | status, tier |
| --- | --- | --- | --- |
| hit | – | – | grounded, memo |
| no | hits | – | grounded, hybrid |
| no | nothing | no engine, or nothing | nothing, none |
| no | nothing | hits | grounded, grep |
| no | nothing | failed or over budget | degraded, none (`searched.local.ok` false) |
| no | unavailable | hits | degraded, grep |
| no | unavailable | anything else | degraded, none, with the reason |

A failed memo look-up counts as "no" and is shown in `searched.memo`. One test a row: tests/router/test_grounding.py.
"""

from typing import Final

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.wire.names import Reason, parse_position
from groundplane.wire.public import (
    Basis,
    EvidenceAnswer,
    EvidenceRequest,
    GroundAnswer,
    GroundRequest,
    Hit,
    MemoAnswer,
    ScopeReport,
    Searched,
    Status,
    Tier,
    Timing,
    Unavailability,
    check_evidence_request,
)
from groundplane_router.deadline import Deadline, Stopwatch
from groundplane_router.directory import Grants
from groundplane_router.failures import RetrievalUnavailable
from groundplane_router.hybrid import Answered, Hybrid, ScopeReports, Spent, Unanswered
from groundplane_router.local import LocalFiles, LocalSearch
from groundplane_router.memos import MemoLookup, Memos
from groundplane_router.metrics import RouterMetrics
from groundplane_router.question import Question

MEMO_SHARE: Final = 0.3
"""Part of the deadline that the memo look-up may take, so that the search after it still can be done."""

HYBRID_SHARE: Final = 0.7
"""Part of what is then left for the hybrid tier where the grep tier exists, so that a slow shard leaves it some."""

SEQUENCE_NOT_REACHED: Final = "sequence_not_reached"


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the truth table, filled in."""

    status: Status
    tier: Tier
    hits: list[Hit] = []
    unavailable: Unavailability | None = None


class Grounding:
    """Answers questions."""

    def __init__(self, memos: Memos, hybrid: Hybrid, local: LocalFiles, metrics: RouterMetrics) -> None:
        self._memos = memos
        self._hybrid = hybrid
        self._local = local
        self._metrics = metrics

    async def evidence(
        self, grants: Grants, request: EvidenceRequest, deadline: Deadline, query_id: str
    ) -> EvidenceAnswer:
        """Return what the corpora say; no hits means "searched, nothing to say". Raises RetrievalUnavailable, InvalidInput."""
        check_evidence_request(request)
        watch = self._metrics.stopwatch()
        question = _question(grants, request)
        outcome = await self._hybrid.search(grants, question, deadline)
        searched = _searched(outcome.reports)
        if isinstance(outcome, Unanswered):
            raise RetrievalUnavailable(outcome.failure, searched)
        return EvidenceAnswer(
            query_id=query_id,
            semantic=outcome.semantic,
            hits=outcome.hits,
            basis=outcome.basis,
            searched=searched,
            timing_ms=_timing(outcome.spent, None, watch),
        )

    async def ground(self, grants: Grants, request: GroundRequest, deadline: Deadline, query_id: str) -> GroundAnswer:
        """Return the answer of the first tier that has one.

        Raises InvalidInput, and RetrievalUnavailable only where `min_position` was not reached: every other failure is
        said in the answer.
        """
        check_evidence_request(request)
        watch = self._metrics.stopwatch()
        question = _question(grants, request)
        memo = await self._memos.look_up(grants, request, question.min_sequence, deadline.part(MEMO_SHARE))
        if memo.answer is not None:
            return _from_memo(memo, memo.answer, query_id, watch)
        share = HYBRID_SHARE if self._local.exists else 1.0
        outcome = await self._hybrid.search(grants, question, deadline.part(share))
        if isinstance(outcome, Unanswered) and outcome.failure.detail == SEQUENCE_NOT_REACHED:
            raise RetrievalUnavailable(outcome.failure, _searched(outcome.reports, memo=memo.report))
        has_hits = isinstance(outcome, Answered) and bool(outcome.hits)
        local = LocalSearch() if has_hits else await self._local.search(request.query, request.k, deadline)
        verdict = judge(outcome, local)
        return GroundAnswer(
            status=verdict.status,
            tier=verdict.tier,
            query_id=query_id,
            semantic=isinstance(outcome, Answered) and outcome.semantic,
            hits=verdict.hits,
            memo=None,
            unavailable=verdict.unavailable,
            basis=outcome.basis if isinstance(outcome, Answered) else Basis(),
            searched=_searched(outcome.reports, memo=memo.report, local=local.report),
            timing_ms=_timing(outcome.spent, local.ms, watch),
        )


def judge(hybrid: Answered | Unanswered, local: LocalSearch) -> _Verdict:
    """Return the row of the truth table below the memo's."""
    if isinstance(hybrid, Unanswered):
        unavailable = Unavailability(reason=_reason(hybrid.failure), detail=hybrid.failure.detail)
        tier: Tier = "grep" if local.hits else "none"
        return _Verdict(status="degraded", tier=tier, hits=local.hits, unavailable=unavailable)
    if hybrid.hits:
        return _Verdict(status="grounded", tier="hybrid", hits=hybrid.hits)
    if local.hits:
        return _Verdict(status="grounded", tier="grep", hits=local.hits)
    if local.report is not None and not local.report.ok:
        return _Verdict(status="degraded", tier="none")
    return _Verdict(status="nothing", tier="none")


def _from_memo(lookup: MemoLookup, answer: MemoAnswer, query_id: str, watch: Stopwatch) -> GroundAnswer:
    return GroundAnswer(
        status="grounded",
        tier="memo",
        query_id=query_id,
        semantic=False,
        hits=[],
        memo=answer,
        unavailable=None,
        basis=answer.basis,
        searched=Searched(memo=lookup.report),
        timing_ms=Timing(total=watch.ms),
    )


def _reason(failure: Unavailable) -> Reason:
    return Reason(failure.reason) if failure.reason else Reason.SEARCH_FAILED


def _question(grants: Grants, request: EvidenceRequest | GroundRequest) -> Question:
    return Question(
        query=request.query,
        k=request.k,
        filter=request.filter,
        min_sequence=_min_sequence(grants, request.min_position),
        allow_partial=isinstance(request, EvidenceRequest) and request.partial == "allow",
        explain=request.explain,
    )


def _min_sequence(grants: Grants, position: str | None) -> int:
    """Return the sequence that `position` names in the caller's corpus; 0 without one. Raises InvalidInput: 400, 409."""
    if position is None:
        return 0
    incarnation, sequence = parse_position(position)
    if incarnation != grants.own.incarnation:
        raise InvalidInput(
            "min_position is of another corpus, or of an earlier life of this one: take it from a write to this corpus",
            code="position_of_other_incarnation",
            field="min_position",
            status=409,
        )
    return sequence


def _searched(reports: ScopeReports, *, memo: ScopeReport | None = None, local: ScopeReport | None = None) -> Searched:
    return Searched(tenant=reports.tenant, platform=reports.platform, local=local, memo=memo)


def _timing(spent: Spent, grep_ms: float | None, watch: Stopwatch) -> Timing:
    return Timing(embed=spent.embed_ms, search=spent.search_ms, grep=grep_ms, total=watch.ms)
