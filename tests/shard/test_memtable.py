"""The memtable: what was appended is there at once, and a view taken before does not see it."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_shard.memtable import Memtable
from tests.shard.corpus_model import WORDS, documents, stored


def append(memtable, document, sequence=1):
    for _ in memtable.append(document, sequence):
        pass


@settings(max_examples=50)
@given(st.lists(documents(), min_size=1, max_size=6, unique_by=lambda each: each.doc_id), st.data())
def test_postings_equal_a_recount(corpus, data):
    """Frequencies and document frequencies of every term come from here, whatever was foreseen, rightly or wrongly."""
    memtable = Memtable()
    for document in corpus:
        for foreseen in data.draw(st.lists(st.sampled_from(corpus), max_size=2)):
            memtable.foresee(foreseen)
        append(memtable, document)
    counts = [Counter(chunk.terms.split()) for document in corpus for chunk in document.chunks]

    for term in {term for count in counts for term in count}:
        rows, frequencies = memtable.at(1).postings(term)
        expected = [(row, count[term]) for row, count in enumerate(counts) if term in count]
        assert list(zip(rows.tolist(), frequencies.tolist(), strict=True)) == expected
    recount = Counter(term for count in counts for term in count)
    assert memtable.document_frequencies(1) == dict(recount)


def test_vectors_are_kept_in_order_over_many_blocks():
    """Rows are found by number in blocks of a fixed size; documents cross the borders."""
    vectors = np.random.default_rng(3).standard_normal((2_500, 3)).astype(np.float32)
    memtable, stored_documents = Memtable(), []
    for start in range(0, 2_500, 25):
        document = stored(f"d{start}", ["pump"] * 25, vectors[start : start + 25].tolist())
        stored_documents.append(document)
        append(memtable, document)
    everything = np.concatenate([document.vectors for document in stored_documents])
    picked = np.array([2_499, 0, 1_023, 1_024, 2_047, 2_048])

    assert (memtable.vectors(picked) == everything[picked]).all()
    cosines = memtable.at(1).cosines(everything[0], None)
    np.testing.assert_allclose(cosines, everything @ everything[0], atol=1e-6)


def test_cosines_of_wanted_rows_do_not_depend_on_which_others_are_wanted():
    """Blocks of dead rows are passed over; a living row among them must still be found."""
    vectors = np.random.default_rng(4).standard_normal((2_500, 3)).astype(np.float32)
    memtable, query = Memtable(), np.array([0.6, 0.8, 0], dtype=np.float32)
    append(memtable, stored("a", ["pump"] * 2_500, vectors.tolist()))
    wanted = np.zeros(2_500, dtype=np.bool_)
    wanted[[1_030, 2_499]] = True

    found, everything = memtable.at(1).cosines(query, wanted), memtable.at(1).cosines(query, None)
    assert found[wanted].tolist() == everything[wanted].tolist()


def test_a_view_does_not_see_what_was_appended_later():
    """A half-applied batch lies in the memtable while searches go on."""
    memtable = Memtable()
    append(memtable, stored("a", ["pump"]))
    view = memtable.at(1)
    steps = memtable.append(stored("b", ["pump", "pump"]), 2)
    next(steps)

    assert view.postings("pump")[0].tolist() == [0]
    assert len(view.cosines(np.array([1, 0, 0], dtype=np.float32), None)) == 1
    assert view.documents.page(view.sequence, "", 10) == [memtable.documents.entries[0]]


def test_each_version_of_a_document_is_visible_at_its_own_time():
    """Two versions of one document may lie in one memtable, and views of both times are still in use."""
    memtable = Memtable()
    append(memtable, stored("a", ["pump"]), 1)
    memtable.documents.bury(0, 3)
    append(memtable, stored("a", ["valve"]), 3)
    memtable.documents.bury(1, 5)

    assert [memtable.documents.at("a", sequence) for sequence in range(6)] == [None, 0, 0, 1, 1, None]


def test_a_version_replaced_in_its_own_record_is_never_visible():
    """The last of two operations on one document in a batch wins, at once."""
    memtable = Memtable()
    append(memtable, stored("a", ["pump"]), 1)
    memtable.documents.bury(0, 1)
    append(memtable, stored("a", ["valve"]), 1)

    assert memtable.documents.at("a", 1) == 1
    assert memtable.living_rows(1).tolist() == [1]


def test_size_grows_with_what_is_held():
    """Flushes and the shedding of writes go by it: it must cover text, terms and vectors at least."""
    memtable = Memtable()
    document = stored("a", [" ".join(WORDS) * 100], metadata={"tag": "x" * 500})
    append(memtable, document)

    chunk = document.chunks[0]
    assert memtable.size_bytes > len(chunk.text) + len(chunk.terms) + document.vectors.nbytes + 500


def test_superseding_counts_a_document_once():
    """A document that is written again and again must not make an empty memtable look full."""
    memtable = Memtable()
    memtable.supersede("a", 1)
    size = memtable.size_bytes
    memtable.supersede("a", 2)

    assert (memtable.superseded, memtable.size_bytes, memtable.document_sequence) == ({"a": 1}, size, 2)
