"""A view: what a search, a listing or a look-up sees, taken at once and never changed by later writes or flushes."""

import heapq
from typing import NamedTuple

import msgspec

from groundplane.wire.internal import ChunkFields, DocumentRow, Statistics
from groundplane_shard.documents import Document, DocumentEntry, Documents, join_chunks
from groundplane_shard.indexed import IndexedBase
from groundplane_shard.memtable import MemtableView
from groundplane_shard.search import Totals, document_frequencies
from groundplane_shard.segment import Segment, SegmentView


class View(NamedTuple):
    """The corpus at `sequence`. Holding one keeps alive what it needs, a pinned table version included.

    `document_sequence` is that of the last record that changed a document. `memtables` are oldest first.
    """

    sequence: int
    document_sequence: int
    totals: Totals
    base: Segment | IndexedBase | None
    memtables: tuple[MemtableView, ...]

    def layers(self) -> list[SegmentView | MemtableView]:
        """Return the layers in memory."""
        layers: list[SegmentView | MemtableView] = [view for view in self.memtables if view.count]
        if isinstance(self.base, Segment):
            layers.append(self.base.at(self.sequence))
        return layers

    def statistics(self, terms: tuple[str, ...]) -> Statistics:
        """Return the counts that BM25 needs, exact at this view's sequence."""
        frequencies = document_frequencies(self.layers(), terms)
        if isinstance(self.base, IndexedBase):
            base = self.base
            frequencies = [
                count + base.frequency(term, self.sequence) for count, term in zip(frequencies, terms, strict=True)
            ]
        return Statistics(*self.totals, tuple(frequencies))

    def page(self, after: str, limit: int) -> tuple[list[DocumentRow], bool]:
        """Return the first `limit` documents whose id is above `after`, by id, and whether more follow."""
        pages = [documents.page(self.sequence, after, limit + 1) for documents in self._documents()]
        entries: list[DocumentEntry] = list(heapq.merge(*pages, key=lambda entry: entry.doc_id))
        return [entry.row() for entry in entries[:limit]], len(entries) > limit

    async def document(self, doc_id: str) -> Document | None:
        """Return one document, None if there is none."""
        for layer in self.layers():
            number = layer.documents.at(doc_id, self.sequence)
            if number is not None:
                return _document_in_memory(layer, number)
        if not isinstance(self.base, IndexedBase):
            return None
        number = self.base.documents.at(doc_id, self.sequence)
        if number is None:
            return None
        return await self.base.document(number)

    def _documents(self) -> list[Documents]:
        documents = [view.documents for view in self.memtables]
        return documents if self.base is None else [*documents, self.base.documents]


def _document_in_memory(layer: SegmentView | MemtableView, number: int) -> Document:
    entry, first_row = layer.documents.entries[number], layer.documents.first_rows[number]
    rows = range(first_row, first_row + entry.chunks)
    texts = (msgspec.msgpack.decode(layer.fields(row), type=ChunkFields).text for row in rows)
    text = join_chunks((layer.start(row), text) for row, text in zip(rows, texts, strict=True))
    return Document(entry.row(), text, entry.metadata)
