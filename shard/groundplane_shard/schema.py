"""Columns of the two tables of a corpus, in the order in which they are stored, and the JSON that they can hold.

`id` stays first and is never null: LanceDB looks rows up by it. `metadata` is kept as binary JSON and shown as text
again: keys sorted, no white space, numbers spelled its own way (`1e+300`). LanceDB 0.40 refuses repeated keys, turns
numbers beyond float64 into null and overflows the stack, which ends the process, on deep nesting (seen at 1,500
levels). So only what `canonical_metadata` returns may enter a log record: a committed record must be storable.
"""

from typing import Any

import msgspec
import pyarrow as pa

from groundplane.errors import CorruptData, InvalidInput
from groundplane.wire.public import MAX_METADATA_BYTES, MAX_METADATA_DEPTH

DISTANCE_COLUMN = "_distance"
SCORE_COLUMN = "_score"

MEMO_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("response", pa.binary(), nullable=False),
        pa.field("basis", pa.binary(), nullable=False),  # JSON of wire.public.Basis
        pa.field("sequence", pa.int64(), nullable=False),
    ]
)


def chunk_schema(dimension: int) -> pa.Schema:
    """Return the columns of `chunks` for vectors of `dimension` float32 numbers.

    `id` is `<doc_id>#<ordinal>`; `start` and `end` are character offsets into the document's text; `terms` are the
    analyser's, joined by spaces, and `length` is their number; `sequence` is that of the log record.
    """
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("ordinal", pa.int32(), nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
            pa.field("heading", pa.string()),
            pa.field("text", pa.string(), nullable=False),
            pa.field("terms", pa.string(), nullable=False),
            pa.field("length", pa.int32(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False),
            pa.field("title", pa.string()),
            pa.field("uri", pa.string()),
            pa.field("metadata", pa.json_(), nullable=False),
            pa.field("chunker", pa.string(), nullable=False),
            pa.field("content_hash", pa.binary(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
        ]
    )


CHUNK_COLUMNS = tuple(chunk_schema(1).names)


def vector_dimension(stored: pa.Schema) -> int:
    """Return the dimension of a stored `chunks` table. Raises CorruptData where its columns are not those of this version."""
    if tuple(stored.names) != CHUNK_COLUMNS:
        raise CorruptData(
            f"table chunks has columns {stored.names}: expected {list(CHUNK_COLUMNS)}; restore a snapshot"
        )
    vector = stored.field("vector").type
    if not pa.types.is_fixed_size_list(vector):
        raise CorruptData(f"column vector of table chunks has type {vector}: expected a fixed size list of float32")
    return int(vector.list_size)


def canonical_metadata(raw: bytes) -> bytes:
    """Return the JSON object `raw` with sorted, unique keys and without white space, as the table can keep it.

    Of repeated keys the last one stays. Idempotent. Raises InvalidInput for anything but an object within the limits of
    size, depth, float64 and, for integers, 64 bits.
    """
    if len(raw) > MAX_METADATA_BYTES:
        raise _bad_metadata(f"has {len(raw)} bytes: expected at most {MAX_METADATA_BYTES}")
    try:
        metadata = msgspec.json.decode(raw, type=dict[str, Any])
        _check_storable(metadata, 1)
        return msgspec.json.encode(metadata, order="sorted")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise _bad_metadata("is no JSON object of finite numbers: send an object") from error


def _check_storable(value: Any, depth: int) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise _bad_metadata("holds an integer beyond 64 bits: expected a smaller one, or text")
    if not isinstance(value, dict | list):
        return
    if depth > MAX_METADATA_DEPTH:
        raise _bad_metadata(f"is nested deeper than {MAX_METADATA_DEPTH} levels: flatten it")
    for item in value.values() if isinstance(value, dict) else value:
        _check_storable(item, depth + 1)


def _bad_metadata(fault: str) -> InvalidInput:
    return InvalidInput(f"metadata {fault}", field="metadata")
