"""A flush is seen whole or not at all, and nothing is lost on the way."""

import asyncio
import gc

import msgspec
import pytest

from groundplane.errors import Unavailable
from groundplane.wire.public import Basis
from groundplane_shard.corpus import Corpus
from groundplane_shard.rows import StoredDelete, StoredMemo, StoredMemoDelete
from groundplane_shard.table import Table
from tests.shard.corpus_model import (
    BOTH_ENGINES,
    PROBES,
    Model,
    decoded,
    everything,
    flushed,
    found_ids,
    stepwise,
    stored,
    write,
)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "table"


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


async def test_a_flush_of_barriers_alone_moves_the_flushed_sequence(directory):
    """Else the log of an idle corpus could never be collected."""
    corpus = await flushed(directory, stored("a"))
    await write(corpus)

    assert await corpus.flush() == 2
    assert (await Corpus.open(directory)).view().sequence == 2


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
