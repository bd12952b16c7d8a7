"""Rows of the table made from a frozen memtable. Synchronous, for a worker thread.

Arrow turns a list of Python values into a column under the interpreter's lock, in which the event loop cannot run: 85 ms
for the texts of 17,000 chunks. Hence many small batches.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groundplane_shard.memtable import Memtable
from groundplane_shard.payload import vector_array
from groundplane_shard.rows import StoredMemo
from groundplane_shard.schema import MEMO_SCHEMA, chunk_schema

_ROWS_PER_BATCH = 1_024


def chunk_rows(frozen: Memtable, sequence: int) -> pa.Table | None:
    """Return the chunks alive at `sequence`, the last record that `frozen` holds; None if there are none."""
    rows = frozen.living_rows(sequence)
    if not len(rows):
        return None
    starts = range(0, len(rows), _ROWS_PER_BATCH)
    return pa.Table.from_batches([_chunk_batch(frozen, rows[start : start + _ROWS_PER_BATCH]) for start in starts])


def _chunk_batch(frozen: Memtable, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    picked = rows.tolist()
    numbers = frozen.document_of_row.values[rows].tolist()
    chunks = [frozen.chunks[row] for row in picked]
    entries = [frozen.documents.entries[number] for number in numbers]
    first_rows = frozen.documents.first_rows
    ordinals = [row - first_rows[number] for row, number in zip(picked, numbers, strict=True)]
    vectors = frozen.vectors(rows)
    columns = {
        "id": [f"{entry.doc_id}#{ordinal}" for entry, ordinal in zip(entries, ordinals, strict=True)],
        "ordinal": ordinals,
        "vector": vector_array(vectors),
    }
    for name in ("start", "end", "heading", "text", "terms", "length"):
        columns[name] = [getattr(chunk, name) for chunk in chunks]
    for name in ("doc_id", "title", "uri", "chunker", "content_hash", "sequence"):
        columns[name] = [getattr(entry, name) for entry in entries]
    metadata = pa.array([entry.metadata.decode() for entry in entries], pa.string())
    columns["metadata"] = pa.ExtensionArray.from_storage(pa.json_(), metadata)
    schema = chunk_schema(vectors.shape[1])
    return pa.record_batch([_column(columns[field.name], field) for field in schema], schema=schema)


def memo_rows(frozen: Memtable) -> pa.RecordBatch | None:
    """Return the memos that `frozen` put; None if there are none."""
    put = [(sequence, memo) for sequence, memo in frozen.memos.values() if memo is not None]
    if not put:
        return None
    columns = zip(*(_memo_row(sequence, memo) for sequence, memo in put), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, MEMO_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=MEMO_SCHEMA)


def _memo_row(sequence: int, memo: StoredMemo) -> tuple[str, str, bytes, bytes, int]:
    return memo.name, memo.fingerprint, memo.response, msgspec.json.encode(memo.basis), sequence


def _column(values: list[object] | pa.Array, field: pa.Field) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, field.type)
