"""The table's two engines: opening a directory, renewing the base after a flush, crossing over.

`exact` holds the base in memory as a `Segment` while its vectors fit; `indexed` leaves it to LanceDB as an `IndexedBase`.
A corpus crosses over once, in the background, and goes back only when it is opened again. The table changes only here.
Raises `CorruptData` where table and statistics file do not agree, and what `table` raises.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from groundplane.errors import CorruptData
from groundplane.wire.public import Basis
from groundplane_shard.documents import Documents, merged_ids
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.flushing import chunk_rows, memo_rows
from groundplane_shard.indexed import IndexedBase, indexed_documents, indexed_frequencies
from groundplane_shard.memtable import Memtable
from groundplane_shard.rows import StoredMemo
from groundplane_shard.search import Totals
from groundplane_shard.segment import (
    DOCUMENT_COLUMNS,
    MAX_ROWS,
    SEGMENT_COLUMNS,
    Segment,
    build_segment,
    document_entries,
    merge_segment,
)
from groundplane_shard.statistics import (
    FORMAT,
    TableStatistics,
    is_unused,
    read_statistics,
    write_statistics,
)
from groundplane_shard.table import Pin, Table

DEFAULT_EXACT_BYTES = 48 * 1024 * 1024

Base = Segment | IndexedBase
Memos = dict[tuple[str, str], StoredMemo]


class Point(NamedTuple):
    """Where in the log a state stands, and what it adds up to."""

    sequence: int = 0
    document_sequence: int = 0
    totals: Totals = Totals()


class Made(NamedTuple):
    """What made the vectors of a table: their size, their embedding's id, how many re-embeddings came before."""

    dimension: int | None = None
    embedding_id: str | None = None
    generation: int = 0


class Opened(NamedTuple):
    """What a directory held."""

    base: Base | None
    point: Point
    memos: Memos
    made: Made


class Engines:
    """The table in `directory`, made by the first flush, and the rule which engine serves it."""

    def __init__(self, directory: Path, exact_bytes: int) -> None:
        self.directory = directory
        self._exact_bytes = exact_bytes
        self._table: Table | None = None
        self._has_search_indexes = False

    @property
    def table_dimension(self) -> int | None:
        """Dimension of the table's vectors; None before the first flush."""
        return self._table.dimension if self._table is not None else None

    async def open(self) -> Opened:
        """Return the state that the last flush left in the directory, the empty one if there never was a flush."""
        if await asyncio.to_thread(is_unused, self.directory):
            return Opened(None, Point(), {}, Made())
        statistics = await asyncio.to_thread(read_statistics, self.directory)
        self._table = await Table.open(self.directory)
        self._has_search_indexes = statistics.has_search_indexes
        _check_equal("vector dimension", self._table.dimension or 0, statistics.dimension)
        is_exact = self._fits(statistics.totals.chunks)
        if not is_exact and not self._has_search_indexes:
            await self._table.build_search_indexes()
            self._has_search_indexes = True
        pin = await self._table.pin()
        memos = await _read_memos(pin)
        base = await _read_segment(pin, statistics) if is_exact else await _read_indexed(pin, statistics)
        point = Point(statistics.sequence, statistics.document_sequence, statistics.totals)
        made = Made(self._table.dimension, statistics.embedding_id, statistics.generation)
        return Opened(base, point, memos, made)

    async def flush(self, old: Base | None, frozen: Memtable, point: Point, made: Made) -> Base | None:
        """Merge `frozen` into the table and return the base that replaces `old` and `frozen`.

        point: the last record that `frozen` holds. May be repeated after any failure.
        """
        if self._table is None:
            self._table = await Table.create(self.directory, made.dimension)
        if made.dimension is not None:
            await self._table.add_chunks(made.dimension)
        if not frozen.is_empty:
            chunks, memos = await asyncio.to_thread(_table_rows, frozen, point.sequence)
            await self._table.merge(list(frozen.superseded), chunks, memos, list(frozen.memos))
            reach(Failpoint.TABLE_MERGED)
            await self._table.maintain()
        base = old
        if isinstance(old, IndexedBase) and frozen.superseded:
            base = await self._renewed(old, frozen, point.sequence)
        elif not isinstance(old, IndexedBase) and frozen.superseded:
            base = await asyncio.to_thread(merge_segment, old, frozen, point.sequence)
        await self._write_statistics(base, point, made)
        return base

    async def crossed_over(self, base: Base | None, point: Point, made: Made) -> IndexedBase | None:
        """Return the indexed base that should replace `base`, all of it alive at `point`; None if it may stay."""
        if not isinstance(base, Segment) or self._fits(len(base.columns.lengths)) or self._table is None:
            return None
        await self._table.build_search_indexes()
        self._has_search_indexes = True
        pin = await self._table.pin()
        documents = await asyncio.to_thread(_lean_documents, [base.documents], point.sequence)
        frequencies = await asyncio.to_thread(base.document_frequencies)
        indexed = IndexedBase(pin, documents, frequencies)
        await self._write_statistics(indexed, point, made)
        return indexed

    async def copy_to(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a hard-link copy of table and statistics as last flushed."""
        if self._table is None:
            raise ValueError("nothing was flushed yet: there is no table to copy")
        await self._table.maintain()
        await self._table.copy_to(directory)

    def _fits(self, chunks: int) -> bool:
        dimension = self.table_dimension or 0
        return chunks < MAX_ROWS and (chunks == 0 or 4 * chunks * dimension <= self._exact_bytes)

    async def _renewed(self, old: IndexedBase, frozen: Memtable, sequence: int) -> IndexedBase:
        if self._table is None:
            raise ValueError("an indexed base has a table")
        pin = await self._table.pin()
        frequencies = await asyncio.to_thread(indexed_frequencies, old, frozen, sequence)
        documents = await asyncio.to_thread(_lean_documents, [old.documents, frozen.documents], sequence)
        return IndexedBase(pin, documents, frequencies)

    async def _write_statistics(self, base: Base | None, point: Point, made: Made) -> None:
        frequencies: dict[str, int] = {}
        if isinstance(base, Segment):
            frequencies = await asyncio.to_thread(base.document_frequencies)
        elif base is not None:
            frequencies = base.frequencies
        statistics = TableStatistics(
            format=FORMAT,
            sequence=point.sequence,
            document_sequence=point.document_sequence,
            dimension=self.table_dimension or 0,
            has_search_indexes=self._has_search_indexes,
            totals=point.totals,
            frequencies=frequencies,
            embedding_id=made.embedding_id,
            generation=made.generation,
        )
        await asyncio.to_thread(write_statistics, self.directory, statistics)
        reach(Failpoint.STATISTICS_WRITTEN)


def _table_rows(frozen: Memtable, sequence: int) -> tuple[pa.Table | None, pa.RecordBatch | None]:
    return chunk_rows(frozen, sequence), memo_rows(frozen)


def _lean_documents(parts: list[Documents], sequence: int) -> Documents:
    """Return the documents of an indexed base from those of the layers that it replaces."""
    entries = [entry for documents in parts for entry in documents.living_entries(sequence)]
    return indexed_documents(entries, merged_ids(parts, sequence))


async def _read_segment(pin: Pin, statistics: TableStatistics) -> Segment | None:
    batches = [batch async for batch in pin.scan(SEGMENT_COLUMNS)]
    pin.release()
    if not any(batch.num_rows for batch in batches):
        _check_equal("chunks", 0, statistics.totals.chunks)
        return None
    segment = await asyncio.to_thread(build_segment, batches)
    documents, lengths = segment.documents.entries, segment.columns.lengths
    tokens = sum(entry.tokens for entry in documents)
    _check_equal("documents, chunks and tokens", Totals(len(documents), len(lengths), tokens), statistics.totals)
    if await asyncio.to_thread(segment.document_frequencies) != statistics.frequencies:
        raise CorruptData("table has other term frequencies than the file statistics: restore a snapshot")
    return segment


async def _read_indexed(pin: Pin, statistics: TableStatistics) -> IndexedBase:
    batches = [batch async for batch in pin.scan(DOCUMENT_COLUMNS)]
    schema = batches[0].schema if batches else None
    table = pa.Table.from_batches(batches, schema=schema).sort_by("doc_id").combine_chunks()
    entries, _ = await asyncio.to_thread(document_entries, table)
    found = Totals(len(entries), table.num_rows, sum(entry.tokens for entry in entries))
    _check_equal("documents, chunks and tokens", found, statistics.totals)
    documents = indexed_documents(entries, [entry.doc_id for entry in entries])
    return IndexedBase(pin, documents, statistics.frequencies)


async def _read_memos(pin: Pin) -> Memos:
    memos: Memos = {}
    for row in (await pin.memos()).to_pylist():
        basis = msgspec.json.decode(row["basis"], type=Basis)
        memo = StoredMemo(row["name"], row["fingerprint"], row["response"], basis)
        memos[memo.name, memo.fingerprint] = memo
    return memos


def _check_equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise CorruptData(f"table has {what} {found}: expected {expected} by its statistics; restore a snapshot")
