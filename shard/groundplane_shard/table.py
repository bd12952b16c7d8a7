"""The LanceDB table of a corpus: the durable base of its index, and the only place that imports lancedb.

What it is: one directory with the tables `chunks` and `memos` (columns in `schema`), which plain LanceDB opens and
searches as well; `chunks` is made when the size of the vectors is known, so a corpus of memos alone has none. Only `merge` (one flush), `maintain` and `build_search_indexes` change it; readers hold a `Pin`.

Invariants:
- One lock orders merges, maintenance, index builds, pins and copies, so neither a pin nor a copy sees half a merge.
  A merge that failed half way is undone before the next one; until then pins and copies are refused.
- A pinned version stays readable until its release: old versions are removed only when no pin uses them.
- The cosine distance is named in every query: LanceDB silently passes over an index of another metric.

Errors: `Unavailable` (`disk_full`, `table_incomplete`) means repeat later; `CorruptData` means that files are missing or
broken: drop the directory and restore it. Anything else that LanceDB raises is a bug and passes through.

What the process sets before this module is imported: LANCE_CPU_THREADS and LANCE_IO_THREADS (the cgroup's CPU limit;
LanceDB takes the host's cores otherwise), MALLOC_ARENA_MAX=2 (its threads fragment glibc's arenas), and umask 077, as
LanceDB creates files and directories by the umask alone. Never fork after the import.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfSq

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.predicate import documents_sql, memos_sql
from groundplane_shard.schema import (
    DISTANCE_COLUMN,
    MEMO_SCHEMA,
    SCORE_COLUMN,
    chunk_schema,
    vector_dimension,
)
from groundplane_shard.table_errors import translated

CHUNKS = "chunks"
MEMOS = "memos"
MAX_FRAGMENTS = 16
MAX_DELETED_SHARE = 0.2
MAX_DELTA_INDEXES = 8
MAX_UNINDEXED_SHARE = 0.005
MIN_UNINDEXED_ROWS = 500  # the keyword leg reads rows without index one by one: 2 ms a query for 500 of them
CANDIDATE_COLUMNS = ("id", "heading", "text", "terms", "metadata", "vector")  # each costs a leg about 0.3 ms

_INDEX_CACHE_BYTES = 128 * 1024 * 1024
_METADATA_CACHE_BYTES = 64 * 1024 * 1024
_ROWS_PER_PARTITION = 1_000
_COMPACTION_ROUNDS = 5
_PROBED_PARTITIONS = 20
_REFINED_PER_ROW = 2  # of the nearest 20 by 8-bit vectors 97 % are so by exact ones, of the nearest 40 all 20 are found
_VECTOR_INDEX = "vector_idx"
_KEEP_ALL = timedelta(days=36_500)
_KEEP_LATEST = timedelta(milliseconds=1)  # zero makes LanceDB warn

Vector = npt.NDArray[np.float32]
_Versions = tuple[int, int]
_Tables = tuple[lancedb.AsyncTable | None, lancedb.AsyncTable]


class Pin:
    """One version of a table, readable until `release` whatever happens to the table meanwhile.

    `version` grows with every change of the chunks; `rows` is their number. Safe for concurrent queries. Made by
    `Table.pin` only.
    """

    def __init__(self, handles: _Tables, versions: _Versions, rows: int, release: Callable[[], None]) -> None:
        self.version = versions[0]
        self.rows = rows
        self._handle, self._memos = handles
        self._release: Callable[[], None] | None = release

    async def dense(self, vector: Vector, limit: int, where: str | None = None) -> pa.Table:
        """Return the `limit` nearest chunks, `CANDIDATE_COLUMNS` and `_distance` (1 - cosine, nearest first).

        vector: float32 of the table's dimension, finite, not zero (LanceDB answers nothing for others, without error).
        Exact without a vector index; with one, candidates are approximate and their distances exact. `where` is applied
        before candidates are taken.
        """
        query = self._chunks.query().nearest_to(vector).distance_type("cosine")
        # No maximum: behind a narrow filter the nearest partitions may hold fewer than `limit` rows.
        query = query.minimum_nprobes(_PROBED_PARTITIONS).maximum_nprobes(0)
        # Without refinement, fully indexed rows come with the doubled, quantised distance (lancedb issue 3530).
        query = query.refine_factor(_REFINED_PER_ROW).limit(limit).select([*CANDIDATE_COLUMNS, DISTANCE_COLUMN])
        return await _rows(query, where)

    async def keywords(self, terms: Sequence[str], limit: int, where: str | None = None) -> pa.Table:
        """Return `limit` chunks that hold one of `terms`, `CANDIDATE_COLUMNS` and `_score` (best first).

        terms: the analyser's, unique. `_score` is LanceDB's BM25 and depends on what its index covers: for candidates.
        """
        query = self._chunks.query().nearest_to_text(" ".join(terms), columns="terms")
        return await _rows(query.limit(limit).select([*CANDIDATE_COLUMNS, SCORE_COLUMN]), where)

    async def rows_of(self, doc_ids: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return `columns` of every chunk of these documents, in no order; unknown ids are no error."""
        parts = [await _rows(self._chunks.query().select(list(columns)), where) for where in documents_sql(doc_ids)]
        return pa.concat_tables(parts) if parts else await _rows(self._chunks.query().select(list(columns)), "false")

    async def scan(self, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        """Yield `columns` of every chunk, in no order, in batches of at most some thousand rows."""
        if self._handle is None:
            return
        with translated():
            async for batch in await self._handle.query().select(list(columns)).to_batches(max_batch_length=4_096):
                yield batch

    async def memos(self) -> pa.Table:
        """Return every memo, in no order."""
        return await _rows(self._memos.query(), None)

    @property
    def _chunks(self) -> lancedb.AsyncTable:
        if self._handle is None:
            raise ValueError("no chunk was ever written: there is nothing to search")
        return self._handle

    def release(self) -> None:
        """Let the version go; queries that still run may then fail. Repeating it changes nothing."""
        if self._release is not None:
            self._release()
            self._release = None


class Table:
    """The tables of one directory, made by `create` or `open`. Only one process at a time may use a directory."""

    def __init__(
        self, directory: Path, connection: lancedb.AsyncConnection, tables: _Tables, dimension: int | None
    ) -> None:
        self.dimension = dimension  # of the vectors; None while there is no table `chunks`
        self._directory = directory
        self._connection = connection
        self._tables = tables
        self._chunks, self._memos = tables
        self._lock = asyncio.Lock()
        self._pins: Counter[_Versions] = Counter()
        self._before_merge: _Versions | None = None
        self._settled: _Versions = (0, 0)

    @classmethod
    async def create(cls, directory: Path, dimension: int | None) -> "Table":
        """Return a new, empty table in `directory`, which must be empty or absent. None: no vectors are known yet."""
        with translated():
            connection = await _connect(directory)
            if dimension is not None:
                await _create_chunks(connection, dimension)
            await connection.create_table(MEMOS, schema=MEMO_SCHEMA)
        return await cls.open(directory)

    @classmethod
    async def open(cls, directory: Path) -> "Table":
        """Return the table in `directory`. Raises CorruptData where it is missing, broken or of another layout.

        The files must have passed their checksums: LanceDB trusts what it reads, and a flipped bit can end the process.
        """
        with translated():
            connection = await _connect(directory)
            found = set((await connection.list_tables()).tables)
            if MEMOS not in found:
                raise CorruptData(
                    f"table directory holds {sorted(found)}: expected memos, and chunks; restore a snapshot"
                )
            tables = await _open_tables(connection, has_chunks=CHUNKS in found)
            dimension = vector_dimension(await tables[0].schema()) if tables[0] is not None else None
            return cls(directory, connection, tables, dimension)

    async def add_chunks(self, dimension: int) -> None:
        """Make the table `chunks` for vectors of `dimension` numbers, if there is none yet."""
        async with self._complete():
            if self._chunks is None:
                self._chunks = await _create_chunks(self._connection, dimension)
                self._tables = (self._chunks, self._memos)
                self.dimension = dimension

    async def merge(
        self,
        superseded: Collection[str],
        chunks: pa.Table | pa.RecordBatch | None,
        memos: pa.RecordBatch | None,
        deleted_memos: Collection[tuple[str, str]],
    ) -> None:
        """Apply one flush: remove the documents `superseded` and the `deleted_memos`, then add what is given.

        deleted_memos: (name, fingerprint) of every memo that is removed or replaced. A failed merge leaves the table as
        it was before, at the latest when the next one begins, so it may be repeated as it is.
        """
        async with self._lock:
            with translated():
                await self._undo_half_merge()
                self._before_merge = await self._versions()
                if self._chunks is not None:
                    await _replace(self._chunks, documents_sql(superseded), chunks)
                await _replace(self._memos, memos_sql(deleted_memos), memos)
                self._before_merge = None

    async def pin(self) -> Pin:
        """Return a Pin of the newest version."""
        async with self._complete():
            versions = await self._versions()
            handles = await _open_tables(self._connection, has_chunks=self._chunks is not None)
            for handle, version in zip(handles, versions, strict=True):
                if handle is not None:
                    await handle.checkout(version)
            rows = await handles[0].count_rows() if handles[0] is not None else 0
            self._pins[versions] += 1
            return Pin(handles, versions, rows, lambda: self._unpin(versions))

    async def maintain(self) -> bool:
        """Compact, index and clean up what is due; true when there is a newer version: pin it, release the old pin.

        Call it after every merge, and again after that release: only then can the files go that the old version held.
        Compaction rewrites rows and their indexes: some seconds at 100,000 rows, in LanceDB's threads.
        """
        async with self._complete():
            before = await self._versions()
            settled = [await self._maintain(position, before[position]) for position in range(len(self._tables))]
            self._settled = (settled[0], settled[1])
            return await self._versions() != before

    async def build_search_indexes(self) -> None:
        """Build the indexes of both legs (IVF_SQ by cosine, full text) and those by id anew over all rows."""
        async with self._complete():
            if self._chunks is not None:
                await _build_vector_index(self._chunks)
                await _build_lookup_indexes(self._chunks)

    async def copy_to(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a copy that `open` opens: hard links, as LanceDB never rewrites a file.

        Holds the lock for as long as linking takes. Where it fails, `directory` may hold a part: remove it.
        """
        async with self._complete():
            await asyncio.to_thread(shutil.copytree, self._directory, directory, copy_function=os.link)

    @asynccontextmanager
    async def _complete(self) -> AsyncIterator[None]:
        """Hold the lock over a table that is not half merged."""
        async with self._lock:
            if self._before_merge is not None:
                raise Unavailable("the last merge into the table failed half way: repeat it", code="table_incomplete")
            with translated():
                yield

    async def _versions(self) -> _Versions:
        chunks = await self._chunks.version() if self._chunks is not None else 0
        return (chunks, await self._memos.version())

    async def _undo_half_merge(self) -> None:
        if self._before_merge is not None:
            for table, version in zip(self._tables, self._before_merge, strict=True):
                if table is not None:
                    await table.checkout(version)
                    await table.restore()
            self._before_merge = None

    def _unpin(self, versions: _Versions) -> None:
        self._pins[versions] -= 1
        if not self._pins[versions]:
            del self._pins[versions]

    async def _maintain(self, position: int, version: int) -> int:
        """Maintain one table and return the version at which compaction had nothing left to do; 0 for none."""
        table = self._tables[position]
        if table is None:
            return version
        if version == self._settled[position]:
            # Only here does LanceDB's one call for all maintenance merely remove versions and the files they alone hold.
            if all(pinned[position] == version for pinned in self._pins):
                await table.optimize(cleanup_older_than=_KEEP_LATEST, delete_unverified=True)
            return version
        return await _compact(table) if await _is_compaction_due(table) else 0


async def _connect(directory: Path) -> lancedb.AsyncConnection:
    session = lancedb.Session(_INDEX_CACHE_BYTES, _METADATA_CACHE_BYTES)
    return await lancedb.connect_async(directory, session=session)


async def _open_tables(connection: lancedb.AsyncConnection, *, has_chunks: bool) -> _Tables:
    chunks = await connection.open_table(CHUNKS) if has_chunks else None
    return (chunks, await connection.open_table(MEMOS))


async def _create_chunks(connection: lancedb.AsyncConnection, dimension: int) -> lancedb.AsyncTable:
    chunks = await connection.create_table(CHUNKS, schema=chunk_schema(dimension))
    await _build_lookup_indexes(chunks)
    return chunks


async def _build_lookup_indexes(chunks: lancedb.AsyncTable) -> None:
    """Index ids and terms; all that LanceDB would do to words is off, since the analyser has made them terms."""
    terms = FTS(
        base_tokenizer="whitespace",
        with_position=False,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )
    await chunks.create_index("id", config=BTree(), replace=True)
    await chunks.create_index("doc_id", config=BTree(), replace=True)
    await chunks.create_index("terms", config=terms, replace=True)


async def _rows(query: Any, where: str | None) -> pa.Table:
    with translated():
        return await (query if where is None else query.where(where)).to_arrow()


async def _replace(table: lancedb.AsyncTable, removed: Iterable[str], added: pa.Table | pa.RecordBatch | None) -> None:
    for predicate in removed:
        await table.delete(predicate)
    if added is not None and added.num_rows:
        await table.add(added)


async def _is_compaction_due(table: lancedb.AsyncTable) -> bool:
    stats: Any = await table.stats()  # a dict, whatever its annotation says
    if stats["fragment_stats"]["num_fragments"] > MAX_FRAGMENTS or _deleted_share(stats) > MAX_DELETED_SHARE:
        return True
    vectors = await table.index_stats(_VECTOR_INDEX)
    bound = max(MIN_UNINDEXED_ROWS, MAX_UNINDEXED_SHARE * stats["num_rows"])
    return vectors is not None and vectors.num_unindexed_rows > bound


async def _compact(table: lancedb.AsyncTable) -> int:
    """Compact and index until nothing is left to do; return that version, or 0 if it takes too many rounds.

    One round merges only fragments that the same index covers, and then indexes new rows; so the next may merge more.
    """
    before = await table.version()
    for _ in range(_COMPACTION_ROUNDS):
        await table.optimize(cleanup_older_than=_KEEP_ALL)
        vectors = await table.index_stats(_VECTOR_INDEX)
        if vectors is not None and (vectors.num_indices or 0) > MAX_DELTA_INDEXES:
            await _build_vector_index(table)
        after = await table.version()
        if after == before:
            return after
        before = after
    return 0


async def _build_vector_index(chunks: lancedb.AsyncTable) -> None:
    rows = await chunks.count_rows()
    if rows:
        config = IvfSq(distance_type="cosine", num_partitions=max(1, rows // _ROWS_PER_PARTITION))
        # LanceDB takes IvfSq here; its annotation leaves it out.
        await chunks.create_index("vector", config=config, replace=True, name=_VECTOR_INDEX)  # type: ignore[arg-type]


def _deleted_share(stats: Any) -> float:
    """Return the share of stored rows that are deleted, in [0, 1]; LanceDB's lengths count deleted rows too."""
    stored = stats["fragment_stats"]["lengths"]["mean"] * stats["fragment_stats"]["num_fragments"]
    return 1 - stats["num_rows"] / stored if stored else 0.0
