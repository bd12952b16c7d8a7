"""The LanceDB table of a corpus: the durable base of its index, and the only place that imports lancedb.

What it is: one directory with the tables `chunks` and `memos` (columns in `schema`), which plain LanceDB opens and
searches as well. Only `merge` (one flush), `maintain` and `build_search_indexes` change it; readers hold a `Pin`.

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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfSq
from lancedb.query import FullTextOperator, MatchQuery

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.predicate import sql_string
from groundplane_shard.schema import (
    CHUNK_COLUMNS,
    DISTANCE_COLUMN,
    MEMO_SCHEMA,
    SCORE_COLUMN,
    chunk_schema,
    vector_dimension,
)

CHUNKS = "chunks"
MEMOS = "memos"
MAX_FRAGMENTS = 16
MAX_DELETED_SHARE = 0.2
MAX_DELTA_INDEXES = 8
MAX_UNINDEXED_SHARE = 0.1
MIN_UNINDEXED_ROWS = 5_000

_INDEX_CACHE_BYTES = 128 * 1024 * 1024
_METADATA_CACHE_BYTES = 64 * 1024 * 1024
_IDS_PER_STATEMENT = 2_000
_ROWS_PER_PARTITION = 1_000
_PROBED_PARTITIONS = 20
_VECTOR_INDEX = "vector_idx"
_KEEP_ALL = timedelta(days=36_500)
_KEEP_LATEST = timedelta(milliseconds=1)  # zero makes LanceDB warn

Vector = npt.NDArray[np.float32]


class Pin:
    """One version of a table, readable until `release` whatever happens to the table meanwhile.

    `version` grows with every change of the table; `rows` is its number of chunks. Safe for concurrent queries.
    """

    def __init__(self, chunks: lancedb.AsyncTable, memos: lancedb.AsyncTable, release: Callable[[], None]) -> None:
        self.version = 0
        self.rows = 0
        self._chunks = chunks
        self._memos = memos
        self._release: Callable[[], None] | None = release

    async def checkout(self, chunks_version: int, memos_version: int) -> None:
        """Fix both handles at these versions; called once, by `Table.pin`."""
        await self._chunks.checkout(chunks_version)
        await self._memos.checkout(memos_version)
        self.version = chunks_version
        self.rows = await self._chunks.count_rows()

    async def dense(self, vector: Vector, limit: int, where: str | None = None) -> pa.Table:
        """Return the `limit` nearest chunks, all columns and `_distance` (1 - cosine, nearest first).

        vector: float32 of the table's dimension, finite, not zero (LanceDB answers nothing for others, without error).
        Exact without a vector index, approximate with one. `where` is applied before candidates are taken.
        """
        query = self._chunks.query().nearest_to(vector).distance_type("cosine").nprobes(_PROBED_PARTITIONS)
        return await _rows(query.limit(limit).select([*CHUNK_COLUMNS, DISTANCE_COLUMN]), where)

    async def keywords(self, terms: Sequence[str], limit: int, where: str | None = None) -> pa.Table:
        """Return `limit` chunks that hold one of `terms`, all columns and `_score` (best first).

        terms: the analyser's, unique. `_score` is LanceDB's BM25 and depends on what its index covers: for candidates.
        """
        match = MatchQuery(" ".join(terms), "terms", operator=FullTextOperator.OR)
        query = self._chunks.query().nearest_to_text(match)
        return await _rows(query.limit(limit).select([*CHUNK_COLUMNS, SCORE_COLUMN]), where)

    async def rows_of(self, doc_ids: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return `columns` of every chunk of these documents, in no order; unknown ids are no error."""
        parts = [await _rows(self._chunks.query().select(list(columns)), where) for where in _id_predicates(doc_ids)]
        return pa.concat_tables(parts) if parts else await _rows(self._chunks.query().select(list(columns)), "false")

    async def scan(self, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        """Yield `columns` of every chunk, in no order, in batches of at most some thousand rows."""
        with _translated():
            async for batch in await self._chunks.query().select(list(columns)).to_batches(max_batch_length=4_096):
                yield batch

    async def memos(self) -> pa.Table:
        """Return every memo, in no order."""
        return await _rows(self._memos.query(), None)

    def release(self) -> None:
        """Let the version go; queries that still run may then fail. Repeating it changes nothing."""
        if self._release is not None:
            self._release()
            self._release = None
            self._chunks.close()
            self._memos.close()


class Table:
    """The tables of one directory. Built by `create` or `open`; one process at a time uses a directory."""

    def __init__(
        self, directory: Path, connection: lancedb.AsyncConnection, tables: dict[str, lancedb.AsyncTable]
    ) -> None:
        self.dimension = 0
        self._directory = directory
        self._connection = connection
        self._chunks = tables[CHUNKS]
        self._memos = tables[MEMOS]
        self._lock = asyncio.Lock()
        self._pins: Counter[int] = Counter()
        self._before_merge: tuple[int, int] | None = None

    @classmethod
    async def create(cls, directory: Path, dimension: int) -> "Table":
        """Return a new, empty table in `directory`, which must be empty or absent."""
        with _translated():
            connection = await _connect(directory)
            chunks = await connection.create_table(CHUNKS, schema=chunk_schema(dimension))
            await connection.create_table(MEMOS, schema=MEMO_SCHEMA)
            for column in ("id", "doc_id"):
                await chunks.create_index(column, config=BTree())
            await chunks.create_index("terms", config=_term_index())
        return await cls.open(directory)

    @classmethod
    async def open(cls, directory: Path) -> "Table":
        """Return the table in `directory`. Raises CorruptData where it is missing, broken or of another layout."""
        with _translated():
            connection = await _connect(directory)
            found = set((await connection.list_tables()).tables)
            if not {CHUNKS, MEMOS} <= found:
                raise CorruptData(
                    f"table directory holds {sorted(found)}: expected {[CHUNKS, MEMOS]}; restore a snapshot"
                )
            tables = {name: await connection.open_table(name) for name in (CHUNKS, MEMOS)}
            table = cls(directory, connection, tables)
            table.dimension = vector_dimension(await tables[CHUNKS].schema())
        return table

    async def merge(
        self,
        superseded: Collection[str],
        chunks: pa.RecordBatch | None,
        memos: pa.RecordBatch | None,
        deleted_memos: Collection[tuple[str, str]],
    ) -> None:
        """Apply one flush: remove the documents `superseded` and the `deleted_memos`, then add what is given.

        deleted_memos: (name, fingerprint) of every memo that is removed or replaced. A failed merge leaves the table as
        it was before, at the latest when the next one begins, so it may be repeated as it is.
        """
        async with self._lock:
            with _translated():
                await self._undo_half_merge()
                self._before_merge = (await self._chunks.version(), await self._memos.version())
                for predicate in _id_predicates(superseded):
                    await self._chunks.delete(predicate)
                await _add(self._chunks, chunks)
                for predicate in _memo_predicates(deleted_memos):
                    await self._memos.delete(predicate)
                await _add(self._memos, memos)
                self._before_merge = None

    async def pin(self) -> Pin:
        """Return a Pin of the newest version."""
        async with self._lock:
            self._check_complete()
            with _translated():
                version, memos_version = await self._chunks.version(), await self._memos.version()
                handles = [await self._connection.open_table(name) for name in (CHUNKS, MEMOS)]
                pin = Pin(handles[0], handles[1], lambda: self._unpin(version))
                self._pins[version] += 1
                await pin.checkout(version, memos_version)
        return pin

    async def maintain(self) -> bool:
        """Compact, index and clean up if due; true when the newest version changed: pin again, release the old pin.

        Call it after every merge, and once more after the old pin is released, so that the files it held can go.
        """
        async with self._lock:
            self._check_complete()
            with _translated():
                before = await self._chunks.version()
                await self._maintain_chunks()
                stats = await self._memos.stats()
                if (
                    stats["fragment_stats"]["num_fragments"] > MAX_FRAGMENTS
                    or _deleted_share(stats) > MAX_DELETED_SHARE
                ):
                    await self._memos.optimize(cleanup_older_than=self._keep(before))
                return await self._chunks.version() != before

    async def build_search_indexes(self) -> None:
        """Build the indexes of both legs anew over all rows: IVF_SQ (cosine) and full text, with those by id."""
        async with self._lock:
            self._check_complete()
            with _translated():
                await self._build_vector_index()
                await self._chunks.create_index("terms", config=_term_index(), replace=True)
                for column in ("id", "doc_id"):
                    await self._chunks.create_index(column, config=BTree(), replace=True)

    async def copy_to(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a hard-link copy that `open` opens. LanceDB never changes a file in place.

        Holds the lock for the time of the links. Call `maintain` before it, so that the copy carries no old versions.
        """
        async with self._lock:
            self._check_complete()
            with _translated():
                await asyncio.to_thread(shutil.copytree, self._directory, directory, copy_function=_link)

    def _check_complete(self) -> None:
        if self._before_merge is not None:
            raise Unavailable("the last merge into the table failed half way: repeat it first", code="table_incomplete")

    async def _undo_half_merge(self) -> None:
        if self._before_merge is None:
            return
        for table, version in zip((self._chunks, self._memos), self._before_merge, strict=True):
            await table.checkout(version)
            await table.restore()
        self._before_merge = None

    def _unpin(self, version: int) -> None:
        self._pins[version] -= 1
        if not self._pins[version]:
            del self._pins[version]

    def _keep(self, newest: int) -> timedelta:
        return _KEEP_ALL if any(version != newest for version in self._pins) else _KEEP_LATEST

    async def _maintain_chunks(self) -> None:
        stats = await self._chunks.stats()
        if await self._is_compaction_due(stats):
            await self._chunks.optimize(cleanup_older_than=_KEEP_ALL)
            await self._rebuild_vector_index_if_split()
            return
        newest = await self._chunks.version()
        is_compact = stats["fragment_stats"]["num_fragments"] <= 1 and _deleted_share(stats) == 0
        if is_compact and self._keep(newest) == _KEEP_LATEST:
            # Compaction has nothing to do here, so this only removes old versions and the files they alone hold.
            await self._chunks.optimize(cleanup_older_than=_KEEP_LATEST, delete_unverified=True)

    async def _is_compaction_due(self, stats: Any) -> bool:
        if stats["fragment_stats"]["num_fragments"] > MAX_FRAGMENTS or _deleted_share(stats) > MAX_DELETED_SHARE:
            return True
        index = await self._chunks.index_stats(_VECTOR_INDEX)
        if index is None:
            return False
        return bool(index.num_unindexed_rows > max(MIN_UNINDEXED_ROWS, MAX_UNINDEXED_SHARE * stats["num_rows"]))

    async def _rebuild_vector_index_if_split(self) -> None:
        index = await self._chunks.index_stats(_VECTOR_INDEX)
        if index is not None and (index.num_indices or 0) > MAX_DELTA_INDEXES:
            await self._build_vector_index()

    async def _build_vector_index(self) -> None:
        rows = await self._chunks.count_rows()
        if rows:
            partitions = max(1, rows // _ROWS_PER_PARTITION)
            config = IvfSq(distance_type="cosine", num_partitions=partitions)
            await self._chunks.create_index("vector", config=config, replace=True, name=_VECTOR_INDEX)


async def _connect(directory: Path) -> lancedb.AsyncConnection:
    session = lancedb.Session(_INDEX_CACHE_BYTES, _METADATA_CACHE_BYTES)
    return await lancedb.connect_async(directory, session=session)


def _term_index() -> FTS:
    """Return the index that takes the analyser's terms as they are: all that LanceDB would do to words is off."""
    return FTS(
        base_tokenizer="whitespace",
        with_position=False,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )


async def _rows(query: Any, where: str | None) -> pa.Table:
    with _translated():
        return await (query if where is None else query.where(where)).to_arrow()


async def _add(table: lancedb.AsyncTable, rows: pa.RecordBatch | None) -> None:
    if rows is not None and rows.num_rows:
        await table.add(rows)


def _id_predicates(doc_ids: Collection[str]) -> Iterator[str]:
    for part in _parts(sorted(set(doc_ids))):
        yield f"doc_id IN ({', '.join(map(sql_string, part))})"


def _memo_predicates(memos: Collection[tuple[str, str]]) -> Iterator[str]:
    for part in _parts(sorted(set(memos))):
        pairs = (f"(name = {sql_string(name)} AND fingerprint = {sql_string(mark)})" for name, mark in part)
        yield " OR ".join(pairs)


def _parts(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _IDS_PER_STATEMENT] for start in range(0, len(values), _IDS_PER_STATEMENT))


def _deleted_share(stats: Any) -> float:
    """Return the share of stored rows that are deleted, in [0, 1]; LanceDB's lengths count deleted rows too."""
    stored = stats["fragment_stats"]["lengths"]["mean"] * stats["fragment_stats"]["num_fragments"]
    return 1 - stats["num_rows"] / stored if stored else 0.0


def _link(source: str, target: str) -> None:
    """Hard-link a file; the version hint, which is no truth and may be rewritten, is copied."""
    if source.endswith(".json"):
        shutil.copy2(source, target)
    else:
        os.link(source, target)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what LanceDB and the file system raise for a full disk or broken files into Unavailable or CorruptData."""
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        text = str(error)
        if "No space left" in text or "os error 28" in text or "Disk quota exceeded" in text:
            raise Unavailable(
                "no space is left for the table: free some or raise spec.storage", code="disk_full"
            ) from error
        if any(sign in text for sign in _BROKEN_SIGNS):
            raise CorruptData(f"files of the table are missing or broken: {text[:256]}; restore a snapshot") from error
        raise


_BROKEN_SIGNS = (
    "Not found",
    "not found",
    "No such file",
    "corrupt",
    "LanceError(IO)",
    "invalid data",
    "file size is too small",
)
