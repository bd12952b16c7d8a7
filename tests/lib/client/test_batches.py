"""Batches: everything once, in order, within the router's bounds."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from groundplane.client import ClientOptions, DocumentInput
from groundplane.client.batches import cut_batches

DOCUMENTS = st.lists(st.builds(DocumentInput, id=st.sampled_from("abcdefgh"), text=st.text(max_size=600)), max_size=30)


@given(documents=DOCUMENTS, count=st.integers(1, 5))
def test_batches_hold_every_document_once_and_in_order(documents, count):
    """Nothing that was read may be lost between file and request."""
    batches = list(cut_batches(documents, ClientOptions(batch_documents=count, batch_bytes=1_024)))

    assert [document for batch in batches for document in batch] == documents


@given(documents=DOCUMENTS, count=st.integers(1, 5))
def test_batches_stay_within_count_and_size(documents, count):
    """Only a document that is too large alone may exceed the size, and then it is alone."""
    for batch in cut_batches(documents, ClientOptions(batch_documents=count, batch_bytes=1_024)):
        assert 1 <= len(batch) <= count
        assert len(batch) == 1 or sum(len(msgspec.json.encode(document)) for document in batch) <= 1_024


@given(documents=DOCUMENTS)
def test_an_id_stands_once_in_a_batch(documents):
    """Within one request two versions of a document have no order."""
    for batch in cut_batches(documents, ClientOptions(batch_documents=10)):
        assert len({document.id for document in batch}) == len(batch)
