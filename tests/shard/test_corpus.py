"""A corpus through its life: batches and flushes are seen whole or not at all, and nothing is lost on the way."""

import asyncio
import gc

import msgspec
import pytest

from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane.wire.filters import Gt
from groundplane.wire.internal import ChunkInput, ReplaceDocument, Statistics
from groundplane.wire.public import Basis
from groundplane_shard.corpus import WORK_PER_STEP, Corpus
from groundplane_shard.rows import StoredDelete, StoredMemo, StoredMemoDelete, StoredOperation, prepare
from groundplane_shard.statistics import FILE_NAME, read_statistics, write_statistics
from groundplane_shard.table import Table
from tests.shard.corpus_model import (
    ANALYSER,
    EMBEDDING,
    Model,
    decoded,
    everything,
    request,
    stepwise,
    stored,
    vector_bytes,
    write,
)

PROBES = [request("pump", "leak", vector=(1, 0.5, 0)), request("valv")]
BOTH_ENGINES = pytest.mark.parametrize(
    "exact_bytes", [pytest.param(1 << 30, id="exact"), pytest.param(0, id="indexed")]
)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "table"


async def flushed(directory, *operations, exact_bytes=1 << 30) -> Corpus:
    """Return a corpus whose base holds `operations`."""
    corpus = await Corpus.open(directory, exact_bytes=exact_bytes)
    await write(corpus, *operations)
    await corpus.flush()
    return corpus


async def found_ids(corpus, *terms):
    found = await corpus.search(corpus.view(), request(*terms))
    return sorted({each[3].doc_id for each in decoded(found)})


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


@BOTH_ENGINES
async def test_no_half_flush_is_seen(directory, exact_bytes):
    """Deleting, adding, compacting and swapping are many steps: in none may a document be missing or doubled."""
    corpus = await flushed(directory, stored("a", ["pump"]), stored("b", ["leak"]), exact_bytes=exact_bytes)
    await write(corpus, stored("a", ["pump leak"]), StoredDelete("b"), stored("c", ["valve", "pump"]))
    expected = await everything(corpus, corpus.view(), PROBES)

    async def check():
        assert await everything(corpus, corpus.view(), PROBES) == expected

    sequence, waits = await stepwise(corpus.flush(), check)

    assert sequence == 2
    assert waits > 10
    assert await everything(corpus, corpus.view(), PROBES) == expected


@BOTH_ENGINES
async def test_writes_during_a_flush_are_kept_and_not_flushed(directory, exact_bytes):
    """A flush holds the records up to its sequence; later ones stay in memory and win over what it stored."""
    corpus = await flushed(directory, stored("a", ["pump"]), stored("b", ["pump"]), exact_bytes=exact_bytes)
    await write(corpus, stored("c", ["pump"]), stored("a", ["leak"]))
    task = asyncio.create_task(corpus.flush())
    await asyncio.sleep(0)
    await write(corpus, StoredDelete("b"), StoredDelete("c"), stored("a", ["valve"]))

    assert await task == 2
    assert (corpus.view().sequence, corpus.flushed_sequence) == (3, 2)
    assert [await found_ids(corpus, term) for term in ("pump", "leak", "valv")] == [[], [], ["a"]]
    reopened = await Corpus.open(directory, exact_bytes=exact_bytes)
    assert [await found_ids(reopened, term) for term in ("pump", "leak")] == [["b", "c"], ["a"]]


@BOTH_ENGINES
async def test_writes_wherever_a_flush_waits_are_neither_lost_nor_counted_twice(directory, exact_bytes):
    """Between any two steps of a flush a document that is being flushed may be replaced or removed."""
    corpus, model = await Corpus.open(directory, exact_bytes=exact_bytes), Model()

    async def write_both(*operations):
        model.apply(await write(corpus, *operations), operations)

    await write_both(*(stored(f"d{number:02}", ["pump pump", "leak"]) for number in range(200)))
    await corpus.flush()
    await write_both(*(stored(f"d{number:02}", ["pump leak"]) for number in range(0, 200, 2)))
    doc_ids = iter(range(100))

    async def write_unless_it_would_wait():
        if not corpus._moving.locked():
            number = next(doc_ids)
            await write_both(stored(f"d{number:02}", ["valve leak leak"]), StoredDelete(f"d{199 - number:02}"))

    _, waits = await stepwise(corpus.flush(), write_unless_it_would_wait)

    assert waits > 10
    for probe in PROBES:
        found = await corpus.search(corpus.view(), probe)
        assert (found.statistics, decoded(found)) == (model.statistics(probe.terms), model.search(probe))


@BOTH_ENGINES
async def test_a_deleted_document_stays_deleted(directory, exact_bytes):
    """Neither flush nor restart may bring it back, and deleting it again changes nothing."""
    corpus = await flushed(directory, stored("a"), stored("b"), exact_bytes=exact_bytes)
    await write(corpus, StoredDelete("a"))
    await write(corpus, StoredDelete("a"), StoredDelete("never"))

    for state in ("applied", "flushed", "restarted"):
        if state != "applied":
            await corpus.flush()
        if state == "restarted":
            corpus = await Corpus.open(directory, exact_bytes=exact_bytes)
        view = corpus.view()
        assert await found_ids(corpus, "pump") == ["b"]
        assert corpus.content_hash("a") is None
        assert await corpus.document(view, "a") is None
        assert (view.totals.documents, view.sequence, view.document_sequence) == (1, 3, 2)


@BOTH_ENGINES
async def test_a_view_answers_the_same_after_writes_and_flushes(directory, exact_bytes):
    """A search that takes long must not see the table change under it."""
    corpus = await flushed(directory, stored("a", ["pump"]), stored("b", ["leak"]), exact_bytes=exact_bytes)
    await write(corpus, stored("c", ["valve pump"]))
    view = corpus.view()
    before = await everything(corpus, view, PROBES)
    for _ in range(3):
        await write(corpus, stored("a", ["leak"]), stored("c", ["pump"]), StoredDelete("b"))
        await corpus.flush()

    assert await everything(corpus, view, PROBES) == before


async def test_a_pinned_version_is_let_go_with_the_last_view_that_uses_it(directory, monkeypatch):
    """Else every flush would leave the table's old files behind."""
    gc.collect()  # pins of other tests must not be counted
    released: list[int] = []
    monkeypatch.setattr("groundplane_shard.table.Pin.release", lambda pin: released.append(pin.version))
    corpus = await flushed(directory, stored("a"), exact_bytes=0)
    view = corpus.view()
    await write(corpus, stored("b"))
    await corpus.flush()
    await asyncio.sleep(0)
    assert released == []

    del view
    await asyncio.sleep(0)

    assert len(released) == 1


async def test_crossing_over_changes_no_answer(directory):
    """The engine is a matter of size, never of results."""
    corpus = await flushed(directory, stored("a", ["pump"]), stored("b", ["leak"]), exact_bytes=40)
    assert corpus.engine == "exact"
    await write(corpus, stored("c", ["valve", "pump leak"], metadata={"tag": "x"}), stored("b", ["pump"]))
    before = await everything(corpus, corpus.view(), PROBES)
    await corpus.flush()

    assert corpus.engine == "indexed"
    assert await everything(corpus, corpus.view(), PROBES) == before
    reopened = await Corpus.open(directory, exact_bytes=1 << 30)
    assert reopened.engine == "exact"
    assert await everything(reopened, reopened.view(), PROBES) == before


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


@BOTH_ENGINES
async def test_a_failed_flush_loses_nothing_and_is_taken_up_again(directory, exact_bytes, monkeypatch):
    """A full disk stops flushing, not searching or writing."""
    corpus = await flushed(directory, stored("a"), exact_bytes=exact_bytes)
    await write(corpus, stored("b"))

    async def fail(*_):
        raise Unavailable("no space is left", code="disk_full")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "merge", fail)
        with pytest.raises(Unavailable):
            await corpus.flush()
        await write(corpus, stored("c"), StoredDelete("a"))
        assert await found_ids(corpus, "pump") == ["b", "c"]

    assert [await corpus.flush(), await corpus.flush()] == [2, 3]
    reopened = await Corpus.open(directory, exact_bytes=exact_bytes)
    assert await found_ids(reopened, "pump") == ["b", "c"]


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


async def test_a_flush_of_barriers_alone_moves_the_flushed_sequence(directory):
    """Else the log of an idle corpus could never be collected."""
    corpus = await flushed(directory, stored("a"))
    await write(corpus)

    assert await corpus.flush() == 2
    assert (await Corpus.open(directory)).view().sequence == 2


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


@BOTH_ENGINES
async def test_memos_survive_flush_and_restart(directory, exact_bytes):
    """They live in the same log and table as documents, and change nothing that is searched."""
    kept, gone, newer = (StoredMemo("n", mark, b'{"a":1}', Basis()) for mark in ("1", "2", "3"))
    corpus = await flushed(directory, stored("a"), kept, gone, newer, exact_bytes=exact_bytes)
    newer = msgspec.structs.replace(newer, response=b"2")
    await write(corpus, StoredMemoDelete("n", "2"), newer, StoredMemoDelete("never", "there"))

    for state in ("applied", "flushed", "restarted"):
        if state != "applied":
            await corpus.flush()
        if state == "restarted":
            corpus = await Corpus.open(directory, exact_bytes=exact_bytes)
        assert [corpus.memo("n", mark) for mark in "123"] == [kept, None, newer]
        assert (corpus.view().sequence, corpus.view().document_sequence) == (2, 1)


async def test_memos_alone_are_flushed_and_documents_join_them_later(directory):
    """The size of the vectors is known from the first document on only; nothing that is flushed may wait for it."""
    corpus = await Corpus.open(directory)
    memo = StoredMemo("n", "1", b"1", Basis())
    await write(corpus, memo)
    first = await corpus.flush()
    reopened = await Corpus.open(directory)
    found = reopened.memo("n", "1"), reopened.dimension, reopened.memtable_bytes
    await write(reopened, stored("a"))
    await reopened.flush()

    assert (first, found) == (1, (memo, None, 0))
    again = await Corpus.open(directory, dimension=3)
    assert (again.memo("n", "1"), await found_ids(again, "pump")) == (memo, ["a"])


@BOTH_ENGINES
async def test_a_copy_opens_as_what_was_flushed(directory, tmp_path, exact_bytes):
    """A snapshot is this copy: later flushes must not reach into it."""
    corpus = await flushed(directory, stored("a"), exact_bytes=exact_bytes)
    await corpus.copy_to(tmp_path / "copy")
    await write(corpus, StoredDelete("a"), stored("b"))
    await corpus.flush()

    copy = await Corpus.open(tmp_path / "copy", exact_bytes=exact_bytes)

    assert (copy.view().sequence, await found_ids(copy, "pump")) == (1, ["a"])


@BOTH_ENGINES
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"dimension": 4}, id="dimension"),
        pytest.param({"totals": (2, 1, 1)}, id="documents"),
        pytest.param({"totals": (1, 1, 2)}, id="tokens"),
        pytest.param({"format": 2}, id="format"),
    ],
)
async def test_a_table_that_differs_from_its_statistics_is_corrupt(directory, exact_bytes, changes):
    """Statistics that do not fit the rows would rank wrongly for ever, without anybody noticing."""
    await flushed(directory, stored("a"), exact_bytes=exact_bytes)
    statistics = msgspec.structs.replace(read_statistics(directory), **changes)
    write_statistics(directory, statistics)

    with pytest.raises(CorruptData):
        await Corpus.open(directory, exact_bytes=exact_bytes)


async def test_term_frequencies_of_the_exact_engine_are_compared_too(directory):
    """The indexed engine would rely on them after it is crossed over to."""
    await flushed(directory, stored("a"))
    write_statistics(directory, msgspec.structs.replace(read_statistics(directory), frequencies={"pump": 2}))

    with pytest.raises(CorruptData, match="term frequencies"):
        await Corpus.open(directory)


@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
async def test_a_damaged_statistics_file_is_corrupt(directory, damage):
    """A directory without it is not an empty corpus."""
    await flushed(directory, stored("a"))
    path = directory / FILE_NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(content if damage == "flipped" else b"")

    with pytest.raises(CorruptData, match="statistics"):
        await Corpus.open(directory)


async def test_the_statistics_file_is_private(directory):
    """Its terms are the tenant's words."""
    await flushed(directory, stored("a"))

    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600


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


async def test_search_indexes_come_with_the_directory(directory, monkeypatch):
    """Building them takes seconds for a large table: a start must find them, not make them."""
    await flushed(directory, stored("a"), exact_bytes=0)

    async def fail(*_):
        raise AssertionError("the indexes were built again")

    monkeypatch.setattr(Table, "build_search_indexes", fail)
    corpus = await Corpus.open(directory, exact_bytes=0)

    assert (corpus.engine, await found_ids(corpus, "pump")) == ("indexed", ["a"])


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
