"""The whole shard over a store that fails: a writer that ends, and what goes on after it; never more is said than is known."""

import asyncio

import pytest

from groundplane.errors import OutcomeUnknown, Superseded, Unavailable
from tests.shard.shard_parts import (
    LAYOUT,
    doc_ids,
    document,
    is_writable,
    make_shard,
    outcome,
    running,
    search_request,
    serving_of,
    settled,
    until,
    wait_for_retry,
    write_request,
)
from tests.support.failing_store import failing, nothing


async def test_an_unknown_outcome_is_settled_by_opening_again(shard, store, clock):
    """The record had been stored after all: it is found in the log, once, and the next write follows it."""
    async with running(shard):
        before = await shard.write(write_request(document("a")))
        store.rule = lambda call: "lost" if call.verb in {"create", "get"} and LAYOUT.log in call.key else None
        error = await outcome(shard.write(write_request(document("b"))))
        await wait_for_retry(shard, clock)
        store.rule = nothing
        clock.advance(1.0)
        await until(lambda: is_writable(shard))
        repeated = await shard.write(write_request(document("b")))
        after = await shard.write(write_request(document("c")))

        assert isinstance(error, OutcomeUnknown)
        assert not repeated.results[0].changed
        assert await doc_ids(shard) == ["a", "b", "c"]
        assert after.epoch == before.epoch + 1


async def test_an_unknown_outcome_that_was_no_write_leaves_nothing_behind(shard, store, clock):
    """The record never arrived: nothing is invented, and the repeated call stores it."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        store.rule = failing("vanished", "create", key=LAYOUT.log)
        error = await outcome(shard.write(write_request(document("b"))))
        await wait_for_retry(shard, clock)
        store.rule = nothing
        clock.advance(1.0)
        await until(lambda: is_writable(shard))
        opened_again = await doc_ids(shard)
        repeated = await shard.write(write_request(document("b")))

        assert isinstance(error, OutcomeUnknown)
        assert opened_again == ["a"]
        assert repeated.results[0].changed


async def test_a_store_that_refuses_gets_503_and_the_writer_goes_on(shard, store):
    """Certainly not stored: no reopening, the same epoch, the same sequence."""
    async with running(shard):
        first = await shard.write(write_request(document("a")))
        store.rule = failing("refused", "create")
        error = await outcome(shard.write(write_request(document("b"))))
        answer = await shard.search(search_request("pump"))
        store.rule = nothing
        second = await shard.write(write_request(document("b")))

    assert (type(error), error.code) == (Unavailable, "store_unavailable")
    assert answer.statistics.documents == 1
    assert (second.sequence, second.epoch) == (first.sequence + 1, first.epoch)


async def test_a_superseded_shard_stays_unready_and_never_contends_again(shard, store, clock, tmp_path):
    """Two processes that took turns would duel for ever: I5. Whoever waited for the write is told that nobody knows."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        other = make_shard(store, tmp_path / "other")
        async with running(other):
            error = await outcome(shard.write(write_request(document("b"))))
            await until(lambda: shard.unready_detail is not None)
            asked = len(store.calls)
            clock.advance(3_600.0)
            await settled()
            later = await outcome(shard.search(search_request()))

            assert isinstance(error, OutcomeUnknown)
            assert (shard.unready_detail, later.code) == ("superseded", "not_ready")
            assert store.calls[asked:] == []
            assert await doc_ids(other) == ["a"]


@pytest.mark.parametrize("how", ["snapshot", "first write"])
async def test_a_request_that_finds_another_writer_ends_this_one(shard, store, tmp_path, how):
    """Not only an append may find out: what knows better must not go on answering."""
    async with running(shard):
        if how == "snapshot":
            await shard.write(write_request(document("a")))
        async with running(make_shard(store, tmp_path / "other")):
            work = shard.snapshot() if how == "snapshot" else shard.write(write_request(document("b")))
            error = await outcome(work)
            await until(lambda: shard.unready_detail is not None)

        assert isinstance(error, Superseded)
        assert shard.unready_detail == "superseded"


async def test_a_search_that_waits_when_the_shard_is_superseded_is_told_to_come_again(shard, tmp_path):
    """It must neither hang nor be answered from a state that nobody keeps up to date any more."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        waiting_search = asyncio.create_task(shard.search(search_request(min_sequence=100, deadline_ms=60_000)))
        await until(lambda: shard._state.arrivals.count == 1)
        async with running(make_shard(shard._store, tmp_path / "other")):
            await outcome(shard.write(write_request(document("b"))))
            error = await outcome(waiting_search)

    assert (type(error), error.code) == (Unavailable, "not_ready")


async def test_searches_go_on_while_the_outcome_of_a_write_is_unknown(shard, store, clock):
    """What a process knows it can tell without its store; writes are refused at once, and the status says why."""
    async with running(shard):
        before = await shard.write(write_request(document("a")))
        store.rule = lambda call: "vanished"
        await outcome(shard.write(write_request(document("b"))))
        await wait_for_retry(shard, clock)
        answer = await shard.search(search_request("pump"))
        refusal = await outcome(shard.write(write_request(document("c"))))
        detail = shard.status().detail
        for _ in range(3):  # the store stays away for some time
            clock.advance(3_600.0)
            await wait_for_retry(shard, clock)
        late_answer = await shard.search(search_request("pump"))
        corpus, store.rule = serving_of(shard).corpus, nothing
        clock.advance(3_600.0)
        await until(lambda: is_writable(shard))
        after = await shard.write(write_request(document("c")))

        assert (answer.sequence, answer.statistics.documents) == (before.sequence, 1)
        assert (late_answer.sequence, late_answer.statistics.documents) == (before.sequence, 1)
        assert (type(refusal), refusal.code, detail) == (
            Unavailable,
            "store_unavailable",
            "writes_suspended after outcome_unknown",
        )
        assert serving_of(shard).corpus is corpus
        assert after.epoch > before.epoch
        assert await doc_ids(shard) == ["a", "c"]


async def test_a_shard_whose_writes_are_suspended_finds_that_another_took_over(shard, store, clock, tmp_path):
    """It must not contend again: two processes that both came back would duel for ever (I5)."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        store.rule = failing("vanished", "create", key=LAYOUT.log)
        await outcome(shard.write(write_request(document("b"))))
        await wait_for_retry(shard, clock)
        store.rule = nothing
        async with running(make_shard(store, tmp_path / "other")) as other:
            await other.write(write_request(document("c")))
            clock.advance(3_600.0)
            await until(lambda: shard.unready_detail is not None)
            written = await other.write(write_request(document("d")))

    assert shard.unready_detail == "superseded"
    assert written.results[0].changed


async def test_a_half_applied_batch_is_rebuilt_from_the_log(shard, store, clock, monkeypatch):
    """What is in memory is wrong from then on; what is in the log is right."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        memtable = serving_of(shard).corpus._active
        append = memtable.append

        def broken(operation, sequence):
            if operation.doc_id == "c":
                raise Unavailable("out of memory")
            return append(operation, sequence)

        monkeypatch.setattr(memtable, "append", broken)
        error = await outcome(shard.write(write_request(document("b"), document("c"))))
        await wait_for_retry(shard, clock)
        clock.advance(1.0)
        await until(lambda: is_writable(shard))

        assert isinstance(error, OutcomeUnknown)
        assert await doc_ids(shard) == ["a", "b", "c"]


async def test_a_shard_that_opens_again_keeps_nothing_of_its_old_state(shard, store, clock, monkeypatch):
    """Two corpora in memory at once are twice the memory."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        old = serving_of(shard).corpus

        def broken(_operation, _sequence):
            raise Unavailable("out of memory")

        monkeypatch.setattr(old._active, "append", broken)
        await outcome(shard.write(write_request(document("b"))))
        await wait_for_retry(shard, clock)

        assert shard._serving is None
        assert shard._state.is_empty
        clock.advance(1.0)
        await until(lambda: is_writable(shard))
        assert serving_of(shard).corpus is not old
