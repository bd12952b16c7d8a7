"""A slow, obvious model of a corpus, and documents for it: what the tests of the shard's state compare with."""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from groundplane.analysis import Analyser
from groundplane.wire.filters import Eq, Filter, Gt, Ne, Not, Or, Prefix
from groundplane.wire.internal import ChunkFields, ChunkInput, DocumentRow, ReplaceDocument, SearchRequest, Statistics
from groundplane_shard.corpus import Corpus
from groundplane_shard.predicate import DocumentFields, compile_predicate
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredOperation, prepare, unit_vectors
from groundplane_shard.search import Found
from groundplane_shard.view import View

ANALYSER = Analyser()
DIMENSION = 3
EMBEDDING = "0" * 32
COMPLETE_WINDOW = 1_000

WORDS = ("pump", "valve", "leak", "torque", "café", "東京")
DOC_IDS = ("a", "b", "c", "d'", "é", "Z")

BOTH_ENGINES = pytest.mark.parametrize(
    "exact_bytes", [pytest.param(1 << 30, id="exact"), pytest.param(0, id="indexed")]
)

Operations = Sequence[StoredOperation]
Scored = tuple[float | None, tuple[int, ...], int, ChunkFields]


def vector_bytes(*numbers: float) -> bytes:
    """Return numbers as they travel."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def replace(doc_id: str, texts: Sequence[str], vectors: Sequence[Sequence[float]], **columns) -> ReplaceDocument:
    """Return a document whose chunks are `texts`, each overlapping the next by nothing."""
    bounds = [0, *np.cumsum([len(text) for text in texts]).tolist()]
    chunks = tuple(
        ChunkInput(start, end, columns.get("heading"), vector_bytes(*vector))
        for start, end, vector in zip(bounds, bounds[1:], vectors, strict=False)
    )
    return ReplaceDocument(
        doc_id=doc_id,
        text="".join(texts),
        title=columns.get("title"),
        uri=columns.get("uri"),
        metadata=msgspec.json.encode(columns.get("metadata", {})),
        chunker=columns.get("chunker", "test"),
        chunks=chunks,
    )


def stored(doc_id: str, texts: Sequence[str] = ("pump",), vectors=((1.0, 0.0, 0.0),), **columns) -> StoredDocument:
    """Return a prepared document; one vector stands for all chunks."""
    vectors = list(vectors) * len(texts) if len(vectors) == 1 else vectors
    return prepare(replace(doc_id, texts, vectors, **columns), ANALYSER, len(vectors[0]), EMBEDDING)


def request(*terms: str, vector=None, window: int = COMPLETE_WINDOW, tree: Filter | None = None) -> SearchRequest:
    """Return a search for analysed `terms`."""
    return SearchRequest(
        incarnation="",
        analyser=ANALYSER.id,
        terms=terms,
        window=window,
        vector=None if vector is None else vector_bytes(*vector),
        filter=tree,
    )


PROBES = [request("pump", "leak", vector=(1, 0.5, 0)), request("valv")]


# Few distinct numbers, so that equal vectors and equal scores come up often.
directions = st.sampled_from([(1, 0, 0), (0, 1, 0), (-1, 0, 0), (1, 1, 0), (1, 2, 3), (0.5, -0.25, 1), (3, 1e-3, 2)])
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
metadata = st.fixed_dictionaries(
    {},
    optional={"n": st.sampled_from([1, 2.5, "1", True, None, [1]]), "tag": st.sampled_from(["x", "y", "it's", "ü"])},
)


@st.composite
def documents(draw, doc_ids=DOC_IDS) -> StoredDocument:
    """Generate one prepared document of one to three chunks."""
    parts = draw(st.lists(texts, min_size=1, max_size=3))
    vectors = draw(st.lists(directions, min_size=len(parts), max_size=len(parts)))
    return stored(
        draw(st.sampled_from(doc_ids)),
        parts,
        vectors,
        title=draw(st.sampled_from([None, "Pump", "x"])),
        heading=draw(st.sampled_from([None, "Leak"])),
        metadata=draw(metadata),
    )


deletes = st.sampled_from([*DOC_IDS, "never"]).map(StoredDelete)
batches = st.lists(st.one_of(documents(), documents(), deletes), max_size=4)
filters = st.sampled_from(
    [
        None,
        Eq(key="n", value=1),
        Ne(key="tag", value="x"),
        Gt(key="n", value=2),
        Gt(key="tag", value="it"),
        Gt(key="n", value=float("-inf")),
        Prefix(key="tag", value="it'"),
        Or(filters=(Eq(key="doc_id", value="d'"), Not(filter=Prefix(key="title", value="P")))),
    ]
)
queries = st.builds(
    lambda terms, vector, tree: request(*terms, vector=vector, tree=tree),
    st.lists(st.sampled_from(["pump", "valv", "leak", "cafe", "東京", "absent"]), unique=True, max_size=4),
    st.one_of(st.none(), directions),
    filters,
)


class Model:
    """Documents by id, and a search that looks at every chunk."""

    def __init__(self) -> None:
        self.sequence = 0
        self.document_sequence = 0
        self.documents: dict[str, tuple[StoredDocument, int]] = {}

    def apply(self, sequence: int, operations: Operations) -> None:
        """Apply one record."""
        self.sequence = sequence
        for operation in operations:
            if isinstance(operation, StoredDocument):
                self.documents[operation.doc_id] = operation, sequence
                self.document_sequence = sequence
            elif isinstance(operation, StoredDelete) and operation.doc_id in self.documents:
                del self.documents[operation.doc_id]
                self.document_sequence = sequence

    def statistics(self, terms: Sequence[str]) -> Statistics:
        """Count everything anew."""
        chunks = [chunk for document, _ in self.documents.values() for chunk in document.chunks]
        frequencies = tuple(sum(term in chunk.terms.split() for chunk in chunks) for term in terms)
        return Statistics(len(self.documents), len(chunks), sum(chunk.length for chunk in chunks), frequencies)

    def search(self, asked: SearchRequest) -> list[Scored]:
        """Return every candidate of both legs, cut to the window, in the order of the shard's answer."""
        predicate = compile_predicate(asked.filter) if asked.filter else lambda _: True
        scored = [
            self._score(asked, document, ordinal)
            for document, _ in self.documents.values()
            if predicate(_filter_fields(document))
            for ordinal in range(len(document.chunks))
        ]
        statistics = self.statistics(asked.terms)
        dense = sorted(scored, key=lambda each: (-(each[0] or 0.0), each[3].doc_id, each[3].ordinal))
        keyword = sorted(scored, key=lambda each: (-bm25(each, statistics), each[3].doc_id, each[3].ordinal))
        keyword = [each for each in keyword[: asked.window] if bm25(each, statistics) > 0]
        both = [*(dense[: asked.window] if asked.vector is not None else []), *keyword]
        return list({(each[3].doc_id, each[3].ordinal): each for each in both}.values())

    def page(self) -> list[DocumentRow]:
        """Return all documents by id."""
        rows = [
            DocumentRow(each.doc_id, each.title, each.uri, len(each.chunks), sequence)
            for each, sequence in self.documents.values()
        ]
        return sorted(rows, key=lambda row: row.doc_id)

    def _score(self, asked: SearchRequest, document: StoredDocument, ordinal: int) -> Scored:
        chunk, cosine = document.chunks[ordinal], None
        if asked.vector is not None:
            query = unit_vectors([asked.vector], DIMENSION)[0]
            products = document.vectors[ordinal].astype(np.float64) * query.astype(np.float64)
            cosine = min(1.0, max(-1.0, float(products.sum())))
        counts = Counter(chunk.terms.split())
        fields = ChunkFields(
            document.doc_id, ordinal, chunk.text, document.title, document.uri, chunk.heading, document.metadata
        )
        return cosine, tuple(counts[term] for term in asked.terms), chunk.length, fields


def bm25(scored: Scored, statistics: Statistics) -> float:
    """Return the score of one candidate by the textbook, in the order of operations that the shard uses.

    Otherwise scores that are equal on paper could differ in their last digit, and with it the order of the two.
    """
    score = 0.0
    mean = statistics.total_tokens / statistics.chunks
    norm = scored[2] * (1.2 * 0.75 / mean) + 1.2 * 0.25
    for count, frequency in zip(scored[1], statistics.document_frequencies, strict=True):
        idf = float(np.log1p((statistics.chunks - frequency + 0.5) / (frequency + 0.5)))
        score += idf * 2.2 * count / (count + norm)
    return score


def _filter_fields(document: StoredDocument) -> DocumentFields:
    return DocumentFields(document.doc_id, document.title, document.uri, msgspec.json.decode(document.metadata))


def decoded(found: Found) -> list[Scored]:
    """Return candidates with their fields decoded."""
    return [
        (each.cosine, each.term_frequencies, each.length, msgspec.msgpack.decode(each.chunk, type=ChunkFields))
        for each in found.candidates
    ]


async def everything(corpus: Corpus, view: View, asked: Sequence[SearchRequest]) -> object:
    """Return all that can be seen of `view`, to be compared with what is seen later or elsewhere."""
    rows, _ = corpus.documents(view, "", 100)
    texts = [await corpus.document(view, row.doc_id) for row in rows]
    found = [await corpus.search(view, each) for each in asked]
    return view.document_sequence, rows, texts, [(each.statistics, decoded(each)) for each in found]


async def write(corpus: Corpus, *operations: StoredOperation) -> int:
    """Apply one record after the last, and return its sequence."""
    sequence = corpus.view().sequence + 1
    await corpus.apply(sequence, operations)
    return sequence


async def flushed(directory: Path, *operations: StoredOperation, exact_bytes: int = 1 << 30) -> Corpus:
    """Return a corpus whose base holds `operations`."""
    corpus = await Corpus.open(directory, exact_bytes=exact_bytes)
    await write(corpus, *operations)
    await corpus.flush()
    return corpus


async def found_ids(corpus: Corpus, *terms: str) -> list[str]:
    """Return the documents that a search for `terms` finds, by id."""
    found = await corpus.search(corpus.view(), request(*terms))
    return sorted({each[3].doc_id for each in decoded(found)})


async def stepwise(coroutine: Coroutine[Any, Any, Any], check: Callable[[], Awaitable[None]]) -> tuple[Any, int]:
    """Run `coroutine`, with `check` run to its end wherever it waits; return its result and how often it waited."""
    waits = 0
    while True:
        try:
            future = coroutine.send(None)
        except StopIteration as done:
            return done.value, waits
        waits += 1
        await check()
        if future is None:
            await asyncio.sleep(0)
        else:
            future._asyncio_future_blocking = False
            await asyncio.wait([future])
