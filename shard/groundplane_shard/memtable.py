"""The rows written since the last flush, in memory: vectors, postings, texts, and what they supersede.

It only grows. A chunk's postings are appended to one array a term, as `row << 16 | frequency` in 64 bits, so that
adding costs time linear in the chunk's words, and a flush merges the arrays as they are. Rows beyond those of a view, and
deaths beyond its sequence, are invisible to it: a batch that is half applied shows nothing.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from groundplane.wire.filters import Filter
from groundplane.wire.internal import ChunkFields
from groundplane_shard.documents import DocumentEntry, Documents, Growing, Mask
from groundplane_shard.rows import Matrix, StoredChunk, StoredDocument, StoredMemo

ROW_SHIFT = 16
FREQUENCY_MASK = (1 << ROW_SHIFT) - 1

_BLOCK_ROWS = 1_024
_CHUNK_OVERHEAD_BYTES = 300
_TERM_OVERHEAD_BYTES = 200
_POSTING_BYTES = 8

_TERMS_JOINED_AT_ONCE = 64

_NO_POSTINGS = np.empty(0, dtype=np.uint64)
_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_FREQUENCIES = np.empty(0, dtype=np.uint16)

_encode = msgspec.msgpack.Encoder().encode


class Memtable:
    """Documents and memos since one flush, and until the next. Written by the event loop alone.

    `superseded`: documents written or removed here, with the first record that did. `document_sequence`: the last one.
    """

    def __init__(self) -> None:
        self.documents = Documents()
        self.chunks: list[StoredChunk] = []
        self.postings: defaultdict[str, array[int]] = defaultdict(_no_postings)
        self.superseded: dict[str, int] = {}
        self.memos: dict[tuple[str, str], tuple[int, StoredMemo | None]] = {}
        self.document_sequence = 0
        self.size_bytes = 0
        self.vector_blocks: list[Matrix] = []
        self.lengths = Growing(np.float32)
        self.document_of_row = Growing(np.int32)
        self._vector_count = 0
        self._foreseen: tuple[StoredDocument, list[Counter[str]]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether a flush of this memtable would change nothing."""
        return not self.superseded and not self.memos

    def supersede(self, doc_id: str, sequence: int) -> None:
        """Record that from `sequence` on no older layer's version of `doc_id` counts."""
        self.document_sequence = sequence
        if doc_id not in self.superseded:
            self.superseded[doc_id] = sequence
            self.size_bytes += _CHUNK_OVERHEAD_BYTES + len(doc_id)

    def put_memo(self, key: tuple[str, str], sequence: int, memo: StoredMemo | None) -> None:
        """Store `memo` under (name, fingerprint), or its removal."""
        self.memos[key] = sequence, memo
        self.size_bytes += _CHUNK_OVERHEAD_BYTES + (len(memo.response) if memo else 0)

    def foresee(self, document: StoredDocument) -> None:
        """Count the terms of a document that will probably be appended next, while its record is on the way to the store."""
        if self._foreseen is None or self._foreseen[0] is not document:
            self._foreseen = document, [Counter(chunk.terms.split()) for chunk in document.chunks]

    def append(self, document: StoredDocument, sequence: int) -> Iterator[int]:
        """Add `document` chunk by chunk, yielding the number of terms after each (120 terms take about 35 µs)."""
        first_row = len(self.chunks)
        number = self.documents.add(entry_of(document, sequence), first_row)
        self._append_vectors(document.vectors)
        self.size_bytes += len(document.metadata) + document.vectors.nbytes
        foreseen, self._foreseen = self._foreseen, None
        counted = foreseen[1] if foreseen is not None and foreseen[0] is document else None
        for ordinal, chunk in enumerate(document.chunks):
            self.lengths.append(chunk.length)
            self.document_of_row.append(number)
            frequencies = Counter(chunk.terms.split()) if counted is None else counted[ordinal]
            self._append_chunk(first_row + ordinal, chunk, frequencies)
            yield chunk.length

    def at(self, sequence: int) -> "MemtableView":
        """Return what a search at `sequence`, the newest that is wholly applied, sees of this memtable."""
        return MemtableView(self, sequence)

    def vectors(self, rows: npt.NDArray[Any]) -> Matrix:
        """Return the vectors of `rows`, (len(rows), dimension); the memtable is not empty."""
        result: Matrix = np.empty((len(rows), self.vector_blocks[0].shape[1]), dtype=np.float32)
        blocks, offsets = np.divmod(rows, _BLOCK_ROWS)
        for block in np.unique(blocks).tolist():
            inside = blocks == block
            result[inside] = self.vector_blocks[block][offsets[inside]]
        return result

    def living_rows(self, sequence: int) -> npt.NDArray[np.int64]:
        """Return the rows of all documents that nothing had superseded at `sequence`."""
        alive = self.documents.alive(sequence, len(self.documents.entries))
        if alive is None:
            return np.arange(len(self.chunks))
        return np.flatnonzero(alive[self.document_of_row.values])

    def packed_postings(self) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return all terms, how many postings each has, and the postings in this order. Only for a frozen memtable."""
        postings = list(self.postings.values())
        sizes = np.array([len(posting) for posting in postings], dtype=np.int64)
        # Joining holds the interpreter's lock, some 20 ms for a whole memtable: hence in pieces.
        starts = range(0, len(postings), _TERMS_JOINED_AT_ONCE)
        pieces = [b"".join(postings[start : start + _TERMS_JOINED_AT_ONCE]) for start in starts]
        packed = np.concatenate([_NO_POSTINGS, *(np.frombuffer(piece, dtype=np.uint64) for piece in pieces)])
        return list(self.postings), sizes, packed

    def document_frequencies(self, sequence: int) -> dict[str, int]:
        """Return in how many chunks alive at `sequence` each term occurs. Only for a frozen memtable."""
        terms, sizes, packed = self.packed_postings()
        alive = np.zeros(len(self.chunks), dtype=np.bool_)
        alive[self.living_rows(sequence)] = True
        starts = np.cumsum(sizes) - sizes
        counts = np.add.reduceat(alive[(packed >> ROW_SHIFT).astype(np.int64)], starts, dtype=np.int64).tolist()
        return {term: count for term, count in zip(terms, counts, strict=True) if count}

    def fields(self, row: int) -> msgspec.Raw:
        """Return the encoded `ChunkFields` of one row."""
        number = int(self.document_of_row.values[row])
        return encode_fields(self.documents.entries[number], row - self.documents.first_rows[number], self.chunks[row])

    def _append_chunk(self, row: int, chunk: StoredChunk, frequencies: Counter[str]) -> None:
        self.chunks.append(chunk)
        postings, shifted = self.postings, row << ROW_SHIFT
        known = len(postings)
        for term, frequency in frequencies.items():
            postings[term].append(shifted | frequency)
        self.size_bytes += (
            len(chunk.text)
            + len(chunk.terms)
            + _POSTING_BYTES * len(frequencies)
            + _TERM_OVERHEAD_BYTES * (len(postings) - known)
            + _CHUNK_OVERHEAD_BYTES
        )

    def _append_vectors(self, vectors: Matrix) -> None:
        taken = 0
        while taken < len(vectors):
            offset = self._vector_count % _BLOCK_ROWS
            if offset == 0:
                self.vector_blocks.append(np.empty((_BLOCK_ROWS, vectors.shape[1]), dtype=np.float32))
            part = vectors[taken : taken + _BLOCK_ROWS - offset]
            self.vector_blocks[-1][offset : offset + len(part)] = part
            self._vector_count += len(part)
            taken += len(part)


class MemtableView:
    """A memtable's first `count` rows as they were at `sequence`. A layer of a search."""

    def __init__(self, memtable: Memtable, sequence: int) -> None:
        self.memtable = memtable
        self.sequence = sequence
        self.documents = memtable.documents
        self.count = len(memtable.chunks)
        self.document_count = len(memtable.documents.entries)
        self.lengths: npt.NDArray[np.float32] = memtable.lengths.values
        self.document_of_row: npt.NDArray[np.int32] = memtable.document_of_row.values

    def cosines(self, query: npt.NDArray[np.float32], wanted: Mask | None) -> npt.NDArray[np.float32]:
        """Return the cosine of every wanted row with the unit vector `query`, to float32 precision; anything for others.

        Blocks without any wanted row are passed over: documents that change all the time leave only dead rows behind.
        """
        result = np.empty(self.count, dtype=np.float32)
        for start in range(0, self.count, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, self.count)
            if wanted is not None and not wanted[start:stop].any():
                continue
            np.dot(self.memtable.vector_blocks[start // _BLOCK_ROWS][: stop - start], query, out=result[start:stop])
        return result

    def postings(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16]]:
        """Return the rows that hold `term`, ascending, and how often each does."""
        posting = self.memtable.postings.get(term)
        if posting is None:
            return _NO_ROWS, _NO_FREQUENCIES
        # tobytes copies under the interpreter's lock: an exported buffer would make the event loop's append fail.
        packed = np.frombuffer(posting.tobytes(), dtype=np.uint64)
        packed = packed[: np.searchsorted(packed, np.uint64(self.count << ROW_SHIFT))]
        return (packed >> ROW_SHIFT).astype(np.int32), (packed & FREQUENCY_MASK).astype(np.uint16)

    def vectors(self, rows: npt.NDArray[Any]) -> Matrix:
        """Return the vectors of `rows`, (len(rows), dimension)."""
        return self.memtable.vectors(rows)

    def documents_to_examine(self, _tree: Filter) -> int:
        """Return how many documents `matching` would have to look at."""
        return self.document_count

    def start(self, row: int) -> int:
        """Return the offset of the row's text in its document."""
        return self.memtable.chunks[row].start

    def matching(self, tree: Filter) -> Mask:
        """Return which documents the filter `tree` holds for."""
        return self.documents.matching(tree, self.document_count)

    def fields(self, row: int) -> msgspec.Raw:
        """Return the encoded `ChunkFields` of one row."""
        return self.memtable.fields(row)


def _no_postings() -> "array[int]":
    return array("Q")


def entry_of(document: StoredDocument, sequence: int) -> DocumentEntry:
    """Return what a layer keeps of `document`, written by record `sequence`."""
    return DocumentEntry(
        doc_id=document.doc_id,
        title=document.title,
        uri=document.uri,
        metadata=document.metadata,
        chunker=document.chunker,
        content_hash=document.content_hash,
        chunks=len(document.chunks),
        tokens=sum(chunk.length for chunk in document.chunks),
        sequence=sequence,
    )


def encode_fields(entry: DocumentEntry, ordinal: int, chunk: StoredChunk) -> msgspec.Raw:
    """Return the `ChunkFields` of one chunk as they travel."""
    fields = ChunkFields(
        doc_id=entry.doc_id,
        ordinal=ordinal,
        text=chunk.text,
        title=entry.title,
        uri=entry.uri,
        heading=chunk.heading,
        metadata=entry.metadata,
    )
    return msgspec.Raw(_encode(fields))
