"""How a shard opens, and what it says meanwhile."""

import asyncio
from functools import partial

import pytest

from groundplane.analysis import Analyser
from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.metrics import new_registry
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.payload import encode
from tests.shard.corpus_model import DIMENSION, stored
from tests.shard.shard_parts import (
    LAYOUT,
    delete,
    doc_ids,
    document,
    identity,
    is_writable,
    make_shard,
    memo,
    outcome,
    parts,
    records,
    running,
    search_request,
    serving_of,
    until,
    write_request,
)
from tests.support.failing_store import failing, nothing, waiting


async def test_what_was_acknowledged_is_there_after_a_stop_and_a_start(shard, store, tmp_path):
    """The promise that everything else rests on, and the next start reads no log for it."""
    async with running(shard):
        await shard.write(write_request(document("a"), document("b"), memo("m")))
        done = await shard.write(write_request(delete("a")))
    again = make_shard(store, tmp_path / "again")
    async with running(again):
        stored_memo = again.memo("m", "f")

        assert await doc_ids(again) == ["b"]
        assert stored_memo.response == b"1"
        assert again.status().snapshot_sequence == done.sequence


async def test_another_analyser_is_found_before_anything_is_taken_over(shard, store, clock, tmp_path):
    """A wrong setting must neither unseat the healthy writer nor fill the log with barriers, one a try."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        before, healthy = records(store), clock.sleeping
        wrong = make_shard(store, tmp_path / "wrong", analyser=Analyser("german"), clock=clock)
        async with running(wrong, is_ready=False):
            for pauses in range(3):
                await until(lambda: wrong.unready_detail == "analyser_mismatch" and clock.sleeping == 1 + healthy)
                clock.advance(30.0) if pauses < 2 else None
            error = await outcome(wrong.search(search_request()))
        done = await shard.write(write_request(document("b")))

    assert records(store)[: len(before)] == before
    assert done.results[0].changed
    assert "GROUNDPLANE_LANGUAGE" in error.message


async def test_a_log_with_vectors_of_another_embedding_is_not_served(shard, store, clock):
    """Vectors of two models never meet in one index: I19."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        foreign = (stored("b"),)
        await outcome(serving_of(shard)._journal.append(encode(foreign), foreign, "07" * 16))
        before = records(store)
    crashed = make_shard(store, shard._work_directory, clock=clock)
    store.store.objects = {
        key: data for key, data in store.store.objects.items() if "/snapshots/" not in key or "MANIFEST" in key
    }
    async with running(crashed, is_ready=False):
        await until(lambda: clock.sleeping >= 1 and crashed.unready_detail not in {"starting", None})

        assert crashed.unready_detail == "corrupt_data"
        assert records(store) == before


async def test_a_store_that_cannot_be_reached_is_waited_for(shard, store, clock):
    """No restart loop: growing pauses, and the probe says what is waited for and what failed."""
    store.rule = lambda _: "refused"
    details, pauses = [], []
    async with running(shard, is_ready=False):
        for _ in range(8):
            await until(lambda: clock.sleeping == 1)
            details.append(shard.unready_detail)
            pauses.append(clock._sleeping[0][0] - clock.monotonic())
            clock.advance(pauses[-1])
            await until(lambda: " after " in shard.unready_detail)
        store.rule = nothing
        await until(lambda: clock.sleeping > 0)
        clock.advance(30.0)
        await until(lambda: is_writable(shard))
        await shard.write(write_request(document("a")))

    assert set(details) == {"unavailable"}
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def _is_at(shard, step):
    return shard.unready_detail.startswith(step)


async def test_opening_says_which_step_it_is_at(shard, store, tmp_path):
    """An operator who waits wants to know for what."""
    async with running(make_shard(store, tmp_path / "before")):
        pass
    release = {step: asyncio.Event() for step in ("restoring", "checking", "taking")}

    def rule(call):
        if "/probes/" in call.key:
            return release["checking"]
        return release["taking"] if call.verb == "replace" and "MANIFEST" in call.key else release["restoring"]

    store.rule = rule
    seen = [shard.unready_detail]
    async with running(shard, is_ready=False):
        for step in release:
            await until(partial(_is_at, shard, step))
            seen.append(shard.unready_detail)
            error = await outcome(shard.search(search_request()))
            assert (error.code, error.detail) == ("not_ready", shard.unready_detail)
            release[step].set()
        await until(lambda: is_writable(shard))

    assert seen == ["starting", "restoring", "checking_store", "taking_over"]


async def test_refusals_while_unready_do_not_pile_up(shard):
    """One error object raised ten thousand times keeps the frames, and with them the bodies, of all its callers."""
    errors = [await outcome(shard.search(search_request())) for _ in range(3)]
    depth = 0
    trace = errors[-1].__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next

    assert len(set(map(id, errors))) == 3
    assert depth < 6


async def test_status_of_a_shard_that_is_not_ready_says_why(shard):
    """A status that pretends to know documents would be read as an empty corpus: I17."""
    with pytest.raises(Unavailable, match="not ready: it is starting") as caught:
        shard.status()

    assert (caught.value.code, caught.value.detail) == ("not_ready", "starting")


async def test_a_request_for_another_life_is_refused_before_readiness_is_looked_at(shard):
    """It will never be right here, however long the caller waits."""
    with pytest.raises(InvalidInput) as caught:
        await shard.search(search_request(incarnation="00000000-0000-4000-8000-00000000000b"))

    assert (caught.value.code, caught.value.status) == ("wrong_incarnation", 409)


async def test_readiness_is_a_metric(store, tmp_path):
    """Alerts look at it."""
    made = parts()
    shard = make_shard(store, tmp_path / "work", metrics=made.metrics)
    before = made.metrics.ready._value.get()
    async with running(shard):
        during = made.metrics.ready._value.get()

    assert (before, during, made.metrics.ready._value.get()) == (0, 1, 0)


async def test_an_identity_in_manifest_survives_a_start_without_documents(shard, store, tmp_path):
    """It is fixed for good, also if the write that brought it was lost; memos can be flushed from then on."""
    async with running(shard):
        store.rule = failing("refused", "create", key=LAYOUT.log)
        await outcome(shard.write(write_request(document("a"))))
        store.rule = nothing
    async with running(make_shard(store, tmp_path / "again")) as again:
        await again.write(write_request(memo("m")))
        status = await again.snapshot()
        mismatch = await outcome(again.write(write_request(document("a"), embedding=identity(DIMENSION, 7))))

    assert status.embedding == identity()
    assert status.snapshot_sequence == status.sequence
    assert mismatch.code == "embedding_mismatch"


async def test_a_shard_that_restores_says_how_far_it_is(shard, store, tmp_path):
    """Whoever watches a large corpus start must be able to tell slow from stuck."""
    async with running(shard):
        await shard.write(write_request(document("a")))
    held = asyncio.Event()
    store.rule = waiting(held, "download")
    again = make_shard(store, tmp_path / "again")
    async with running(again, is_ready=False):
        await until(lambda: (again.unready_detail or "").startswith("restoring 0/1 MiB in 0/"))
        held.set()
        await until(lambda: again.unready_detail is None)


async def test_the_age_of_the_last_snapshot_survives_a_start(shard, store, tmp_path, clock):
    """An alert on old snapshots would fire after every restart, or never for a corpus whose snapshots fail since one."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        taken_at = (await shard.snapshot()).snapshot_time
    clock.advance(3_600.0)
    metrics = ShardMetrics(new_registry())
    async with running(make_shard(store, tmp_path / "again", clock=clock, metrics=metrics)) as again:
        found = again.status().snapshot_time
        shown = metrics.last_snapshot._value.get()

    assert (found, shown) == (taken_at, taken_at)
