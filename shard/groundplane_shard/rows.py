"""Stored operations: what a write becomes before it is logged, and what a log record's payload decodes to.

`prepare` is the last place that may refuse a document: whatever it returns can be applied, stored and searched, today
and at every replay. The terms of a chunk are those of its title, its heading and its text, in this order, so that a
question can find a chunk by the title of its document; the chunk's `text` is a plain slice of the document's text.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from groundplane.analysis import Analyser
from groundplane.errors import InvalidInput
from groundplane.wire.content import Content
from groundplane.wire.internal import (
    ChunkInput,
    DeleteDocument,
    DeleteMemo,
    Operation,
    PutMemo,
    ReplaceDocument,
    TakeReindexStep,
)
from groundplane.wire.public import (
    MAX_MEMO_BYTES,
    MAX_TEXT_CHARACTERS,
    Basis,
    check_identifier,
)
from groundplane_shard.schema import canonical_metadata

MAX_CHUNK_TERMS = 8_192
MAX_MEMO_NAME_CHARACTERS = 256

Matrix = npt.NDArray[np.float32]

_COLUMN_LIMITS = {"title": 1_024, "uri": 2_048, "chunker": 256}
_MAX_HEADING_CHARACTERS = 4_096


class StoredChunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk: characters [start, end) of its document. `terms` are joined by single spaces, `length` counts them."""

    start: int
    end: int
    heading: str | None
    text: str
    terms: str
    length: int


class StoredDocument(msgspec.Struct, frozen=True, eq=False):
    """A whole document as it will be searched; chunk i has ordinal i and row i of `vectors`.

    vectors: float32, (chunks, dimension), rows of unit length. `metadata` is JSON with sorted keys.
    """

    doc_id: str
    title: str | None
    uri: str | None
    metadata: bytes
    content_hash: bytes
    chunker: str
    chunks: tuple[StoredChunk, ...]
    vectors: Matrix


class StoredDelete(msgspec.Struct, frozen=True):
    """The removal of one document."""

    doc_id: str


class StoredMemo(msgspec.Struct, frozen=True):
    """One memo; `response` is JSON."""

    name: str
    fingerprint: str
    response: bytes
    basis: Basis


class StoredMemoDelete(msgspec.Struct, frozen=True):
    """The removal of one memo."""

    name: str
    fingerprint: str


StoredOperation = StoredDocument | StoredDelete | StoredMemo | StoredMemoDelete


def prepare_operation(operation: Operation, analyser: Analyser, dimension: int, embedding_id: str) -> StoredOperation:
    """Return `operation` as it is logged. Raises InvalidInput naming the field for whatever could not be applied later."""
    match operation:
        case ReplaceDocument():
            return prepare(operation, analyser, dimension, embedding_id)
        case DeleteDocument():
            return StoredDelete(check_identifier(operation.doc_id, "doc_id"))
        case PutMemo():
            return _prepare_memo(operation)
        case DeleteMemo():
            return StoredMemoDelete(*_memo_key(operation))
        case TakeReindexStep():
            raise InvalidInput("a step of a re-embedding goes alone: expected no other operation", field="operations")


def prepare(document: ReplaceDocument, analyser: Analyser, dimension: int, embedding_id: str) -> StoredDocument:
    """Return `document` checked, analysed and with vectors of unit length.

    About 40 µs for a chunk of 120 words: call it in a thread for more than a hundred chunks. Raises InvalidInput naming
    the field for an id, text, offset, vector or metadata that could not be applied.
    """
    _check_columns(document)
    _check_offsets(document)
    metadata = canonical_metadata(document.metadata)
    vectors = unit_vectors([chunk.vector for chunk in document.chunks], dimension)
    title_terms = analyser.terms(document.title) if document.title else []
    chunks = tuple(
        _prepare_chunk(document.text, chunk, title_terms, analyser, f"chunks[{ordinal}]")
        for ordinal, chunk in enumerate(document.chunks)
    )
    content = Content(
        text=document.text,
        title=document.title,
        uri=document.uri,
        metadata=metadata,
        chunker=document.chunker,
        analyser_id=analyser.id,
        embedding_id=embedding_id,
    )
    return StoredDocument(
        doc_id=document.doc_id,
        title=document.title,
        uri=document.uri,
        metadata=metadata,
        content_hash=content.digest(),
        chunker=document.chunker,
        chunks=chunks,
        vectors=vectors,
    )


def unit_vectors(vectors: Sequence[bytes], dimension: int, field: str = "chunks[{}].vector") -> Matrix:
    """Return little-endian float32 `vectors` as rows of unit length, (len(vectors), dimension).

    Raises InvalidInput (code `dimension_mismatch`, `zero_vector` or `invalid_vector`) with the position put into `field`.
    """
    for position, vector in enumerate(vectors):
        if len(vector) != 4 * dimension:
            raise InvalidInput(
                f"vector has {len(vector)} bytes: expected {4 * dimension} for {dimension} float32 numbers",
                code="dimension_mismatch",
                field=field.format(position),
            )
    rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), dimension).astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    for position in np.flatnonzero(~np.isfinite(norms) | (norms == 0)).tolist():
        zero = norms[position] == 0
        raise InvalidInput(
            f"vector {'is all zero' if zero else 'holds a number that is not finite'}: expected a direction",
            code="zero_vector" if zero else "invalid_vector",
            field=field.format(position),
        )
    unit: Matrix = (rows / norms[:, np.newaxis]).astype(np.float32)
    return unit


def check_text(text: str, field: str, max_characters: int) -> str:
    """Return `text` if it is within bounds and UTF-8 can carry it. Raises InvalidInput."""
    if len(text) > max_characters:
        raise InvalidInput(f"{field} has {len(text)} characters: expected at most {max_characters}", field=field)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{field} holds a lone surrogate: expected text that UTF-8 can carry", field=field
        ) from error
    return text


def canonical_json(text: bytes | str) -> bytes:
    """Return JSON with sorted keys and no white space, so that the table's binary JSON gives back the same bytes.

    Raises what msgspec raises for text that is not JSON.
    """
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def _check_columns(document: ReplaceDocument) -> None:
    check_identifier(document.doc_id, "doc_id")
    check_text(document.text, "text", MAX_TEXT_CHARACTERS)
    for name, limit in _COLUMN_LIMITS.items():
        value = getattr(document, name)
        if value is not None:
            check_text(value, name, limit)


def _check_offsets(document: ReplaceDocument) -> None:
    """Refuse chunks from which the text could not be put together again: gaps, disorder, offsets out of range."""
    if not document.chunks:
        raise InvalidInput("chunks is empty: expected at least one", field="chunks")
    covered, previous_start = 0, 0
    for ordinal, chunk in enumerate(document.chunks):
        if not previous_start <= chunk.start <= covered or not max(covered, chunk.start + 1) <= chunk.end:
            raise InvalidInput(
                f"chunk covers characters {chunk.start} to {chunk.end} after {covered}: expected chunks in order without gaps",
                field=f"chunks[{ordinal}]",
            )
        covered, previous_start = chunk.end, chunk.start
    if covered != len(document.text):
        raise InvalidInput(
            f"chunks end at character {covered}: expected {len(document.text)}, the end of the text",
            field=f"chunks[{len(document.chunks) - 1}].end",
        )


def _prepare_chunk(text: str, chunk: ChunkInput, title_terms: list[str], analyser: Analyser, field: str) -> StoredChunk:
    if chunk.heading is not None:
        check_text(chunk.heading, f"{field}.heading", _MAX_HEADING_CHARACTERS)
    part = text[chunk.start : chunk.end]
    terms = [*title_terms, *(analyser.terms(chunk.heading) if chunk.heading else ()), *analyser.terms(part)]
    if len(terms) > MAX_CHUNK_TERMS:
        raise InvalidInput(
            f"{field} has {len(terms)} terms: expected at most {MAX_CHUNK_TERMS}; cut the text smaller", field=field
        )
    return StoredChunk(
        start=chunk.start, end=chunk.end, heading=chunk.heading, text=part, terms=" ".join(terms), length=len(terms)
    )


def _prepare_memo(memo: PutMemo) -> StoredMemo:
    name, fingerprint = _memo_key(memo)
    if len(memo.response) > MAX_MEMO_BYTES:
        raise InvalidInput(
            f"response has {len(memo.response)} bytes: expected at most {MAX_MEMO_BYTES}", field="response", status=413
        )
    try:
        msgspec.json.decode(memo.response)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("response cannot be read: expected JSON", field="response") from error
    return StoredMemo(name, fingerprint, memo.response, memo.basis)


def _memo_key(memo: PutMemo | DeleteMemo) -> tuple[str, str]:
    return (
        check_identifier(memo.name, "name", MAX_MEMO_NAME_CHARACTERS),
        check_identifier(memo.fingerprint, "fingerprint", MAX_MEMO_NAME_CHARACTERS),
    )
