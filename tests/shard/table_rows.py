"""Rows for tests of the table: every column filled, the ones that matter given."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from groundplane_shard.schema import MEMO_SCHEMA, chunk_schema


def chunk_rows(doc_ids: Sequence[str], **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return one chunk for each of `doc_ids` with `columns` in place of the defaults; vectors have two numbers, or as given."""
    count = len(doc_ids)
    defaults: Mapping[str, Sequence[Any]] = {
        "id": [f"{doc_id}#0" for doc_id in doc_ids],
        "doc_id": doc_ids,
        "ordinal": [0] * count,
        "start": [0] * count,
        "end": [4] * count,
        "heading": [None] * count,
        "text": ["text"] * count,
        "terms": ["text"] * count,
        "length": [1] * count,
        "vector": [[1.0, 0.5]] * count,
        "title": [None] * count,
        "uri": [None] * count,
        "metadata": ["{}"] * count,
        "chunker": ["words"] * count,
        "content_hash": [b"hash"] * count,
        "sequence": [1] * count,
    }
    filled = {**defaults, **columns}
    schema = chunk_schema(len(filled["vector"][0]))
    return pa.record_batch([pa.array(filled[field.name], field.type) for field in schema], schema=schema)


def memo_rows(names: Sequence[str], sequence: int = 1) -> pa.RecordBatch:
    """Return one memo with fingerprint `f` for each of `names`."""
    count = len(names)
    columns = {
        "name": names,
        "fingerprint": ["f"] * count,
        "response": [b"answer"] * count,
        "basis": [b"{}"] * count,
        "sequence": [sequence] * count,
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in MEMO_SCHEMA], schema=MEMO_SCHEMA)
