"""A corpus and what it answers: batches are seen whole or not at all, and what cannot be answered is refused."""

import asyncio

import pytest

from groundplane.errors import CorruptData, InvalidInput
from groundplane.wire.filters import Gt
from groundplane.wire.internal import ChunkInput, ReplaceDocument, Statistics
from groundplane_shard.corpus import WORK_PER_STEP, Corpus
from groundplane_shard.rows import StoredDelete, StoredOperation, prepare
from tests.shard.corpus_model import (
    ANALYSER,
    BOTH_ENGINES,
    EMBEDDING,
    PROBES,
    decoded,
    everything,
    flushed,
    found_ids,
    request,
    stepwise,
    stored,
    vector_bytes,
    write,
)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "table"


async def test_an_empty_corpus_answers_with_zero_statistics(directory):
    """Searched and empty is an answer; no dimension is known yet to check a vector with."""
    corpus = await Corpus.open(directory)

    found = await corpus.search(corpus.view(), request("pump", vector=(1, 2, 3, 4)))

    assert found == (Statistics(0, 0, 0, (0,)), [])
    assert (corpus.dimension, await corpus.flush(), corpus.flushed_sequence) == (None, 0, 0)


async def test_the_first_document_fixes_the_dimension(directory):
    """Vectors of two sizes never meet in one index."""
    corpus = await flushed(directory, stored("a"))

    assert corpus.dimension == 3
    with pytest.raises(CorruptData, match="vectors of 2 numbers: expected 3"):
        await write(corpus, stored("b", vectors=((1.0, 0.0),)))
    with pytest.raises(CorruptData, match="vectors of 3 numbers: expected 4"):
        await Corpus.open(directory, dimension=4)


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        pytest.param((1, 0), "dimension_mismatch", id="size"),
        pytest.param((0, 0, 0), "zero_vector", id="zero"),
        pytest.param((1, 0, float("nan")), "invalid_vector", id="not-a-number"),
    ],
)
async def test_a_query_vector_without_direction_is_refused(directory, vector, code):
    """LanceDB would answer nothing for it, without error: could-not-search must not look like found-nothing."""
    corpus = await flushed(directory, stored("a"))

    with pytest.raises(InvalidInput) as refused:
        await corpus.search(corpus.view(), request(vector=vector))

    assert (refused.value.code, refused.value.field) == (code, "vector")


async def test_a_batch_becomes_visible_at_once_and_lets_others_run(directory):
    """A search between two steps of applying sees the state before, and no request waits for a whole batch."""
    corpus = await flushed(directory, stored("a", ["pump"]))
    long = " ".join(["leak"] * 500)
    batch: list[StoredOperation] = [*(stored(f"d{number}", [long] * 4) for number in range(10)), StoredDelete("a")]
    before = await everything(corpus, corpus.view(), PROBES)

    async def check():
        assert corpus.view().sequence == 1
        assert await everything(corpus, corpus.view(), PROBES) == before

    _, waits = await stepwise(corpus.apply(2, batch), check)

    assert waits >= 10 * 4 * 500 // WORK_PER_STEP
    assert await found_ids(corpus, "leak") == [f"d{number}" for number in range(10)]
    assert await found_ids(corpus, "pump") == []


async def test_candidates_are_sought_deeper_where_dead_ones_took_their_place(directory):
    """LanceDB still finds superseded chunks: a window full of them must not come back empty."""
    documents = [stored(f"d{number:02}", [f"pump {number}"]) for number in range(30)]
    corpus = await flushed(directory, *documents, exact_bytes=0)
    await write(corpus, *(StoredDelete(f"d{number:02}") for number in range(28)))

    found = await corpus.search(corpus.view(), request("pump", vector=(1, 0, 0), window=1))

    assert [each[3].doc_id for each in decoded(found)] == ["d28"]
    assert found.statistics == Statistics(2, 2, 4, (2,))


@BOTH_ENGINES
async def test_a_filter_that_sql_cannot_say_exactly_is_applied_to_what_came_back(directory, exact_bytes):
    """SQL has no infinity: the table returns too many chunks, and those that pass may lie far down."""
    documents = [stored(f"d{number}", metadata={"n": number} if number == 9 else {}) for number in range(10)]
    corpus = await flushed(directory, *documents, exact_bytes=exact_bytes)
    asked = request("pump", vector=(1, 0, 0), window=1, tree=Gt(key="n", value=float("-inf")))

    found = await corpus.search(corpus.view(), asked)

    assert [each[3].doc_id for each in decoded(found)] == ["d9"]


async def test_a_record_applied_half_stops_all_later_ones(directory):
    """Going on would publish half a batch: the state must be rebuilt from the log."""
    corpus = await Corpus.open(directory)
    task = asyncio.create_task(corpus.apply(1, [stored(f"d{number}", ["leak " * 3_000]) for number in range(4)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    with pytest.raises(CorruptData, match="record 1 was applied half"):
        await write(corpus, stored("a"))
    assert corpus.view().totals.documents == 0


@pytest.mark.parametrize("sequence", [pytest.param(2, id="again"), pytest.param(1, id="older")])
async def test_records_apply_in_order_only(directory, sequence):
    """A record twice or out of order would be a fault of the log: it is reported, not absorbed."""
    corpus = await Corpus.open(directory)
    await corpus.apply(2, [stored("a")])

    with pytest.raises(CorruptData, match="expected a higher sequence"):
        await corpus.apply(sequence, [stored("a")])


async def test_a_record_without_operations_moves_the_sequence_alone(directory):
    """A barrier is a record too; what memos rest on does not move with it."""
    corpus = await Corpus.open(directory)
    await write(corpus, stored("a"))
    await write(corpus)

    assert (corpus.view().sequence, corpus.view().document_sequence) == (2, 1)


@BOTH_ENGINES
async def test_text_is_put_together_again_from_overlapping_chunks(directory, exact_bytes):
    """The document's text is stored once, as its chunks."""
    text = "pump leak valve"
    chunks = tuple(ChunkInput(start, end, None, vector_bytes(1, 0, 0)) for start, end in ((0, 9), (5, 9), (5, 15)))
    document = ReplaceDocument(
        doc_id="a", text=text, title="T", uri="u", metadata=b'{"b": 1, "a": [2.0]}', chunker="c", chunks=chunks
    )
    corpus = await Corpus.open(directory, exact_bytes=exact_bytes)
    await write(corpus, prepare(document, ANALYSER, 3, EMBEDDING))
    before = await corpus.document(corpus.view(), "a")
    await corpus.flush()
    reopened = await Corpus.open(directory, exact_bytes=exact_bytes)

    assert before is not None
    assert (before.text, before.metadata, before.row.chunks) == (text, b'{"a":[2.0],"b":1}', 3)
    assert await corpus.document(corpus.view(), "a") == before
    assert await reopened.document(reopened.view(), "a") == before


async def test_pages_run_by_id_over_all_layers(directory):
    """A listing must not repeat or skip a document because a flush lies between two pages."""
    corpus = await flushed(directory, *(stored(doc_id) for doc_id in "bdf"))
    await write(corpus, *(stored(doc_id) for doc_id in "ace"), StoredDelete("d"))
    first, more = corpus.documents(corpus.view(), "", 3)
    await corpus.flush()
    second, end = corpus.documents(corpus.view(), first[-1].doc_id, 3)

    assert ("".join(row.doc_id for row in first), more) == ("abc", True)
    assert ("".join(row.doc_id for row in second), end) == ("ef", False)


async def test_old_terms_are_fetched_once_and_before_applying(directory, monkeypatch):
    """The look-up runs while the log object is on its way, so that applying need not wait for the table."""
    corpus = await flushed(directory, stored("a", ["pump leak pump"]), stored("b"), exact_bytes=0)
    batch: list[StoredOperation] = [stored("a", ["valve"]), StoredDelete("b"), StoredDelete("never")]
    await corpus.prefetch(batch)

    async def fail(*_):
        raise AssertionError("the table was asked again")

    monkeypatch.setattr("groundplane_shard.table.Pin.rows_of", fail)
    await write(corpus, *batch)

    assert corpus.statistics(corpus.view(), ("pump", "leak", "valv")) == Statistics(1, 1, 1, (0, 0, 1))


async def test_a_large_search_runs_in_a_thread(directory, monkeypatch):
    """What takes longer than 3 ms must not hold the event loop, and must give the same answer."""
    corpus = await flushed(directory, stored("a", ["pump"]))
    inline = await corpus.search(corpus.view(), PROBES[0])
    threads = []

    async def record(function, *arguments):
        threads.append(function)
        return function(*arguments)

    monkeypatch.setattr("groundplane_shard.corpus.asyncio.to_thread", record)
    monkeypatch.setattr("groundplane_shard.corpus._MAX_INLINE_WORK", 0)

    assert await corpus.search(corpus.view(), PROBES[0]) == inline
    assert len(threads) == 1
