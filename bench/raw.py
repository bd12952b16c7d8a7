"""The baseline: LanceDB used in-process, as somebody would who needs no server.

One search is what the product's shard does for its caller: both legs, k = 50, with text and true cosine, fused to 5.
Three settings are timed:
- `raw`: IVF_SQ on the vectors (half the time of a scan already at 10,000 rows), one leg after the other. The ratios of
  the bars divide by this one, as their bars were set with it.
- `raw_together`: the same, both legs at once through LanceDB's asynchronous API; uses both cores for one query.
- `raw_flat`: no vector index.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfSq
from numpy.typing import NDArray

from bench.corpus import DIMENSION, Query, Rows

LEG = 50
TOP = 5
UPSERTS = 10  # the first ten: LanceDB slows down with every fragment after them
_DENSE_WEIGHT = 0.8


class Hit(NamedTuple):
    """One row of the fused answer."""

    id: str
    score: float
    text: str


class RawTable:
    """A table with text and scalar index, and IVF_SQ if `is_indexed`, all of it optimized."""

    def __init__(self, directory: Path, rows: Rows, *, is_indexed: bool) -> None:
        self._table: Any = lancedb.connect(directory).create_table("chunks", arrow_of(rows))
        self._table.create_index("text", config=FTS())
        self._table.create_index("id", config=BTree())
        if is_indexed:
            self._table.create_index("vector", config=IvfSq(distance_type="cosine"))
        self._table.optimize()
        self._loop = asyncio.new_event_loop()
        self._asynchronous = self._loop.run_until_complete(_open(directory))

    def search(self, query: Query) -> list[Hit]:
        """Return the best five, one leg after the other. Any thread may call."""
        dense = self._table.search(query.vector, vector_column_name="vector").distance_type("cosine").limit(LEG)
        words = self._table.search(query.text, query_type="fts").limit(LEG)
        return fuse(
            query.vector,
            dense.select(["id", "text", "vector", "_distance"]).to_arrow(),
            words.select(["id", "text", "vector", "_score"]).to_arrow(),
        )

    def search_together(self, query: Query) -> list[Hit]:
        """Return the same, both legs at once. Only one thread may call."""
        return self._loop.run_until_complete(self._search_together(query))

    async def _search_together(self, query: Query) -> list[Hit]:
        dense = self._asynchronous.query().nearest_to(query.vector).distance_type("cosine").limit(LEG)
        words = self._asynchronous.query().nearest_to_text(query.text).limit(LEG)
        legs = await asyncio.gather(
            dense.select(["id", "text", "vector", "_distance"]).to_arrow(),
            words.select(["id", "text", "vector", "_score"]).to_arrow(),
        )
        return fuse(query.vector, *legs)

    def upsert(self, row: Rows) -> None:
        """Insert one row, or replace the one with its id."""
        change = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        change.execute(arrow_of(row))

    def upsert_seconds(self, rows: Rows) -> list[float]:
        """Return how long each of the first upserts takes."""
        durations = []
        for index in range(UPSERTS):
            row = rows.part(index, index + 1)
            start = time.perf_counter()
            self.upsert(row)
            durations.append(time.perf_counter() - start)
        return durations

    def close(self) -> None:
        """Let go of the event loop."""
        self._loop.close()


def arrow_of(rows: Rows) -> pa.Table:
    """Return the rows as LanceDB takes them."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.reshape(-1)), DIMENSION)
    return pa.table({"id": rows.ids, "text": rows.texts, "vector": vectors})


def fuse(query: NDArray[np.float32], dense: pa.Table, words: pa.Table) -> list[Hit]:
    """Return the best five of both legs by the product's formula; a row that one leg alone found has no BM25 there."""
    ids = [*dense["id"].to_pylist(), *words["id"].to_pylist()]
    first = np.unique(np.array(ids), return_index=True)[1]
    cosines = np.concatenate([_vectors(dense), _vectors(words)]) @ query
    scores_by_id = dict(zip(words["id"].to_pylist(), words["_score"].to_pylist(), strict=True))
    bm25 = np.array([scores_by_id.get(each, 0.0) for each in ids])
    fused = _DENSE_WEIGHT * (cosines + 1) / (cosines.max() + 1) + (1 - _DENSE_WEIGHT) * bm25 / max(bm25.max(), 1e-9)
    best = first[np.argsort(-fused[first], kind="stable")[:TOP]].tolist()
    texts = [*dense["text"].to_pylist(), *words["text"].to_pylist()]
    return [Hit(ids[index], float(fused[index]), texts[index]) for index in best]


def _vectors(table: pa.Table) -> NDArray[np.float32]:
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(-1, DIMENSION)


async def _open(directory: Path) -> Any:
    database = await lancedb.connect_async(directory)
    return await database.open_table("chunks")
