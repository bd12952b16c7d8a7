"""What may be logged: everything that could not be applied, stored or searched later is refused by name before."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane.wire.internal import ChunkInput, DeleteDocument, DeleteMemo, PutMemo, ReplaceDocument
from groundplane.wire.public import MAX_MEMO_BYTES, MAX_METADATA_BYTES, Basis
from groundplane_shard.rows import (
    MAX_CHUNK_TERMS,
    StoredDelete,
    StoredMemo,
    StoredMemoDelete,
    prepare,
    prepare_operation,
    unit_vectors,
)
from tests.shard.corpus_model import ANALYSER, EMBEDDING, replace, stored, vector_bytes

ONE = vector_bytes(1, 0, 0)
PLAIN = replace("a", ["pump leak"], [(1, 0, 0)])


def changed(**columns: Any) -> ReplaceDocument:
    return msgspec.structs.replace(PLAIN, **columns)


def chunks(*bounds: tuple[int, int]) -> tuple[ChunkInput, ...]:
    return tuple(ChunkInput(start, end, None, ONE) for start, end in bounds)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param(changed(doc_id=""), "doc_id", id="empty-id"),
        pytest.param(changed(doc_id="a\x00"), "doc_id", id="control-character"),
        pytest.param(changed(doc_id="x" * 513), "doc_id", id="long-id"),
        pytest.param(changed(text="pump \ud800eak"), "text", id="lone-surrogate"),
        pytest.param(changed(title="\ud800"), "title", id="title-surrogate"),
        pytest.param(changed(uri="u" * 2_049), "uri", id="long-uri"),
        pytest.param(changed(chunks=()), "chunks", id="no-chunks"),
        pytest.param(changed(chunks=chunks((1, 9))), "chunks[0]", id="starts-late"),
        pytest.param(changed(chunks=chunks((0, 4), (5, 9))), "chunks[1]", id="gap"),
        pytest.param(changed(chunks=chunks((0, 6), (2, 5), (5, 9))), "chunks[1]", id="ends-before-the-last"),
        pytest.param(changed(chunks=chunks((0, 8), (5, 9), (4, 9))), "chunks[2]", id="out-of-order"),
        pytest.param(changed(chunks=chunks((0, 0), (0, 9))), "chunks[0]", id="empty-chunk"),
        pytest.param(changed(chunks=chunks((0, 8))), "chunks[0].end", id="ends-early"),
        pytest.param(changed(chunks=chunks((0, 10))), "chunks[0].end", id="beyond-the-text"),
        pytest.param(changed(chunks=chunks((-1, 9))), "chunks[0]", id="negative"),
        pytest.param(changed(metadata=b"[]"), "metadata", id="not-an-object"),
        pytest.param(changed(metadata=b"{"), "metadata", id="not-json"),
        pytest.param(changed(metadata=b'{"a":NaN}'), "metadata", id="not-a-number"),
        pytest.param(changed(metadata=b'{"a":"\\ud800"}'), "metadata", id="metadata-surrogate"),
        pytest.param(changed(metadata=b'{"a":[18446744073709551616]}'), "metadata", id="integer-beyond-64-bits"),
        pytest.param(changed(metadata=b'{"a":1' + b"0" * 5_000 + b"}"), "metadata", id="endless-integer"),
        pytest.param(changed(metadata=b'{"a":' + b"[" * 9 + b"]" * 9 + b"}"), "metadata", id="deep"),
        pytest.param(changed(metadata=b'{"a":' + b"[" * 7_000 + b"]" * 7_000 + b"}"), "metadata", id="very-deep"),
        pytest.param(changed(metadata=b" " * MAX_METADATA_BYTES + b"{}"), "metadata", id="large"),
    ],
)
def test_what_could_not_be_applied_is_refused_by_name(document, field):
    """A record that cannot be applied would make the shard fail at every start."""
    with pytest.raises(InvalidInput) as refused:
        prepare(document, ANALYSER, 3, EMBEDDING)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        pytest.param(vector_bytes(1, 0), "dimension_mismatch", id="short"),
        pytest.param(vector_bytes(1, 0, 0, 0), "dimension_mismatch", id="long"),
        pytest.param(ONE[:-1], "dimension_mismatch", id="torn"),
        pytest.param(vector_bytes(0, 0, -0.0), "zero_vector", id="zero"),
        pytest.param(vector_bytes(0, float("nan"), 1), "invalid_vector", id="not-a-number"),
        pytest.param(vector_bytes(float("inf"), 0, 1), "invalid_vector", id="infinite"),
    ],
)
def test_a_vector_without_direction_is_refused_with_its_own_code(vector, code):
    """Each reason is handled differently by the router, and the second of two chunks must be named."""
    good = ChunkInput(0, 4, None, ONE)
    document = changed(chunks=(good, ChunkInput(4, 9, None, vector)))

    with pytest.raises(InvalidInput) as refused:
        prepare(document, ANALYSER, 3, EMBEDDING)

    assert (refused.value.code, refused.value.field) == (code, "chunks[1].vector")


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=8).filter(any))
def test_stored_vectors_have_unit_length(numbers):
    """A cosine is then one dot product, for tiny and huge vectors alike."""
    (unit,) = unit_vectors([vector_bytes(*numbers)], len(numbers))

    assert abs(float(np.linalg.norm(unit.astype(np.float64))) - 1) < 1e-6


def test_a_chunk_is_found_by_title_heading_and_text():
    """All three belong to what a chunk says; its text stays a slice of the document's."""
    document = stored("a", ["pumps ", "leak"], title="Manual", heading="Valves")

    assert [chunk.terms for chunk in document.chunks] == ["manual valv pump", "manual valv leak"]
    assert [chunk.length for chunk in document.chunks] == [3, 3]
    assert [chunk.text for chunk in document.chunks] == ["pumps ", "leak"]


def test_a_chunk_of_too_many_terms_is_refused():
    """One chunk must not hold the event loop: applying takes time by its terms."""
    with pytest.raises(InvalidInput, match="terms"):
        stored("a", ["x " * (MAX_CHUNK_TERMS + 1)])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(changed(text="pump leaks", chunks=chunks((0, 10))), id="text"),
        pytest.param(changed(title="t"), id="title"),
        pytest.param(changed(uri="u"), id="uri"),
        pytest.param(changed(metadata=b'{"a":1}'), id="metadata"),
        pytest.param(changed(chunker="other"), id="chunker"),
    ],
)
def test_content_hash_differs_with_whatever_changes_what_is_stored(other):
    """`unchanged` must never swallow a change."""
    hashes = {prepare(document, ANALYSER, 3, EMBEDDING).content_hash for document in (PLAIN, other)}

    assert len(hashes) == 2


def test_content_hash_differs_with_analyser_and_embedding():
    """Both change terms or vectors without any change of the text."""
    hashes = {
        prepare(PLAIN, ANALYSER, 3, EMBEDDING).content_hash,
        prepare(PLAIN, ANALYSER, 3, "1" * 32).content_hash,
        prepare(PLAIN, type(ANALYSER)("german"), 3, EMBEDDING).content_hash,
    }

    assert len(hashes) == 3


def test_content_hash_ignores_how_metadata_is_written():
    """Key order and white space do not survive the table, so they must not count as a change."""
    hashes = {
        prepare(changed(metadata=text), ANALYSER, 3, EMBEDDING).content_hash
        for text in (b'{"a":1,"b":2}', b'{ "b": 2, "a": 1 }')
    }

    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param(DeleteDocument(doc_id="a"), StoredDelete("a"), id="delete"),
        pytest.param(
            PutMemo(name="n", fingerprint="f", response=b"[1]", basis=Basis()),
            StoredMemo("n", "f", b"[1]", Basis()),
            id="put-memo",
        ),
        pytest.param(DeleteMemo(name="n", fingerprint="f"), StoredMemoDelete("n", "f"), id="delete-memo"),
    ],
)
def test_other_operations_are_stored_as_they_are(operation, expected):
    """They have nothing to be analysed."""
    assert prepare_operation(operation, ANALYSER, 3, EMBEDDING) == expected


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        pytest.param(DeleteDocument(doc_id="\n"), "doc_id", id="delete"),
        pytest.param(PutMemo(name="", fingerprint="f", response=b"1", basis=Basis()), "name", id="memo-name"),
        pytest.param(DeleteMemo(name="n", fingerprint="f" * 257), "fingerprint", id="memo-fingerprint"),
        pytest.param(PutMemo(name="n", fingerprint="f", response=b"{", basis=Basis()), "response", id="not-json"),
        pytest.param(
            PutMemo(name="n", fingerprint="f", response=b"1" * (MAX_MEMO_BYTES + 1), basis=Basis()),
            "response",
            id="large-memo",
        ),
    ],
)
def test_other_operations_are_checked_too(operation, field):
    """A delete or a memo goes through the same log."""
    with pytest.raises(InvalidInput) as refused:
        prepare_operation(operation, ANALYSER, 3, EMBEDDING)

    assert refused.value.field == field
