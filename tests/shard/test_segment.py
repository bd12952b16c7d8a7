"""The base in memory: merging what was written equals building it from the table's rows."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.wire.filters import Eq, Filter, Lt
from groundplane_shard.flushing import chunk_rows
from groundplane_shard.memtable import Memtable
from groundplane_shard.rows import StoredDocument
from groundplane_shard.segment import Segment, build_segment, merge_segment
from tests.shard.corpus_model import documents, stored


def memtable_of(corpus: Sequence[StoredDocument], sequence: int = 1) -> Memtable:
    memtable = Memtable()
    for document in corpus:
        for _ in memtable.append(document, sequence):
            pass
    return memtable


def merged(*steps: Sequence[StoredDocument]) -> Segment:
    """Return the segment after flushing one memtable a step; a document replaces what an earlier step wrote."""
    segment: Segment | None = None
    for sequence, corpus in enumerate(steps, start=1):
        for document in corpus:
            number = segment.documents.living(document.doc_id) if segment is not None else None
            if segment is not None and number is not None:
                segment.documents.bury(number, sequence)
        segment = merge_segment(segment, memtable_of(corpus, sequence), sequence)
    assert segment is not None
    return segment


def described(segment: Segment) -> object:
    """Return all that a segment holds, whatever the order of its rows."""
    view = segment.at(99)
    keys = {}
    for row in range(view.count):
        number = view.document_of_row[row]
        keys[row] = view.documents.entries[number].doc_id, row - view.documents.first_rows[number]
    postings = {}
    for term in segment.terms.vocabulary:
        holders, counts = view.postings(term)
        postings[term] = sorted((keys[row], count) for row, count in zip(holders, counts, strict=True))
    rows = sorted(
        (keys[row], bytes(view.fields(row)), view.start(row), view.lengths[row], view.vectors(np.array([row])).tolist())
        for row in range(view.count)
    )
    return postings, rows, view.documents.page(99, "", 100)


corpora = st.lists(documents(), max_size=4, unique_by=lambda each: each.doc_id)


@settings(max_examples=60, deadline=None)
@given(corpora.filter(bool), corpora, corpora)
def test_merging_flush_by_flush_equals_building_from_rows(first, second, third):
    """A restart builds the base from the table, a flush merges it: both must be the same index."""
    steps = [first, second, third]
    segment = merged(*steps)
    latest = {}
    for sequence, corpus in enumerate(steps, start=1):
        latest.update({document.doc_id: (document, sequence) for document in corpus})
    tables = [chunk_rows(memtable_of([document], sequence), sequence) for document, sequence in latest.values()]

    assert described(segment) == described(
        build_segment(batch for table in tables if table is not None for batch in table.to_batches())
    )


def test_a_memtable_of_many_pieces_is_one_index():
    """What is cut into pieces for the event loop's sake must neither lose nor repeat a row or a posting."""
    words = [f"word{number}" for number in range(64)]
    memtable = memtable_of([stored(f"d{number}", [" ".join([*words, f"own{number}"])]) for number in range(1_100)])

    segment, rows = merge_segment(None, memtable, 1), chunk_rows(memtable, 1)

    assert segment is not None
    assert rows is not None
    assert described(segment) == described(build_segment(rows.to_batches()))
    assert segment.document_frequencies() == {
        **dict.fromkeys(words, 1_100),
        **{f"own{number}": 1 for number in range(1_100)},
    }


def test_terms_that_no_chunk_holds_any_more_are_forgotten():
    """Else the vocabulary of a corpus under constant change would only grow."""
    segment = merged([stored("a", ["pump"]), stored("b", ["leak"])], [stored("a", ["valve"])])

    assert sorted(segment.terms.vocabulary) == ["leak", "valv"]
    assert segment.document_frequencies() == {"leak": 1, "valv": 1}


def test_nothing_merged_is_no_segment():
    """A corpus whose last document was deleted has no base."""
    segment = merged([stored("a")])
    segment.documents.bury(0, 2)

    assert merge_segment(segment, Memtable(), 2) is None
    assert merge_segment(None, Memtable(), 1) is None


def test_a_death_after_the_flush_is_not_merged():
    """The table as flushed holds the document; its death belongs to a record that the table does not have."""
    memtable = memtable_of([stored("a")])
    memtable.documents.bury(0, 2)

    segment = merge_segment(None, memtable, 1)

    assert segment is not None
    assert segment.documents.living("a") == 0


def test_filters_that_python_takes_for_equal_are_told_apart():
    """1 == True in Python, but a filter's number is no boolean: a remembered answer must not be given to the other."""
    segment = merged([stored("a", metadata={"n": 1}), stored("b", metadata={"n": True})])
    numbers: list[Filter] = [Eq(key="n", value=1), Eq(key="n", value=True), Eq(key="n", value=1.0)]
    bounds: list[Filter] = [Lt(key="n", value=float(text)) for text in ("inf", "-inf")]

    assert [segment.matching(tree).tolist() for tree in numbers] == [[True, False], [False, True], [True, False]]
    assert [segment.matching(tree).tolist() for tree in bounds] == [[True, False], [False, False]]
    assert segment.has_matched(numbers[0])
