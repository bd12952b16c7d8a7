"""The base of the exact engine: every chunk of the table in memory, in arrays that never change after they are built.

Vectors are one matrix; postings are three arrays in term order with offsets (rows, frequencies); what a hit shows of a
chunk is encoded once. Only deaths of documents are written later (see `documents`). Building takes about 0.2 s for
10,000 chunks of 120 words, merging a quarter of that: both are synchronous and meant for a worker thread.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groundplane.wire.filters import Filter
from groundplane.wire.internal import ChunkFields
from groundplane_shard.documents import DocumentEntry, Documents, Mask, merged_ids
from groundplane_shard.memtable import FREQUENCY_MASK, ROW_SHIFT, Memtable
from groundplane_shard.payload import plain_values, vector_matrix
from groundplane_shard.rows import Matrix, canonical_json

TERM_SHIFT = 40
MAX_ROWS = 1 << (TERM_SHIFT - ROW_SHIFT)
SEGMENT_COLUMNS = (
    "doc_id",
    "ordinal",
    "start",
    "heading",
    "text",
    "terms",
    "length",
    "vector",
    "title",
    "uri",
    "metadata",
    "chunker",
    "content_hash",
    "sequence",
)
DOCUMENT_COLUMNS = ("doc_id", "title", "uri", "chunker", "content_hash", "sequence", "length")

_MAX_CACHED_FILTERS = 16
_REPEATED_AT_ONCE = 65_536
_RAW_OVERHEAD_BYTES = 90
_TERM_OVERHEAD_BYTES = 120

_encode = msgspec.msgpack.Encoder().encode

Rows = npt.NDArray[np.int32]
Packed = npt.NDArray[np.uint64]


class Postings(NamedTuple):
    """Rows and frequencies of every term, in term order; term t owns `offsets[t]:offsets[t + 1]`, rows ascending."""

    vocabulary: dict[str, int]
    offsets: npt.NDArray[np.int64]
    rows: Rows
    frequencies: npt.NDArray[np.uint16]


class Columns(NamedTuple):
    """One value a row. `starts` are the offsets from which a document's text is put together again."""

    vectors: Matrix
    lengths: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int32]
    document_of_row: Rows
    fields: list[msgspec.Raw]


class Segment:
    """An immutable layer that is searched exactly, whole."""

    def __init__(self, documents: Documents, columns: Columns, postings: Postings) -> None:
        self.documents = documents
        self.columns = columns
        self.terms = postings
        self._matching: dict[bytes, Mask] = {}
        columns.vectors.setflags(write=False)

    @property
    def size_bytes(self) -> int:
        """Memory of arrays, encoded chunks and vocabulary, without the table of documents."""
        columns, terms = self.columns, self.terms
        arrays: list[npt.NDArray[Any]] = [columns.vectors, columns.lengths, columns.starts, columns.document_of_row]
        arrays += [terms.offsets, terms.rows, terms.frequencies]
        texts = sum(len(memoryview(raw)) + _RAW_OVERHEAD_BYTES for raw in columns.fields)
        vocabulary = sum(len(term) + _TERM_OVERHEAD_BYTES for term in terms.vocabulary)
        return sum(array.nbytes for array in arrays) + texts + vocabulary

    def at(self, sequence: int) -> "SegmentView":
        """Return what a search at `sequence` sees of this segment."""
        return SegmentView(self, sequence)

    def living_rows(self, sequence: int) -> npt.NDArray[np.int64]:
        """Return the rows of all documents that nothing had superseded at `sequence`."""
        alive = self.documents.alive(sequence, len(self.documents.entries))
        if alive is None:
            return np.arange(len(self.columns.lengths))
        return np.flatnonzero(alive[self.columns.document_of_row])

    def document_frequencies(self) -> dict[str, int]:
        """Return in how many chunks of the segment each term occurs, dead or alive."""
        counts = np.diff(self.terms.offsets).tolist()
        return dict(zip(self.terms.vocabulary, counts, strict=True))

    def matching(self, tree: Filter) -> Mask:
        """Return which documents the filter `tree` holds for; the last few answers are kept."""
        key = msgspec.msgpack.encode(tree)
        mask = self._matching.get(key)
        if mask is None:
            mask = self.documents.matching(tree, len(self.documents.entries))
            if len(self._matching) >= _MAX_CACHED_FILTERS:
                self._matching = {}
            self._matching[key] = mask
        return mask

    def has_matched(self, tree: Filter) -> bool:
        """Whether `matching` answers at once."""
        return msgspec.msgpack.encode(tree) in self._matching


class SegmentView:
    """A segment as it was at `sequence`. A layer of a search."""

    def __init__(self, segment: Segment, sequence: int) -> None:
        self.segment = segment
        self.sequence = sequence
        self.documents = segment.documents
        self.count = len(segment.columns.lengths)
        self.document_count = len(segment.documents.entries)
        self.lengths = segment.columns.lengths
        self.document_of_row = segment.columns.document_of_row

    def cosines(self, query: npt.NDArray[np.float32], _wanted: Mask | None) -> npt.NDArray[np.float32]:
        """Return the cosine of every row with the unit vector `query`, to float32 precision."""
        result: npt.NDArray[np.float32] = self.segment.columns.vectors @ query
        return result

    def postings(self, term: str) -> tuple[Rows, npt.NDArray[np.uint16]]:
        """Return the rows that hold `term`, ascending, and how often each does."""
        terms = self.segment.terms
        number = terms.vocabulary.get(term)
        if number is None:
            return terms.rows[:0], terms.frequencies[:0]
        start, stop = terms.offsets[number], terms.offsets[number + 1]
        return terms.rows[start:stop], terms.frequencies[start:stop]

    def vectors(self, rows: npt.NDArray[Any]) -> Matrix:
        """Return the vectors of `rows`, (len(rows), dimension)."""
        picked: Matrix = self.segment.columns.vectors[rows]
        return picked

    def documents_to_examine(self, tree: Filter) -> int:
        """Return how many documents `matching` would have to look at."""
        return 0 if self.segment.has_matched(tree) else self.document_count

    def start(self, row: int) -> int:
        """Return the offset of the row's text in its document."""
        return int(self.segment.columns.starts[row])

    def matching(self, tree: Filter) -> Mask:
        """Return which documents the filter `tree` holds for."""
        return self.segment.matching(tree)

    def fields(self, row: int) -> msgspec.Raw:
        """Return the encoded `ChunkFields` of one row."""
        return self.segment.columns.fields[row]


def build_segment(batches: Iterable[pa.RecordBatch]) -> Segment:
    """Return the segment of a whole table, given `SEGMENT_COLUMNS` of all its rows in any order (at least one)."""
    table = pa.Table.from_batches(batches).combine_chunks()
    order = pc.sort_indices(table, sort_keys=[("doc_id", "ascending"), ("ordinal", "ascending")])
    table = table.take(order).combine_chunks()
    entries, document_of_row = document_entries(table)
    first_rows = np.searchsorted(document_of_row, np.arange(len(entries))).tolist()
    documents = Documents.fixed(entries, first_rows, [entry.doc_id for entry in entries])
    columns = Columns(
        vectors=np.array(vector_matrix(_array(table, "vector"))),
        lengths=_array(table, "length").to_numpy().astype(np.float32),
        starts=_array(table, "start").to_numpy().astype(np.int32),
        document_of_row=document_of_row,
        fields=_encoded_fields(table, entries, document_of_row),
    )
    return Segment(documents, columns, _postings_of(_array(table, "terms")))


def document_entries(table: pa.Table) -> tuple[list[DocumentEntry], Rows]:
    """Return the documents of `table` (rows of one document side by side), and each row's document number.

    Without the column `metadata` the entries carry none.
    """
    encoded = _array(table, "doc_id").dictionary_encode()
    document_of_row = encoded.indices.to_numpy().astype(np.int32)
    count = len(encoded.dictionary)
    chunks = np.bincount(document_of_row, minlength=count)
    tokens = np.bincount(document_of_row, weights=_array(table, "length").to_numpy(), minlength=count)
    firsts = pa.array(np.searchsorted(document_of_row, np.arange(count)))
    names = ("title", "uri", "chunker", "content_hash", "sequence")
    values = {name: plain_values(_array(table, name).take(firsts)) for name in names}
    metadata = [b""] * count
    if "metadata" in table.column_names:
        metadata = [canonical_json(text) for text in plain_values(_array(table, "metadata").take(firsts))]
    rows = zip(
        encoded.dictionary.to_pylist(),
        values["title"],
        values["uri"],
        metadata,
        values["chunker"],
        values["content_hash"],
        chunks.tolist(),
        tokens.astype(np.int64).tolist(),
        values["sequence"],
        strict=True,
    )
    return [DocumentEntry(*row) for row in rows], document_of_row


def merge_segment(old: Segment | None, frozen: Memtable, sequence: int) -> Segment | None:
    """Return the segment of what `old` and `frozen` show at `sequence`, the last record that `frozen` holds.

    None where they show nothing.
    """
    parts = [_Part.of_segment(old, sequence)] if old is not None else []
    if frozen.chunks:
        parts.append(_Part.of_memtable(frozen, sequence))
    if not any(part.entries for part in parts):
        return None
    entries = [entry for part in parts for entry in part.entries]
    chunk_counts = np.array([entry.chunks for entry in entries], dtype=np.int64)
    first_rows = (np.cumsum(chunk_counts) - chunk_counts).tolist()
    columns = Columns(
        vectors=np.concatenate([part.vectors for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        starts=np.concatenate([part.starts for part in parts]),
        document_of_row=np.repeat(np.arange(len(entries), dtype=np.int32), chunk_counts),
        fields=[raw for part in parts for raw in part.fields],
    )
    layers = [frozen.documents] if old is None else [old.documents, frozen.documents]
    documents = Documents.fixed(entries, first_rows, merged_ids(layers, sequence))
    return Segment(documents, columns, _merge_postings(parts))


class _Part(NamedTuple):
    """What one layer contributes to a merged segment: its living rows, and all its postings with their new rows.

    `new_rows` maps the layer's rows to those of the part, -1 for the dead. `packed` holds row and frequency of each
    posting, `term_sizes` the number of postings of each of `terms`.
    """

    entries: list[DocumentEntry]
    vectors: Matrix
    lengths: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int32]
    fields: list[msgspec.Raw]
    new_rows: npt.NDArray[np.int64]
    terms: list[str]
    term_sizes: npt.NDArray[np.int64]
    packed: Packed

    @classmethod
    def of_segment(cls, segment: Segment, sequence: int) -> "_Part":
        columns, postings = segment.columns, segment.terms
        kept = segment.living_rows(sequence)
        packed = postings.rows.astype(np.uint64) << np.uint64(ROW_SHIFT) | postings.frequencies
        return cls(
            entries=segment.documents.living_entries(sequence),
            vectors=columns.vectors[kept],
            lengths=columns.lengths[kept],
            starts=columns.starts[kept],
            fields=[columns.fields[row] for row in kept.tolist()],
            new_rows=_renumbered(kept, len(columns.lengths)),
            terms=list(postings.vocabulary),
            term_sizes=np.diff(postings.offsets),
            packed=packed,
        )

    @classmethod
    def of_memtable(cls, memtable: Memtable, sequence: int) -> "_Part":
        kept = memtable.living_rows(sequence)
        terms, term_sizes, packed = memtable.packed_postings()
        rows = kept.tolist()
        return cls(
            entries=memtable.documents.living_entries(sequence),
            vectors=memtable.vectors(kept),
            lengths=memtable.lengths.values[kept],
            starts=np.array([memtable.chunks[row].start for row in rows], dtype=np.int32),
            fields=[memtable.fields(row) for row in rows],
            new_rows=_renumbered(kept, len(memtable.chunks)),
            terms=terms,
            term_sizes=term_sizes,
            packed=packed,
        )


def _renumbered(kept: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    new_rows = np.full(count, -1, dtype=np.int64)
    new_rows[kept] = np.arange(len(kept))
    return new_rows


def _merge_postings(parts: list[_Part]) -> Postings:
    """Return the postings of all parts over their new rows, without the terms that no row holds any more."""
    vocabulary: dict[str, int] = {}
    keys: list[Packed] = []
    first_row = 0
    for part in parts:
        numbers = np.array([vocabulary.setdefault(term, len(vocabulary)) for term in part.terms], dtype=np.uint64)
        terms = _repeated(numbers, part.term_sizes)
        rows = part.new_rows[(part.packed >> ROW_SHIFT).astype(np.int64)]
        living = rows >= 0
        shifted = (rows[living] + first_row).astype(np.uint64) << np.uint64(ROW_SHIFT)
        keys.append(terms[living] << np.uint64(TERM_SHIFT) | shifted | part.packed[living] & np.uint64(FREQUENCY_MASK))
        first_row += len(part.lengths)
    return _sorted_postings(list(vocabulary), np.concatenate(keys))


def _repeated(values: Packed, sizes: npt.NDArray[np.int64]) -> Packed:
    """Return each of `values` as often as `sizes` says, in pieces, as numpy holds the interpreter's lock meanwhile.

    In one piece that was 20 to 50 ms for a million postings, in fresh memory.
    """
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(_REPEATED_AT_ONCE, sizes.sum(), _REPEATED_AT_ONCE))
    pieces = zip(np.split(values, cuts), np.split(sizes, cuts), strict=True)
    return np.concatenate([np.repeat(piece, piece_sizes) for piece, piece_sizes in pieces])


def _postings_of(terms: pa.Array) -> Postings:
    """Return the postings of a column of terms joined by spaces."""
    words = pc.split_pattern(terms, " ")
    encoded = words.flatten().dictionary_encode()
    rows = np.repeat(np.arange(len(terms), dtype=np.uint64), pc.list_value_length(words).to_numpy())
    numbers = encoded.indices.to_numpy().astype(np.uint64)
    occurrences = numbers << np.uint64(TERM_SHIFT - ROW_SHIFT) | rows
    occurrences.sort()
    firsts = np.flatnonzero(np.concatenate(([True], occurrences[1:] != occurrences[:-1])))
    frequencies = np.diff(np.concatenate((firsts, [len(occurrences)]))).astype(np.uint64)
    keys = occurrences[firsts] << np.uint64(ROW_SHIFT) | frequencies
    vocabulary = encoded.dictionary.to_pylist()
    if "" in vocabulary:  # what splitting makes of a chunk without any term
        keys = keys[keys >> np.uint64(TERM_SHIFT) != vocabulary.index("")]
    return _sorted_postings(vocabulary, keys)


def _sorted_postings(terms: list[str], keys: Packed) -> Postings:
    """Return postings from keys of `term << 40 | row << 16 | frequency`; terms without any are left out."""
    keys.sort()
    numbers = (keys >> np.uint64(TERM_SHIFT)).astype(np.int64)
    counts = np.bincount(numbers, minlength=len(terms))
    used = np.flatnonzero(counts)
    return Postings(
        vocabulary={terms[number]: position for position, number in enumerate(used.tolist())},
        offsets=np.concatenate(([0], np.cumsum(counts[used]))),
        rows=((keys >> np.uint64(ROW_SHIFT)) & np.uint64(MAX_ROWS - 1)).astype(np.int32),
        frequencies=(keys & np.uint64(FREQUENCY_MASK)).astype(np.uint16),
    )


def _encoded_fields(table: pa.Table, entries: list[DocumentEntry], document_of_row: Rows) -> list[msgspec.Raw]:
    rows = zip(
        document_of_row.tolist(),
        *(_array(table, name).to_pylist() for name in ("ordinal", "text", "heading")),
        strict=True,
    )
    encoded = []
    for number, ordinal, text, heading in rows:
        entry = entries[number]
        fields = ChunkFields(entry.doc_id, ordinal, text, entry.title, entry.uri, heading, entry.metadata)
        encoded.append(msgspec.Raw(_encode(fields)))
    return encoded


def _array(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table that has one chunk."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
