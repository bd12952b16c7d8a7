"""Columns of the two tables of a corpus, in the order in which they are stored.

`id` stays first and is never null: LanceDB looks rows up by it. JSON columns are kept as binary JSON: object keys come
back sorted, white space normalised and integers beyond 64 bits rounded to float64, so whoever needs bytes that never
change (the content hash) computes them before a row is stored.
"""

import pyarrow as pa

from groundplane.errors import CorruptData

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
