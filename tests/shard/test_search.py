"""Search over layers in memory: the right candidates in the right order, however documents are spread over layers."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.wire.filters import Eq
from groundplane.wire.internal import SearchRequest
from groundplane_shard.flushing import chunk_rows
from groundplane_shard.memtable import Memtable
from groundplane_shard.rows import StoredDocument, unit_vectors
from groundplane_shard.search import Found, Layer, Query, Totals, complete_cosines, search
from groundplane_shard.segment import build_segment, merge_segment
from tests.shard.corpus_model import (
    DIMENSION,
    DOC_IDS,
    Model,
    decoded,
    documents,
    queries,
    request,
    stored,
)

MANY_IDS = tuple(f"{letter}{number}" for letter in "ab" for number in range(9))


def memtable_of(*stored_documents: StoredDocument, sequence: int = 1) -> Memtable:
    memtable = Memtable()
    for document in stored_documents:
        for _ in memtable.append(document, sequence):
            pass
    return memtable


def layers_of(*groups: list[StoredDocument]) -> list[Layer]:
    """Return a layer for each group: a segment built from rows, one merged from a memtable, then memtables."""
    memtables = [memtable_of(*group) for group in groups if group]
    layers: list[Layer] = []
    for position, memtable in enumerate(memtables):
        rows, merged = chunk_rows(memtable, 1), merge_segment(None, memtable, 1)
        assert rows is not None
        assert merged is not None
        makers = (lambda rows=rows: build_segment(rows.to_batches()).at(1), lambda merged=merged: merged.at(1))
        layers.append(makers[position]() if position < len(makers) else memtable.at(1))
    return layers


def asked(layers: list[Layer], model: Model, wanted: SearchRequest) -> Found:
    vector = None if wanted.vector is None else unit_vectors([wanted.vector], DIMENSION)[0]
    totals = Totals(*msgspec.structs.astuple(model.statistics(()))[:3])
    return search(layers, Query(wanted.terms, vector, wanted.window, wanted.filter), totals)


def model_of(*stored_documents: StoredDocument) -> Model:
    model = Model()
    model.apply(1, stored_documents)
    return model


@settings(max_examples=150, deadline=None)
@given(
    st.lists(documents(MANY_IDS), min_size=1, max_size=18, unique_by=lambda each: each.doc_id),
    queries,
    st.integers(1, 6),
    st.data(),
)
def test_candidates_are_those_of_a_search_of_every_chunk(corpus, wanted, window, data):
    """Neither the layer that a document lies in, nor the window's edge among equal scores, may change the answer."""
    wanted = msgspec.structs.replace(wanted, window=window)
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(corpus), max_size=len(corpus)))
    groups = [[each for each, place in zip(corpus, places, strict=True) if place == layer] for layer in range(4)]
    model = model_of(*corpus)

    found = asked(layers_of(*groups), model, wanted)

    assert found.statistics == model.statistics(wanted.terms)
    assert decoded(found) == model.search(wanted)


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_cosine_is_the_same_among_whatever_rows_it_is_computed(count, seed):
    """The same chunk must score the same to the last bit in a memtable, a segment and a table's answer."""
    rng = np.random.default_rng(seed)
    vectors = unit_vectors([row.tobytes() for row in rng.standard_normal((count, 37)).astype(np.float32)], 37)
    query = vectors[0]

    together = complete_cosines(vectors, query)

    assert together.tolist() == [complete_cosines(vectors[row : row + 1], query)[0] for row in range(count)]


@pytest.mark.parametrize("rows", [100, 2_000], ids=["few-rows", "many-blocks"])
def test_the_window_holds_the_nearest_of_many_chunks(rows):
    """The short cut through block maxima must not lose a neighbour."""
    rng = np.random.default_rng(rows)
    vectors = rng.standard_normal((rows, 8)).astype(np.float32)
    corpus = [stored(f"{number:05}", vectors=(vector.tolist(),)) for number, vector in enumerate(vectors)]
    query = unit_vectors([vectors[7].tobytes()], 8)[0]

    found = search([memtable_of(*corpus).at(1)], Query((), query, 5), Totals(rows, rows, rows))

    exact = complete_cosines(np.concatenate([each.vectors for each in corpus]), query)
    assert [each[3].doc_id for each in decoded(found)] == [f"{row:05}" for row in np.argsort(-exact)[:5]]


def test_a_filter_applies_before_candidates_are_taken():
    """With a window of one, a better chunk that the filter refuses must not use it up."""
    better = stored("a", ["pump pump"], metadata={"tag": "x"})
    worse = stored("b", ["pump valve leak"], vectors=((0.0, 1.0, 0.0),), metadata={"tag": "y"})
    wanted = request("pump", vector=(1, 0, 0), window=1, tree=Eq(key="tag", value="y"))

    found = asked(layers_of([], [], [better, worse]), model_of(better, worse), wanted)

    assert [each[3].doc_id for each in decoded(found)] == ["b"]


def test_without_a_vector_only_keywords_are_searched():
    """A corpus whose embedder is away still answers by its words, and claims no cosine."""
    corpus = [stored("a", ["pump"]), stored("b", ["valve"])]

    found = asked(layers_of(corpus), model_of(*corpus), request("pump"))

    assert [(each[0], each[3].doc_id) for each in decoded(found)] == [(None, "a")]


def test_chunks_without_any_term_do_not_divide_by_zero():
    """A corpus of emoji has a mean length of zero."""
    corpus = [stored("a", ["🚀 🚀"])]
    model = model_of(*corpus)

    found = asked(layers_of(corpus), model, request("pump", vector=(1, 0, 0)))

    assert [each[:3] for each in decoded(found)] == [(1.0, (0,), 0)]


@settings(max_examples=50, deadline=None)
@given(st.lists(documents(DOC_IDS), min_size=1, max_size=4, unique_by=lambda each: each.doc_id), st.randoms())
def test_a_segment_does_not_depend_on_the_order_of_rows(corpus, random):
    """LanceDB gives rows in no order."""
    rows = chunk_rows(memtable_of(*corpus), 1)
    assert rows is not None
    order = list(range(rows.num_rows))
    random.shuffle(order)
    shuffled = rows.take(order).to_batches()
    wanted, model = request("pump", "leak", vector=(1, 2, 3)), model_of(*corpus)

    assert asked([build_segment(shuffled).at(1)], model, wanted) == asked(
        [build_segment(rows.to_batches()).at(1)], model, wanted
    )
