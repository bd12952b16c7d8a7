"""The whole shard over a store that fails: it opens again, serves on, and never says more than it knows."""

import asyncio
import signal
from functools import partial

import pytest

from groundplane.analysis import Analyser
from groundplane.errors import InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.payload import encode
from groundplane_shard.stores import MemoryStore
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.corpus_model import DIMENSION, stored
from tests.shard.shard_parts import (
    LAYOUT,
    delete,
    document,
    identity,
    make_shard,
    memo,
    outcome,
    parts,
    running,
    search_request,
    serving_of,
    settled,
    until,
    write_request,
)
from tests.support.failing_store import FailingStore, failing, nothing, waiting


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """The protocol's pauses between tries carry no meaning here."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)


@pytest.fixture
def store():
    return FailingStore(MemoryStore())


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def shard(store, tmp_path, clock):
    return make_shard(store, tmp_path / "work", clock=clock)


def records(store):
    return sorted(key for key in store.store.objects if key.startswith(LAYOUT.log))


async def doc_ids(shard):
    page = await shard.documents("", 1_000)
    return [row.doc_id for row in page.documents]


async def wait_for_retry(shard, clock, pauses=1):
    """Let the shard pause once more before it opens again, or before it takes up writing again."""
    await until(lambda: not is_writable(shard) and clock.sleeping == pauses)


def is_writable(shard):
    return shard.unready_detail is None and shard.status().detail is None


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


async def test_a_stop_waits_for_the_record_on_its_way(shard, store, tmp_path):
    """Its caller gets an answer, and the snapshot of the stop holds it."""
    lifespan = shard.lifespan(None)
    await lifespan.__aenter__()
    await until(lambda: is_writable(shard))
    await shard.write(write_request(document("a")))
    release = asyncio.Event()
    store.rule = waiting(release, "create", key=LAYOUT.log)
    asked = len(store.calls)
    writing = asyncio.create_task(shard.write(write_request(document("b"))))
    await until(lambda: any(call.verb == "create" for call in store.calls[asked:]))
    stopping = asyncio.create_task(lifespan.__aexit__(None, None, None))
    await settled()
    assert not stopping.done()
    release.set()
    await stopping
    done = await writing
    async with running(make_shard(store, tmp_path / "again")) as again:
        assert again.status().snapshot_sequence == done.sequence


async def test_a_stop_waits_for_the_snapshot_under_way(shard, store):
    """It is nearly done; cut off, the next start would read the whole tail."""
    lifespan = shard.lifespan(None)
    await lifespan.__aenter__()
    await until(lambda: is_writable(shard))
    done = await shard.write(write_request(document("a")))
    release = asyncio.Event()
    store.rule = waiting(release, "upload")
    publishing = asyncio.create_task(shard.snapshot())
    await until(lambda: any(call.verb == "upload" for call in store.calls))
    stopping = asyncio.create_task(lifespan.__aexit__(None, None, None))
    await settled()
    release.set()
    await stopping

    assert (await publishing).snapshot_sequence == done.sequence
    assert shard.unready_detail == "stopping"


async def test_a_stop_without_a_store_is_a_stop_all_the_same(shard, store, tmp_path):
    """SIGTERM must not hang, and the log has everything."""
    async with running(shard):
        await shard.write(write_request(document("a")))
        store.rule = lambda _: "refused"
    store.rule = nothing
    async with running(make_shard(store, tmp_path / "again")) as again:
        assert await doc_ids(again) == ["a"]


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


async def test_a_bug_ends_the_process(shard, monkeypatch, caplog):
    """A task that died by a bug leaves a shard that is unready for ever and that nobody starts again."""
    signals: list[signal.Signals] = []
    monkeypatch.setattr(signal, "raise_signal", signals.append)
    async with running(shard):

        async def wrong(_sequence, _operations):
            raise TypeError("wrong")

        monkeypatch.setattr(serving_of(shard).corpus, "apply", wrong)
        error = await outcome(shard.write(write_request(document("a"))))
        await until(lambda: bool(signals))

    assert isinstance(error, OutcomeUnknown)
    assert signals == [signal.SIGTERM]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["shard_failed"]


async def test_an_orderly_stop_is_no_bug(shard, monkeypatch):
    """The same callback sees both."""
    signals: list[signal.Signals] = []
    monkeypatch.setattr(signal, "raise_signal", signals.append)
    async with running(shard):
        pass
    await settled()

    assert signals == []


async def test_the_work_directory_is_emptied_and_stays_itself(shard):
    """Nothing local is trusted across starts; the directory may be a mount point, which cannot be made anew."""
    directory = shard._work_directory
    directory.mkdir(mode=0o755)
    (directory / "table-1" / "deep").mkdir(parents=True)
    (directory / "stray").write_text("old")
    (directory / "link").symlink_to("/")
    inode = directory.stat().st_ino
    async with running(shard):
        found = sorted(path.name for path in directory.iterdir())

        assert found == ["table-1"]
        assert not (directory / "table-1" / "deep").exists()
        assert (directory.stat().st_ino, directory.stat().st_mode & 0o777) == (inode, 0o700)


async def test_a_work_directory_that_cannot_be_used_is_said_and_tried_again(store, tmp_path, clock):
    """A full or read-only disk is nothing that a restart loop would mend."""
    (tmp_path / "file").write_text("in the way")
    shard = make_shard(store, tmp_path / "file", clock=clock)
    async with running(shard, is_ready=False):
        await until(lambda: clock.sleeping == 1)
        detail = shard.unready_detail
        (tmp_path / "file").unlink()
        clock.advance(1.0)
        await until(lambda: is_writable(shard))

    assert detail == "local_disk"


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
        await until(lambda: again.unready_detail == "restoring 0/1 MiB")
        held.set()
        await until(lambda: again.unready_detail is None)
