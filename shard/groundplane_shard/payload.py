"""The payload of a log record: one Arrow IPC stream with one row an operation, a document's chunks as a list in its row.

Columns that an operation has no use for are null. Vectors are decoded without a copy: they point into the payload.
Raises `CorruptData` for bytes that `encode` did not write. Never change a column in place: a new layout needs a new
format version of the log record, and this one stays readable.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groundplane.errors import CorruptData
from groundplane.wire.public import Basis
from groundplane_shard.rows import (
    Matrix,
    StoredChunk,
    StoredDelete,
    StoredDocument,
    StoredMemo,
    StoredMemoDelete,
    StoredOperation,
)

_DOCUMENT, _DELETE, _MEMO, _MEMO_DELETE = range(4)
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow columnar format, "IPC Streaming Format"
_ROW_COLUMNS = (
    ("kind", pa.uint8()),
    ("key", pa.string()),  # doc_id, or a memo's name
    ("fingerprint", pa.string()),
    ("title", pa.string()),
    ("uri", pa.string()),
    ("chunker", pa.string()),
    ("body", pa.binary()),  # metadata, or a memo's response
    ("basis", pa.binary()),
    ("content_hash", pa.binary()),
)
_CHUNK_COLUMNS = (
    ("start", pa.int32()),
    ("end", pa.int32()),
    ("heading", pa.string()),
    ("text", pa.string()),
    ("terms", pa.string()),
    ("length", pa.int32()),
)

_Row = tuple[Any, ...]


def encode(operations: Sequence[StoredOperation]) -> bytes:
    """Return the payload that holds `operations` in order. All documents have vectors of one size."""
    documents = [operation for operation in operations if isinstance(operation, StoredDocument)]
    columns = zip(*map(_row, operations), strict=True)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, _ROW_COLUMNS, strict=True)]
    counts = [len(operation.chunks) if isinstance(operation, StoredDocument) else 0 for operation in operations]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    arrays.append(pa.ListArray.from_arrays(pa.array(offsets), _chunk_array(documents)))
    schema, opening = _stream_opening(documents[0].vectors.shape[1] if documents else 0)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return b"".join((opening, batch.serialize().to_pybytes(), _END_OF_STREAM))


@functools.lru_cache(maxsize=8)
def _stream_opening(dimension: int) -> tuple[pa.Schema, bytes]:
    """Return the schema of a payload with vectors of this size, and the message that an Arrow stream begins with."""
    chunk = pa.struct([*_CHUNK_COLUMNS, ("vector", pa.list_(pa.float32(), dimension))])
    schema = pa.schema([*_ROW_COLUMNS, ("chunks", pa.list_(chunk))])
    return schema, schema.serialize().to_pybytes()


def decode(payload: bytes, dimension: int | None) -> tuple[StoredOperation, ...]:
    """Return the operations in `payload`. Raises CorruptData if it is not one of `encode`, or of another `dimension`.

    dimension: None while the corpus has no vectors yet.
    """
    try:
        batch = pa.ipc.open_stream(payload).read_next_batch()
        batch.validate(full=True)
        names = [*(name for name, _ in _ROW_COLUMNS), "chunks"]
        if batch.schema.names != names:
            raise CorruptData(f"log payload has columns {batch.schema.names}: expected {names}")
        chunks, vectors = _read_chunks(batch.column("chunks"), dimension)
        bounds = batch.column("chunks").offsets.to_pylist()
        rows = zip(*(column.to_pylist() for column in batch.columns[:-1]), strict=True)
        return tuple(
            _operation(row, chunks[start:end], vectors[start:end])
            for row, start, end in zip(rows, bounds, bounds[1:], strict=False)
        )
    except (pa.ArrowInvalid, msgspec.MsgspecError, StopIteration, OSError) as error:
        raise CorruptData("log payload cannot be read: expected an Arrow stream of this version") from error


def document_ids(payload: bytes) -> set[str]:
    """Return the ids of the documents that the operations in `payload` replace or delete. Raises CorruptData."""
    try:
        batch = pa.ipc.open_stream(payload).read_next_batch()
        kinds, keys = batch.column("kind").to_pylist(), batch.column("key").to_pylist()
    except (pa.ArrowInvalid, KeyError, StopIteration, OSError) as error:
        raise CorruptData("log payload cannot be read: expected an Arrow stream of this version") from error
    return {key for kind, key in zip(kinds, keys, strict=True) if kind in {_DOCUMENT, _DELETE}}


def _row(operation: StoredOperation) -> _Row:
    match operation:
        case StoredDocument():
            return (
                _DOCUMENT,
                operation.doc_id,
                None,
                operation.title,
                operation.uri,
                operation.chunker,
                operation.metadata,
                None,
                operation.content_hash,
            )
        case StoredDelete():
            return (_DELETE, operation.doc_id, *[None] * 7)
        case StoredMemo():
            basis = msgspec.json.encode(operation.basis)
            return (_MEMO, operation.name, operation.fingerprint, None, None, None, operation.response, basis, None)
        case StoredMemoDelete():
            return (_MEMO_DELETE, operation.name, operation.fingerprint, *[None] * 6)


def _operation(row: _Row, chunks: Sequence[StoredChunk], vectors: Matrix) -> StoredOperation:
    kind, key, fingerprint, title, uri, chunker, body, basis, content_hash = row
    match kind:
        case 0:
            return StoredDocument(key, title, uri, body, content_hash, chunker, tuple(chunks), vectors)
        case 1:
            return StoredDelete(key)
        case 2:
            return StoredMemo(key, fingerprint, body, msgspec.json.decode(basis, type=Basis))
        case 3:
            return StoredMemoDelete(key, fingerprint)
        case _:
            raise CorruptData(f"log payload holds an operation of kind {kind}: expected 0 to 3")


def _chunk_array(documents: Sequence[StoredDocument]) -> pa.StructArray:
    """Return the chunks of all documents, flat; a payload without documents has vectors of size 0."""
    chunks = [chunk for document in documents for chunk in document.chunks]
    fields = [pa.array([getattr(chunk, name) for chunk in chunks], kind) for name, kind in _CHUNK_COLUMNS]
    vectors = vector_array(np.concatenate([document.vectors for document in documents])) if documents else _NO_VECTORS
    return pa.StructArray.from_arrays([*fields, vectors], names=[*(name for name, _ in _CHUNK_COLUMNS), "vector"])


def vector_array(matrix: Matrix) -> pa.FixedSizeListArray:
    """Return the rows of `matrix` as an Arrow column, without a copy."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def vector_matrix(column: pa.FixedSizeListArray) -> Matrix:
    """Return an Arrow column of vectors without nulls as a read-only matrix, without a copy."""
    size = column.type.list_size
    flat: npt.NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=True)
    return flat.reshape(len(column), size)


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return Python values, those of an extension type (JSON) as text."""
    kind = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    values: list[Any] = column.cast(kind).to_pylist()
    return values


_NO_VECTORS = pa.array([], pa.list_(pa.float32(), 0))


def _read_chunks(column: pa.ListArray, dimension: int | None) -> tuple[list[StoredChunk], Matrix]:
    values = column.values
    vectors = values.field("vector")
    if len(values) and dimension is not None and vectors.type.list_size != dimension:
        raise CorruptData(
            f"log payload has vectors of size {vectors.type.list_size}: expected {dimension}, the corpus's"
        )
    fields: Iterator[_Row] = zip(*(values.field(name).to_pylist() for name, _ in _CHUNK_COLUMNS), strict=True)
    return [StoredChunk(*row) for row in fields], vector_matrix(vectors)
