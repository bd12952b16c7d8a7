"""The base of the indexed engine: LanceDB finds candidates, everything that ranks them is exact.

Nothing of a chunk is held in memory: only the table of documents (to know who is alive), and the frequency of each term.
When a document of the base is superseded, its old terms are looked up once, before the operation is applied
(`prefetch`), and counted as departures, each with its sequence: so frequencies are exact for every view.
"""

import asyncio
import weakref
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from groundplane.wire.internal import ChunkFields
from groundplane_shard.documents import Document, DocumentEntry, Documents, join_chunks
from groundplane_shard.memtable import Memtable
from groundplane_shard.payload import plain_values, vector_matrix
from groundplane_shard.predicate import DocumentFields, Predicate, compile_predicate, to_sql
from groundplane_shard.rows import Matrix, canonical_json
from groundplane_shard.search import IndexedLayer, Pool, Query, complete_cosines
from groundplane_shard.table import Pin

_DEEPER = 4
_KEYWORD_MARGIN = (
    2  # LanceDB rounds the lengths in its BM25: one of 50 exact best 20 ranks below 20 there, none below 30
)

_encode = msgspec.msgpack.Encoder().encode


class IndexedBase:
    """A pinned version of the table and what is known of it. The pin is released with the last view that uses it."""

    def __init__(self, pin: Pin, documents: Documents, frequencies: dict[str, int]) -> None:
        self.documents = documents
        self.frequencies = frequencies
        self._pin = pin
        self._departures: defaultdict[str, list[int]] = defaultdict(list)
        self._fetched: dict[str, list[str]] = {}
        self._dead_chunks = 0
        release = weakref.finalize(self, _release, pin, asyncio.get_running_loop())
        release.atexit = False

    async def prefetch(self, doc_ids: Collection[str]) -> None:
        """Look up the terms of those of `doc_ids` that are alive here; what was looked up is not fetched again."""
        wanted = {name for name in doc_ids if name not in self._fetched and self.documents.living(name) is not None}
        if not wanted:
            return
        rows = await self._pin.rows_of(wanted, ["doc_id", "terms"])
        found: dict[str, list[str]] = {name: [] for name in wanted}
        for doc_id, terms in zip(rows.column("doc_id").to_pylist(), rows.column("terms").to_pylist(), strict=True):
            found[doc_id].append(terms)
        self._fetched.update(found)

    def bury(self, number: int, sequence: int) -> Iterator[int]:
        """Record in steps that record `sequence` superseded a document, whose terms were fetched before."""
        entry = self.documents.entries[number]
        self.documents.bury(number, sequence)
        self._dead_chunks += entry.chunks
        for terms in self._fetched.pop(entry.doc_id):
            words = terms.split()
            for term in set(words):
                self._departures[term].append(sequence)
            yield len(words)

    def frequency(self, term: str, sequence: int) -> int:
        """Return in how many chunks alive at `sequence` the term occurs."""
        return self.frequencies.get(term, 0) - bisect_right(self._departures.get(term, ()), sequence)

    def frequencies_at(self, sequence: int) -> dict[str, int]:
        """Return the frequencies of all terms at `sequence`. May run in a thread while documents depart."""
        frequencies = dict(self.frequencies)
        for term, departures in list(self._departures.items()):
            frequencies[term] -= bisect_right(departures, sequence)
        return frequencies

    async def layer(self, query: Query, sequence: int) -> IndexedLayer:
        """Return the frequencies of the query's terms, and the best candidates that LanceDB finds for both legs."""
        where = to_sql(query.filter).text if query.filter is not None else None
        pin, vector, legs = self._pin, query.vector, []
        if vector is not None:
            legs.append(self._living(lambda limit: pin.dense(vector, limit, where), query, sequence))
        if query.terms:
            margin = query.window // _KEYWORD_MARGIN
            legs.append(self._living(lambda limit: pin.keywords(query.terms, limit + margin, where), query, sequence))
        found = await asyncio.gather(*legs)
        rows = {row.key: row for leg in found for row in leg}
        return IndexedLayer([self.frequency(term, sequence) for term in query.terms], _pool(list(rows.values()), query))

    async def document(self, number: int) -> Document:
        """Return one document of the base, read from the table."""
        entry = self.documents.entries[number]
        rows = (await self._pin.rows_of([entry.doc_id], ["ordinal", "start", "text", "metadata"])).sort_by("ordinal")
        starts, texts = rows.column("start").to_pylist(), rows.column("text").to_pylist()
        metadata = canonical_json(plain_values(rows.column("metadata"))[0])
        return Document(entry.row(), join_chunks(zip(starts, texts, strict=True)), metadata)

    async def _living(self, fetch: Callable[[int], Awaitable[pa.Table]], query: Query, sequence: int) -> list["_Row"]:
        """Return at least `query.window` rows that count, fewer only where the table has no more."""
        passes: Predicate | None = compile_predicate(query.filter) if query.filter is not None else None
        limit = query.window + min(self._dead_chunks, query.window)
        while True:
            table = await fetch(limit)
            rows = [row for row in self._read(table, sequence) if passes is None or passes(row.filter_fields())]
            if len(rows) >= query.window or table.num_rows < limit:
                return rows
            limit *= _DEEPER

    def _read(self, table: pa.Table, sequence: int) -> Iterator["_Row"]:
        """Yield the rows whose document is alive at `sequence`."""
        documents = self.documents
        for batch in table.to_batches():
            rows = zip(
                *(batch.column(name).to_pylist() for name in ("id", "heading", "text", "terms")),
                plain_values(batch.column("metadata")),
                vector_matrix(batch.column("vector")),
                strict=True,
            )
            for chunk_id, heading, text, terms, metadata, vector in rows:
                doc_id, _, ordinal = chunk_id.rpartition("#")
                number = documents.at(doc_id, sequence)
                if number is not None:
                    yield _Row(documents.entries[number], int(ordinal), heading, text, terms, metadata, vector)


def indexed_frequencies(old: IndexedBase, frozen: Memtable, sequence: int) -> dict[str, int]:
    """Return the frequencies of what `old` and `frozen` show at `sequence`, the last record that `frozen` holds."""
    frequencies = Counter(old.frequencies_at(sequence))
    frequencies.update(frozen.document_frequencies(sequence))
    return {term: count for term, count in frequencies.items() if count}


def indexed_documents(entries: list[DocumentEntry], sorted_ids: list[str]) -> Documents:
    """Return the documents of a base from their entries and ids in order, without what only the exact engine needs."""
    lean = [msgspec.structs.replace(entry, metadata=b"") if entry.metadata else entry for entry in entries]
    return Documents.fixed(lean, [0] * len(lean), sorted_ids)


class _Row(NamedTuple):
    """One chunk as LanceDB returned it; `metadata` is JSON in LanceDB's spelling."""

    entry: DocumentEntry
    ordinal: int
    heading: str | None
    text: str
    terms: str
    metadata: str
    vector: Matrix

    @property
    def key(self) -> tuple[str, int]:
        return self.entry.doc_id, self.ordinal

    def filter_fields(self) -> DocumentFields:
        return DocumentFields(self.entry.doc_id, self.entry.title, self.entry.uri, msgspec.json.decode(self.metadata))

    def fields(self) -> msgspec.Raw:
        entry, metadata = self.entry, canonical_json(self.metadata)
        fields = ChunkFields(entry.doc_id, self.ordinal, self.text, entry.title, entry.uri, self.heading, metadata)
        return msgspec.Raw(_encode(fields))


def _pool(rows: list[_Row], query: Query) -> Pool:
    words = [row.terms.split() for row in rows]
    frequencies = [_frequencies(*each, query.terms) for each in zip(rows, words, strict=True)]
    cosines = None
    if query.vector is not None and rows:
        cosines = complete_cosines(np.stack([row.vector for row in rows]), query.vector)
    return Pool(
        keys=[row.key for row in rows],
        cosines=cosines,
        frequencies=np.array(frequencies, dtype=np.int64).reshape(len(rows), len(query.terms)),
        lengths=np.array([len(each) for each in words], dtype=np.float64),
        fields=lambda position: rows[position].fields(),
    )


def _frequencies(row: _Row, words: list[str], wanted: Sequence[str]) -> list[int]:
    """Return how often each of `wanted` occurs among a row's `words`; most do not occur even as a part of one."""
    return [words.count(term) if term in row.terms else 0 for term in wanted]


def _release(pin: Pin, loop: asyncio.AbstractEventLoop) -> None:
    """Release `pin` in its event loop: the last view may have gone in a worker thread."""
    if loop.is_closed():
        pin.release()
    else:
        loop.call_soon_threadsafe(pin.release)
