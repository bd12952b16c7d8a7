"""Both legs of a search over all layers of a view: candidates, and both scores of each of them complete.

Every layer in memory gives the rows that could be among the best `window` of a leg; their scores are then computed anew in
float64 by one rule that knows nothing of layers: cosine as a sum over the stored vector, BM25 from term frequencies,
length and the view's statistics. So a flush, a compaction or a restart changes no score, not even in its last digit.
Float32 scores only choose, with a margin wider than their error, so that ties at the window's edge are never cut by it.

Scores: cosine in [-1, 1]; BM25 >= 0 with k1 1.2, b 0.75 and idf ln(1 + (N - df + 0.5) / (df + 0.5)), counted in chunks.
Source: Robertson and Zaragoza 2009, The Probabilistic Relevance Framework; the idf is that of Lucene's BM25.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from groundplane.wire.filters import Filter
from groundplane.wire.internal import Candidate, Statistics
from groundplane_shard.documents import Documents, Mask
from groundplane_shard.rows import Matrix

K1 = 1.2
B = 0.75

_COSINE_MARGIN = 2e-5  # float32 dot products of unit vectors of up to 8,192 numbers stay well within it
_BM25_MARGIN = 1e-4  # relative
_BLOCK = 64

Floats = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]


class Query(NamedTuple):
    """What is searched for: unique terms, and a float32 vector of unit length (None: the dense leg is not searched)."""

    terms: tuple[str, ...]
    vector: npt.NDArray[np.float32] | None
    window: int
    filter: Filter | None = None


class Totals(NamedTuple):
    """Counts over all layers of a view."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0


class Layer(Protocol):
    """What a layer in memory shows at one sequence: `count` rows, of which those of dead documents do not count."""

    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def sequence(self) -> int: ...  # noqa: D102
    @property
    def documents(self) -> Documents: ...  # noqa: D102
    @property
    def document_count(self) -> int: ...  # noqa: D102
    @property
    def lengths(self) -> Scores: ...  # noqa: D102
    @property
    def document_of_row(self) -> Rows: ...  # noqa: D102

    def cosines(self, query: Scores, wanted: Mask | None, /) -> Scores:
        """Return the cosine of every wanted row with the unit vector `query`, to float32 precision; anything for others."""

    def postings(self, term: str) -> tuple[Rows, npt.NDArray[np.uint16]]:
        """Return the rows that hold `term`, ascending, and how often each does."""

    def vectors(self, rows: npt.NDArray[Any]) -> Matrix:
        """Return the vectors of `rows`."""

    def matching(self, tree: Filter) -> Mask:
        """Return which documents the filter holds for."""

    def fields(self, row: int) -> msgspec.Raw:
        """Return the encoded `ChunkFields` of one row."""


class Pool(NamedTuple):
    """Candidates of one layer: all that their scores are computed from.

    keys: (doc_id, ordinal); cosines: (n,) or None; frequencies: (n, terms); lengths: (n,); fields: position → `ChunkFields`.
    """

    keys: list[tuple[str, int]]
    cosines: Floats | None
    frequencies: npt.NDArray[np.int64]
    lengths: Floats
    fields: Callable[[int], msgspec.Raw]


class IndexedLayer(NamedTuple):
    """What a base outside memory contributes: its frequency of each query term, and its candidates."""

    frequencies: Sequence[int]
    pool: Pool


class Found(NamedTuple):
    """The answer of one shard, candidates of the dense leg first, then those that only the keyword leg brought up."""

    statistics: Statistics
    candidates: list[Candidate]


class Bm25:
    """The parts of BM25 that depend on the whole view."""

    def __init__(self, statistics: Statistics) -> None:
        frequencies = np.array(statistics.document_frequencies, dtype=np.float64)
        self.idf: Floats = np.log1p((statistics.chunks - frequencies + 0.5) / (frequencies + 0.5))
        self._mean_length = max(statistics.total_tokens, 1) / max(statistics.chunks, 1)

    def norms(self, lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return k1 · (1 - b + b · length / mean length) for each length, in its type."""
        norms: npt.NDArray[Any] = lengths * lengths.dtype.type(K1 * B / self._mean_length)
        norms += lengths.dtype.type(K1 * (1 - B))
        return norms

    def scores(self, frequencies: npt.NDArray[np.int64], lengths: Floats) -> Floats:
        """Return the score of each row from its frequencies, (n, terms)."""
        norms, scores = self.norms(lengths), np.zeros(len(lengths))
        for position, idf in enumerate(self.idf.tolist()):
            frequency = frequencies[:, position]
            scores += idf * (K1 + 1) * frequency / (frequency + norms)
        return scores


def search(layers: Sequence[Layer], query: Query, totals: Totals, indexed: IndexedLayer | None = None) -> Found:
    """Return statistics and candidates of a view: the best `window` of each leg over all layers, both scores complete.

    Order: the dense leg by cosine, then the rest of the keyword leg by BM25; equal scores by doc_id and ordinal.
    """
    opened = [_OpenLayer(layer, query) for layer in layers]
    counts = [layer.frequencies for layer in opened] + ([indexed.frequencies] if indexed else [])
    frequencies = tuple(sum(column) for column in zip(*counts, strict=True)) or (0,) * len(query.terms)
    statistics = Statistics(totals.documents, totals.chunks, totals.tokens, frequencies)
    bm25 = Bm25(statistics)
    pools = [layer.pool(query, bm25) for layer in opened] + ([indexed.pool] if indexed else [])
    pools = [pool for pool in pools if pool.keys]
    return Found(statistics, _best_of_both_legs(pools, query, bm25) if pools else [])


def document_frequencies(layers: Sequence[Layer], terms: tuple[str, ...]) -> list[int]:
    """Return in how many chunks visible in `layers` each term occurs."""
    opened = [_OpenLayer(layer, Query(terms, None, 1)) for layer in layers]
    return [sum(layer.frequencies[position] for layer in opened) for position in range(len(terms))]


def complete_cosines(vectors: Matrix, query: npt.NDArray[np.float32]) -> Floats:
    """Return the cosine of each unit row with the unit vector `query`; a row's is the same among whatever others it stands."""
    products = vectors.astype(np.float64) * query.astype(np.float64)
    cosines: Floats = np.clip(products.sum(axis=1), -1.0, 1.0)
    return cosines


class _OpenLayer:
    """One layer during one search: its visible rows, and the postings of the query's terms, those of dead rows included."""

    def __init__(self, layer: Layer, query: Query) -> None:
        self._layer = layer
        self._documents = layer.documents.alive(layer.sequence, layer.document_count)
        self._visible = None if self._documents is None else self._documents[layer.document_of_row]
        self._postings = [layer.postings(term) for term in query.terms]
        self.frequencies = [self._count_visible(rows) for rows, _ in self._postings]

    def _count_visible(self, rows: Rows) -> int:
        return len(rows) if self._visible is None or not len(rows) else int(np.count_nonzero(self._visible[rows]))

    def pool(self, query: Query, bm25: Bm25) -> Pool:
        """Return every row that may be among the best `window` of a leg."""
        layer, allowed = self._layer, self._allowed(query.filter)
        chosen = self._keyword_rows(query, bm25, allowed)
        if query.vector is not None:
            nearest = _best(_masked(layer.cosines(query.vector, allowed), allowed), query.window, _below_cosine)
            chosen = np.union1d(chosen, nearest)
        rows: Rows = chosen.astype(np.int32)
        picked = rows.tolist()
        return Pool(
            keys=self._keys(picked),
            cosines=None if query.vector is None else complete_cosines(layer.vectors(rows), query.vector),
            frequencies=self._frequencies_of(rows),
            lengths=layer.lengths[rows].astype(np.float64),
            fields=lambda position: layer.fields(picked[position]),
        )

    def _allowed(self, tree: Filter | None) -> Mask | None:
        if tree is None:
            return self._visible
        matching = self._layer.matching(tree)
        if self._documents is not None:
            matching = matching & self._documents
        allowed: Mask = matching[self._layer.document_of_row]
        return allowed

    def _keyword_rows(self, query: Query, bm25: Bm25, allowed: Mask | None) -> npt.NDArray[np.int64]:
        layer = self._layer
        scores, norms = np.zeros(layer.count, dtype=np.float32), bm25.norms(layer.lengths)
        for (rows, frequencies), idf in zip(self._postings, bm25.idf.tolist(), strict=True):
            if not len(rows):
                continue
            weights = frequencies.astype(np.float32)
            weights /= weights + norms[rows]
            weights *= np.float32(idf * (K1 + 1))
            scores[rows] += weights
        if allowed is not None:
            scores *= allowed
        return _best(scores, query.window, _below_bm25)

    def _frequencies_of(self, rows: Rows) -> npt.NDArray[np.int64]:
        table = np.zeros((len(rows), len(self._postings)), dtype=np.int64)
        for position, (holders, frequencies) in enumerate(self._postings):
            if len(holders):
                places = np.minimum(np.searchsorted(holders, rows), len(holders) - 1)
                table[:, position] = np.where(holders[places] == rows, frequencies[places], 0)
        return table

    def _keys(self, rows: list[int]) -> list[tuple[str, int]]:
        documents = self._layer.documents
        numbers = self._layer.document_of_row[rows].tolist()
        return [
            (documents.entries[number].doc_id, row - documents.first_rows[number])
            for row, number in zip(rows, numbers, strict=True)
        ]


def _best_of_both_legs(pools: Sequence[Pool], query: Query, bm25: Bm25) -> list[Candidate]:
    keys = [key for pool in pools for key in pool.keys]
    fields = [(pool, position) for pool in pools for position in range(len(pool.keys))]
    frequencies = np.concatenate([pool.frequencies for pool in pools])
    lengths = np.concatenate([pool.lengths for pool in pools])
    keyword_scores = bm25.scores(frequencies, lengths).tolist()
    order = [place for place in _order(keyword_scores, keys)[: query.window] if keyword_scores[place] > 0]
    cosines: list[float | None] = [None] * len(keys)
    if query.vector is not None:
        dense_scores = np.concatenate([pool.cosines for pool in pools if pool.cosines is not None]).tolist()
        order = list(dict.fromkeys([*_order(dense_scores, keys)[: query.window], *order]))
        cosines = dense_scores
    counts, sizes = frequencies.tolist(), lengths.astype(np.int64).tolist()
    return [
        Candidate(cosines[place], tuple(counts[place]), sizes[place], fields[place][0].fields(fields[place][1]))
        for place in order
    ]


def _order(scores: list[float], keys: list[tuple[str, int]]) -> list[int]:
    """Return positions by score, best first, equal ones by key."""
    return [place for _, _, place in sorted(zip([-score for score in scores], keys, range(len(keys)), strict=True))]


def _best(scores: Scores, window: int, margin: Callable[[float], float]) -> npt.NDArray[np.int64]:
    """Return the rows whose score reaches the `window`-th best, less a margin; rows of score -inf or 0 by margin never."""
    threshold = margin(_nth_best(scores, window) if len(scores) > window else -np.inf)
    return np.flatnonzero(scores >= np.float32(threshold))


def _nth_best(scores: Scores, rank: int) -> float:
    """Return the `rank`-th largest score. There are more than `rank`.

    When there are many blocks, the `rank`-th best of the blocks' maxima bounds it from below: only what reaches that
    needs to be partitioned.
    """
    blocks = len(scores) // _BLOCK
    if blocks > 2 * rank:
        maxima = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        scores = scores[scores >= np.partition(maxima, blocks - rank)[blocks - rank]]
    return float(np.partition(scores, len(scores) - rank)[len(scores) - rank])


def _masked(scores: Scores, allowed: Mask | None) -> Scores:
    return scores if allowed is None else np.where(allowed, scores, np.float32(-np.inf))


def _below_cosine(score: float) -> float:
    return max(score - _COSINE_MARGIN, -2.0)


def _below_bm25(score: float) -> float:
    return max(score * (1 - _BM25_MARGIN), float(np.finfo(np.float32).tiny))
