"""The payload of a log record gives back exactly the operations that were put into it, or says that it cannot."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.errors import CorruptData
from groundplane.wire.public import Basis, ScopeBasis
from groundplane_shard.payload import decode, document_ids, encode
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredMemoDelete, StoredOperation
from tests.shard.corpus_model import deletes, documents, stored

BASIS = Basis(tenant=ScopeBasis(incarnation="0" * 8 + "-0000-0000-0000-" + "0" * 12, sequence=7))
memos = st.sampled_from([StoredMemo("n", "f", b'{"a":1}', BASIS), StoredMemoDelete("n'", "東")])


def fields_of(operation: StoredOperation) -> object:
    if not isinstance(operation, StoredDocument):
        return operation
    return [getattr(operation, name) for name in operation.__struct_fields__[:-1]], operation.vectors.tolist()


@settings(max_examples=50)
@given(st.lists(st.one_of(documents(), deletes, memos), min_size=1, max_size=5))
def test_decode_gives_back_what_was_encoded(operations):
    """Replay must see the very operations that were acknowledged."""
    decoded = decode(encode(operations), 3)

    assert [fields_of(each) for each in decoded] == [fields_of(each) for each in operations]


@settings(max_examples=50)
@given(st.lists(st.one_of(documents(), deletes, memos), min_size=1, max_size=5))
def test_a_payload_is_the_stream_that_arrow_itself_would_write(operations):
    """Any Arrow library reads it, and versions of this program agree to the byte."""
    encoded = encode(operations)
    batch = pa.ipc.open_stream(encoded).read_next_batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)

    assert sink.getvalue().to_pybytes() == encoded


@settings(max_examples=50)
@given(st.lists(st.one_of(documents(), deletes, memos), min_size=1, max_size=5))
def test_document_ids_are_those_of_the_operations(operations):
    """What is looked up before a replay is what the replay will supersede."""
    named = {each.doc_id for each in operations if isinstance(each, (StoredDocument, StoredDelete))}

    assert document_ids(encode(operations)) == named


def test_document_ids_of_what_is_no_payload_are_refused():
    """The record is judged when it is applied; until then it must not end the process."""
    with pytest.raises(CorruptData):
        document_ids(b"no arrow")


def test_decoded_vectors_lie_in_the_payload():
    """A replay of a long log must not copy every vector twice."""
    (document,) = decode(encode([stored("a")]), 3)

    assert isinstance(document, StoredDocument)
    assert not document.vectors.flags.owndata
    assert document.vectors.dtype == np.float32


@pytest.mark.parametrize("dimension", [pytest.param(None, id="not-fixed-yet"), pytest.param(3, id="fixed")])
def test_a_payload_without_documents_fits_every_dimension(dimension):
    """Deletes and memos carry no vectors to compare."""
    assert decode(encode([StoredDelete("a")]), dimension) == (StoredDelete("a"),)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not arrow", id="other-bytes"),
        pytest.param(encode([stored("a")])[:200], id="cut"),
    ],
)
def test_bytes_that_were_not_encoded_are_corrupt(payload):
    """A damaged record is neither skipped nor read as something else."""
    with pytest.raises(CorruptData):
        decode(payload, 3)


def test_vectors_of_another_dimension_are_corrupt():
    """Vectors of two sizes never meet in one index."""
    with pytest.raises(CorruptData, match="size 3: expected 4"):
        decode(encode([stored("a")]), 4)
