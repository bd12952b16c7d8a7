"""Merging the candidates of several shards into one ranking, as if one index held them all.

Each shard brings its best W chunks by cosine and its best W by BM25, every one with its cosine, its term frequencies and its
length, plus the statistics of its corpus. From the summed statistics BM25 is computed again for the union, so where a
document lives changes nothing; then the two legs are cut to the global best W and fused. Invariants (tests/router/test_fusion.py):
the ranking does not depend on the split over shards or on which answer came first, except that on equal scores the tenant
comes before the platform; scores lie in [0, 1].

Pure: no I/O, no clock. A shard's own scores never enter here: they rest on the statistics of one index.

Sources: BM25 as in Robertson & Zaragoza 2009 with the idf of Lucene; convex combination with theoretical minimum (TM2C2),
Bruch et al. 2023, arXiv:2210.11934; reciprocal rank fusion, Cormack et al. 2009.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec

from groundplane.wire.internal import Candidate, ChunkFields, SearchAnswer, Statistics
from groundplane.wire.names import Scope
from groundplane.wire.public import Explanation, Hit, Match, Scores

BM25_K1: Final = 1.2
BM25_B: Final = 0.75
DENSE_WEIGHT: Final = 0.8
RRF_K: Final = 60
SCORE_DIGITS: Final = 6
MAX_CHUNKS_PER_DOCUMENT: Final = 3
LEAST_WINDOW: Final = 20
WINDOW_PER_HIT: Final = 4

Method = Literal["convex", "rrf"]

_SCOPE_ORDER: Final = {Scope.TENANT: 0, Scope.PLATFORM: 1, Scope.LOCAL: 2}
_FIELDS: Final = msgspec.msgpack.Decoder(ChunkFields)


class FusionRule(msgspec.Struct, frozen=True, kw_only=True):
    """How candidates are ranked, and the floor under which one is no find."""

    method: Method = "convex"
    dense_floor: float | None = None
    """Least cosine of a find; None: the model's cosines have no such line, so every neighbour is one."""

    term_floor: float = 0.5
    """Least share of the query's idf that the matched terms must carry, where the cosine is not enough."""


class ScopeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard brought up."""

    scope: Scope
    answer: SearchAnswer


class _Scored(msgspec.Struct):
    scope: Scope
    candidate: Candidate
    dense: float | None
    bm25: float
    idf_share: float
    fused: float = 0.0


class _Leg:
    """The global best W of one leg. A tie at the border keeps all that are equal, so that no split can tell them apart."""

    def __init__(self, scores: Iterable[float], window: int) -> None:
        self._falling = sorted(-score for score in scores)[:window]
        self.best = -self._falling[0] if self._falling else 0.0
        self._least = -self._falling[-1] if self._falling else math.inf

    def holds(self, score: float | None) -> bool:
        """Return whether a candidate with `score` is in the leg; None never is."""
        return score is not None and score >= self._least

    def rank(self, score: float | None) -> int | None:
        """Return 1 for the best, equal scores sharing a rank; None outside the leg."""
        if score is None or score < self._least:
            return None
        return bisect_left(self._falling, -score) + 1


def window_for(k: int) -> int:
    """Return how many candidates of each leg a shard is asked for: W = max(4k, 20), enough for the exact top k."""
    return max(WINDOW_PER_HIT * k, LEAST_WINDOW)


def fuse(
    terms: Sequence[str], answers: Sequence[ScopeAnswer], *, k: int, rule: FusionRule, explain: bool = False
) -> list[Hit]:
    """Return the best `k` hits over all `answers`, best first; none where no candidate passes the floor.

    terms: the query's, in the order of the candidates' frequencies. Order: fused score to 6 digits, tenant before platform,
    document id, ordinal; at most 3 chunks of one document. Scores lie in [0, 1] and compare only within one answer.
    Raises msgspec.MsgspecError for a chunk that cannot be decoded.
    """
    idf = _idf(sum_statistics([answer.answer.statistics for answer in answers], len(terms)))
    scored = _score_all(answers, idf)
    window = window_for(k)
    dense = _Leg((one.dense for one in scored if one.dense is not None), window)
    bm25 = _Leg((one.bm25 for one in scored if one.bm25 > 0), window)
    union = [one for one in scored if dense.holds(one.dense) or (one.bm25 > 0 and bm25.holds(one.bm25))]
    for one in union:
        one.fused = _fused(one, dense, bm25, rule.method)
    render = _HitRenderer(terms, dense, bm25, rule, explain=explain)
    hits: list[Hit] = []
    for one, fields in _in_order(union, rule):
        hits.append(render(len(hits) + 1, one, fields))
        if len(hits) == k:
            break
    return hits


def sum_statistics(statistics: Sequence[Statistics], terms: int) -> Statistics:
    """Return the statistics of the corpus that all shards make up together; `terms` is the number of query terms."""
    frequencies = [sum(one.document_frequencies[term] for one in statistics) for term in range(terms)]
    return Statistics(
        documents=sum(one.documents for one in statistics),
        chunks=sum(one.chunks for one in statistics),
        total_tokens=sum(one.total_tokens for one in statistics),
        document_frequencies=tuple(frequencies),
    )


class _Idf(msgspec.Struct, frozen=True):
    weights: list[float]
    total: float
    mean_length: float


def _idf(statistics: Statistics) -> _Idf:
    """Return ln(1 + (N − df + 0.5) / (df + 0.5)) of each term; a term in no chunk thereby weighs most."""
    count = statistics.chunks
    weights = [math.log(1 + (count - df + 0.5) / (df + 0.5)) for df in statistics.document_frequencies]
    mean_length = statistics.total_tokens / count if count and statistics.total_tokens else 1.0
    return _Idf(weights, sum(weights), mean_length)


def _score_all(answers: Sequence[ScopeAnswer], idf: _Idf) -> list[_Scored]:
    slope = BM25_K1 * BM25_B / idf.mean_length
    intercept = BM25_K1 * (1 - BM25_B)
    scored = []
    for answer in answers:
        for candidate in answer.answer.candidates:
            damping = intercept + slope * candidate.length
            bm25 = matched = 0.0
            for frequency, weight in zip(candidate.term_frequencies, idf.weights, strict=True):
                if frequency:
                    bm25 += weight * frequency * (BM25_K1 + 1) / (frequency + damping)
                    matched += weight
            share = matched / idf.total if idf.total else 0.0
            scored.append(_Scored(answer.scope, candidate, candidate.cosine, bm25, share))
    return scored


def _fused(one: _Scored, dense: _Leg, bm25: _Leg, method: Method) -> float:
    if method == "rrf":
        dense_rank, bm25_rank = dense.rank(one.dense), bm25.rank(one.bm25) if one.bm25 > 0 else None
        reciprocal = sum(1 / (RRF_K + rank) for rank in (dense_rank, bm25_rank) if rank is not None)
        return round(reciprocal * (RRF_K + 1) / 2, SCORE_DIGITS)  # 1 is the best of both legs
    lexical = one.bm25 / bm25.best if bm25.best > 0 else 0.0
    semantic = (one.dense + 1) / (dense.best + 1) if one.dense is not None and dense.best > -1 else 0.0
    return round((1 - DENSE_WEIGHT) * lexical + DENSE_WEIGHT * semantic, SCORE_DIGITS)


def _in_order(union: list[_Scored], rule: FusionRule) -> Iterator[tuple[_Scored, ChunkFields]]:
    """Yield what passes the floor, best first. Chunks are decoded only as far as the caller reads on."""
    passing = [one for one in union if _passes(one, rule)]
    passing.sort(key=_score_and_scope)
    chunks_of: Counter[tuple[Scope, str]] = Counter()
    for _, group in groupby(passing, key=_score_and_scope):
        tied = [(one, _FIELDS.decode(one.candidate.chunk)) for one in group]
        tied.sort(key=lambda pair: (pair[1].doc_id, pair[1].ordinal))
        for one, fields in tied:
            document = (one.scope, fields.doc_id)
            chunks_of[document] += 1
            if chunks_of[document] <= MAX_CHUNKS_PER_DOCUMENT:
                yield one, fields


def _score_and_scope(one: _Scored) -> tuple[float, int]:
    return -one.fused, _SCOPE_ORDER[one.scope]


def _passes(one: _Scored, rule: FusionRule) -> bool:
    return _is_near(one, rule) or _is_named(one, rule)


def _is_near(one: _Scored, rule: FusionRule) -> bool:
    return one.dense is not None and (rule.dense_floor is None or one.dense >= rule.dense_floor)


def _is_named(one: _Scored, rule: FusionRule) -> bool:
    return one.bm25 > 0 and one.idf_share >= rule.term_floor


class _HitRenderer:
    """Writes what a caller sees of a candidate."""

    def __init__(self, terms: Sequence[str], dense: _Leg, bm25: _Leg, rule: FusionRule, *, explain: bool) -> None:
        self._terms = terms
        self._dense = dense
        self._bm25 = bm25
        self._rule = rule
        self._explain = explain

    def __call__(self, rank: int, one: _Scored, fields: ChunkFields) -> Hit:
        return Hit(
            rank=rank,
            doc_id=fields.doc_id,
            chunk_id=f"{fields.doc_id}#{fields.ordinal}",
            scope=one.scope,
            title=fields.title,
            uri=fields.uri,
            heading=fields.heading,
            text=fields.text,
            score=one.fused,
            scores=self._scores(one),
            match=self._match(one),
            metadata=msgspec.Raw(fields.metadata or b"{}"),
            explain=self._explanation(one) if self._explain else None,
        )

    def _scores(self, one: _Scored) -> Scores:
        return Scores(
            dense=None if one.dense is None else round(one.dense, SCORE_DIGITS),
            bm25=round(one.bm25, SCORE_DIGITS),
            dense_rank=self._dense.rank(one.dense),
            bm25_rank=self._bm25.rank(one.bm25) if one.bm25 > 0 else None,
        )

    def _match(self, one: _Scored) -> Match:
        """Return which floor the hit passed; without a dense floor nearness alone says little, so its leg decides."""
        near = _is_near(one, self._rule)
        named = _is_named(one, self._rule)
        if near and named:
            return "both"
        if near and (self._rule.dense_floor is not None or self._dense.holds(one.dense) or one.bm25 <= 0):
            return "semantic"
        return "keyword"

    def _explanation(self, one: _Scored) -> Explanation:
        matched = [term for term, count in zip(self._terms, one.candidate.term_frequencies, strict=True) if count]
        return Explanation(
            dense_floor=self._rule.dense_floor,
            term_floor=self._rule.term_floor,
            matched_terms=matched,
            matched_idf_share=round(one.idf_share, SCORE_DIGITS),
            fused=one.fused,
        )
