"""The committer: one record at a time, results in queue order, and nobody told more than is known."""

import asyncio
import gc

import pytest

from groundplane.errors import OutcomeUnknown, Superseded, Unavailable
from groundplane.process.metrics import new_registry
from groundplane.wire.public import Basis
from groundplane_shard.committer import (
    ANSWER_SECONDS,
    MAX_BATCH_BYTES,
    MAX_BATCH_CHUNKS,
    STALL_SECONDS,
    Committer,
    WriteLimits,
    patience_seconds,
)
from groundplane_shard.local_state import Journal
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.rows import StoredDelete, StoredMemo, StoredMemoDelete
from groundplane_shard.stores import MemoryStore, run
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.corpus_model import stored
from tests.shard.shard_parts import local_state, outcome, replica, settled, until
from tests.support.failing_store import FailingStore, failing, nothing, waiting

LIMITS = WriteLimits(max_queued=1_000, max_memtable_bytes=1 << 40)


class Bench:
    """A committer over a store that can be made to fail, with its task running."""

    def __init__(self, store, directory, limits=LIMITS):
        self.memory = store
        self.store = FailingStore(store)
        self.directory = directory
        self.limits = limits
        self.clock = VirtualClock()
        self.metrics = ShardMetrics(new_registry())

    async def open(self):
        self.state = local_state(self.store, self.directory)
        process = replica()
        await run(process.open(), self.store, self.state)
        writer = await run(process.take_over(), self.store, self.state)
        self.corpus = self.state.corpus
        self.journal = Journal(writer, self.store, self.state)
        self.committer = Committer(self.journal, self.state.generations, self.limits, self.metrics, self.clock)
        return self

    def start(self):
        self.task = asyncio.create_task(self.committer.run())

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def submit(self, *operations):
        return asyncio.create_task(self.committer.submit(operations))

    def records(self):
        return sum("/log/" in key for key in self.memory.objects)


@pytest.fixture
async def bench(tmp_path):
    opened = await Bench(MemoryStore(), tmp_path).open()
    opened.start()
    yield opened
    await opened.stop()


async def held(bench):
    """Hold the next record back; return the event that lets it go, once the record is on its way."""
    release = asyncio.Event()
    bench.store.rule = waiting(release, "create", key="/log/")
    asked = len(bench.store.calls)
    first = bench.submit(stored("first"))
    await until(lambda: any(call.verb == "create" for call in bench.store.calls[asked:]))
    return release, first


def basis():
    return Basis(tenant=None, platform=None)


async def test_what_waits_while_a_record_is_on_its_way_shares_the_next_one(bench):
    """Group commit is what makes many small writers fast; it must not need a timer."""
    before = bench.records()
    release, first = await held(bench)
    jobs = [bench.submit(stored(f"d{number}")) for number in range(20)]
    await settled()
    release.set()
    results = await asyncio.gather(first, *jobs)

    assert bench.records() == before + 2
    assert [each.sequence for each in results] == [results[0].sequence] + [results[0].sequence + 1] * 20


async def test_operations_of_one_batch_are_decided_in_queue_order(bench):
    """`unchanged` means: as the requests before left it, even those in the same record."""
    release, first = await held(bench)
    jobs = [
        bench.submit(stored("a", ("pump",)), stored("b")),
        bench.submit(stored("a", ("pump",))),
        bench.submit(StoredDelete("a"), StoredDelete("a")),
        bench.submit(stored("a", ("pump",))),
        bench.submit(stored("a", ("valve",))),
        bench.submit(StoredMemo("m", "f", b"1", basis()), StoredMemo("m", "f", b"1", basis())),
        bench.submit(StoredMemoDelete("m", "f"), StoredMemoDelete("m", "f"), StoredMemoDelete("n", "f")),
    ]
    await settled()
    release.set()
    await first
    results = await asyncio.gather(*jobs)

    assert [[each.changed for each in job.results] for job in results] == [
        [True, True],
        [False],
        [True, False],
        [True],
        [True],
        [True, False],
        [True, False, False],
    ]
    assert bench.corpus.content_hash("a") == stored("a", ("valve",)).content_hash
    assert bench.corpus.memo("m", "f") is None


async def test_a_batch_that_changes_nothing_leaves_the_log_alone(bench):
    """Repeating an import must cost no log."""
    done = await bench.submit(stored("a"))
    before = bench.records()
    again = await bench.submit(stored("a"), StoredDelete("never"))

    assert bench.records() == before
    assert (again.sequence, [each.changed for each in again.results]) == (done.sequence, [False, False])


async def test_a_superseded_writer_does_not_even_acknowledge_what_changes_nothing(bench, tmp_path):
    """What it believes to be stored may have been deleted by the new writer: I5."""
    await bench.submit(stored("a"))
    other = await Bench(bench.store.store, tmp_path / "other").open()
    other.start()
    await other.submit(StoredDelete("a"))
    await other.stop()

    error = await outcome(bench.submit(stored("a")))

    assert isinstance(error, OutcomeUnknown)
    with pytest.raises(Superseded):
        await bench.task


@pytest.mark.parametrize(
    ("operations", "records"),
    [
        pytest.param([[stored("d", ("pump",) * 400)]] * 5, 3, id="chunks"),
        pytest.param([[StoredMemo(f"m{n}", "f", bytes(1_500_000), basis())] for n in range(5)], 3, id="bytes"),
        pytest.param(
            [[StoredMemo(f"m{n}-{i}", "f", b"1", basis()) for i in range(500)] for n in range(5)], 3, id="operations"
        ),
    ],
)
async def test_a_batch_ends_before_its_limits(bench, operations, records):
    """A record is encoded, sent and applied whole, so its size bounds how long others wait."""
    if isinstance(operations[0][0], StoredMemo):
        jobs_of = operations
    else:
        jobs_of = [[stored(f"d{number}", ("pump",) * 400)] for number in range(5)]
    release, first = await held(bench)
    before = bench.records()
    jobs = [bench.submit(*each) for each in jobs_of]
    await settled()
    release.set()
    await asyncio.gather(first, *jobs)

    assert bench.records() == before + 1 + records


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(stored("large", ("pump",) * (MAX_BATCH_CHUNKS + 1)), id="chunks"),
        pytest.param(StoredMemo("large", "f", bytes(MAX_BATCH_BYTES + 1), basis()), id="bytes"),
    ],
)
async def test_a_request_larger_than_a_batch_goes_alone(bench, operation):
    """A request is in one record whole, whatever its size."""
    release, first = await held(bench)
    before = bench.records()
    jobs = [bench.submit(stored("a")), bench.submit(operation), bench.submit(stored("b"))]
    await settled()
    release.set()
    results = await asyncio.gather(first, *jobs)

    assert bench.records() == before + 4
    assert [each.sequence - results[0].sequence for each in results] == [0, 1, 2, 3]


async def test_a_full_queue_refuses_and_forgets_nothing(tmp_path):
    """Excess is refused early, with 503; what was taken in is done."""
    bench = await Bench(MemoryStore(), tmp_path, WriteLimits(max_queued=2, max_memtable_bytes=1 << 40)).open()
    bench.start()
    release, first = await held(bench)
    jobs = [bench.submit(stored("a")), bench.submit(stored("b"))]
    await settled()
    refused = await outcome(bench.submit(stored("c")))
    release.set()
    await asyncio.gather(first, *jobs)
    taken_again = await bench.submit(stored("c"))
    await bench.stop()

    assert (refused.code, refused.retry_after_seconds) == ("overloaded", 1)
    assert taken_again.results[0].changed


async def test_what_waits_counts_as_memory_too(tmp_path):
    """A few hundred waiting requests of many megabytes would not fit into memory."""
    size = stored("a", ("pump",) * 100).vectors.nbytes
    bench = await Bench(MemoryStore(), tmp_path, WriteLimits(max_queued=100, max_memtable_bytes=3 * size)).open()
    bench.start()
    release, first = await held(bench)
    jobs = [bench.submit(stored(f"d{number}", ("pump",) * 100)) for number in range(5)]
    await settled()
    release.set()
    results = [await outcome(each) for each in (first, *jobs)]
    await bench.stop()

    refused = [each for each in results if isinstance(each, Unavailable)]
    assert results[1].results[0].changed
    assert [each.code for each in refused] == ["overloaded"] * len(refused)
    assert refused


async def test_a_refused_put_tells_everyone_and_the_writer_goes_on_at_the_same_sequence(bench):
    """Certainly nothing was stored: 503, and the place in the log is still free."""
    done = await bench.submit(stored("a"))
    bench.store.rule = failing("refused", "create", key="/log/", times=1)
    first, second = bench.submit(stored("b")), bench.submit(stored("c"))
    errors = await asyncio.gather(first, second, return_exceptions=True)
    after = await bench.submit(stored("b"))

    assert [type(each) for each in errors] == [Unavailable, Unavailable]
    assert errors[0] is not errors[1]
    assert after.sequence == done.sequence + 1
    assert bench.corpus.content_hash("c") is None


async def test_a_refusing_store_is_logged_once_and_once_more_when_it_takes_writes_again(bench, caplog):
    """A full disk must be found in the log, and a thousand refused writes must not fill it further."""
    caplog.set_level("INFO", logger="groundplane.committer")
    bench.store.rule = failing("refused", "create", key="/log/", times=3)
    for name in "abc":
        with pytest.raises(Unavailable):
            await bench.submit(stored(name))
    await bench.submit(stored("d"))
    await bench.submit(stored("e"))

    assert [record.message for record in caplog.records] == ["writes_refused", "writes_accepted_again"]


async def test_a_lost_answer_is_settled_by_reading_the_record_back(bench):
    """The record is there, so the caller gets his result, not a riddle: I4."""
    bench.store.rule = failing("lost", "create", key="/log/", times=1)
    done = await bench.submit(stored("a"))

    assert done.results[0].changed
    assert bench.corpus.content_hash("a") is not None


async def test_an_outcome_that_cannot_be_settled_is_told_as_unknown_and_ends_the_writer(bench, monkeypatch):
    """Neither success nor failure: and this writer must not guess the next sequence."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    bench.store.rule = lambda call: "lost" if call.verb in {"create", "get"} and "/log/" in call.key else None
    error = await outcome(bench.submit(stored("a")))

    assert isinstance(error, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        await bench.task
    later = await outcome(bench.submit(stored("b")))
    assert (type(later), later.code) == (Unavailable, "store_unavailable")


async def test_what_waits_behind_an_unknown_outcome_was_certainly_not_stored(bench, monkeypatch):
    """Only the requests of the record itself are in doubt."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    bench.store.rule = lambda call: "lost" if call.verb in {"create", "get"} and "/log/" in call.key else None
    asked = len(bench.store.calls)
    first = bench.submit(stored("a"))
    await until(lambda: any(call.verb == "create" for call in bench.store.calls[asked:]))
    behind = await outcome(bench.submit(stored("behind")))

    assert isinstance(await outcome(first), OutcomeUnknown)
    assert (type(behind), behind.code) == (Unavailable, "store_unavailable")


async def test_a_record_that_could_not_be_applied_is_an_unknown_outcome_and_ends_the_writer(bench, monkeypatch):
    """It is in the log: to tell the caller that nothing was stored would be a lie, and a writer behind its log is no writer."""

    async def out_of_space(_sequence, _operations):
        raise Unavailable("no space is left", code="disk_full")

    monkeypatch.setattr(bench.corpus, "apply", out_of_space)
    error = await outcome(bench.submit(stored("a")))

    assert isinstance(error, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        await bench.task


async def test_a_look_up_ahead_that_fails_harms_no_write(bench, monkeypatch):
    """It only saves time; the write is stored and applied without it."""

    async def unreadable(_operations):
        raise Unavailable("table cannot be read now")

    monkeypatch.setattr(bench.corpus, "prefetch", unreadable)
    monkeypatch.setattr(bench.corpus, "apply", _applying_without_prefetch(bench.corpus))
    done = await bench.submit(stored("a"))

    assert done.results[0].changed


def _applying_without_prefetch(corpus):
    async def apply(sequence, operations):
        async def nothing_to_fetch(_operations):
            return

        prefetch, corpus.prefetch = corpus.prefetch, nothing_to_fetch
        await type(corpus).apply(corpus, sequence, operations)
        corpus.prefetch = prefetch

    return apply


async def test_a_committer_cancelled_while_a_record_is_on_its_way_tells_its_callers_that_nobody_knows(bench):
    """The PUT may still arrive; those behind it were certainly not sent."""
    _, first = await held(bench)
    behind = bench.submit(stored("behind"))
    await settled()
    await bench.stop()

    assert isinstance(await outcome(first), OutcomeUnknown)
    assert (await outcome(behind)).code == "not_ready"
    assert bench.journal.writer.stopped is not None


async def test_a_bug_in_the_committer_leaves_no_caller_waiting(bench, monkeypatch):
    """A request must get an answer even when the program is wrong."""

    async def wrong(_sequence, _operations):
        raise TypeError("wrong")

    monkeypatch.setattr(bench.corpus, "apply", wrong)
    error = await outcome(bench.submit(stored("a")))

    assert isinstance(error, OutcomeUnknown)
    with pytest.raises(TypeError):
        await bench.task


async def test_a_caller_who_leaves_does_not_take_his_write_with_him(bench):
    """It is in the queue, perhaps in the log: only the answer has no receiver any more."""
    release, first = await held(bench)
    gone = bench.submit(stored("gone"))
    await settled()
    gone.cancel()
    await settled()
    release.set()
    await first
    done = await bench.submit(stored("gone"))

    assert not done.results[0].changed


async def test_a_caller_who_leaves_before_a_failure_causes_no_noise(bench, caplog):
    """An exception that nobody fetches would be logged as a bug."""
    release, first = await held(bench)
    first.cancel()
    await bench.stop()
    del first, release
    gc.collect()
    await settled()

    assert caplog.records == []


async def test_exclusive_holds_the_committer_between_two_batches(bench):
    """What stops the shard must find no record half done."""
    async with bench.committer.exclusive():
        job = bench.submit(stored("a"))
        await settled()
        assert not job.done()

    assert (await job).results[0].changed


async def test_every_job_gets_exactly_its_own_results(bench):
    """Many requests in one record: no result may slip to a neighbour."""
    release, first = await held(bench)
    jobs = [bench.submit(*[stored(f"d{number}-{part}") for part in range(number % 4 + 1)]) for number in range(30)]
    await settled()
    release.set()
    await first
    results = await asyncio.gather(*jobs)

    assert [len(each.results) for each in results] == [number % 4 + 1 for number in range(30)]


async def test_the_moment_of_durability_is_seen(bench):
    """An alert on an old last fsync needs the metric to move with every record, and with nothing else."""
    bench.clock.advance(5.0)
    await bench.submit(stored("a"))
    at_write = bench.metrics.last_fsync._value.get()
    bench.clock.advance(5.0)
    await bench.submit(stored("a"))

    assert at_write == bench.clock.now() - 5.0
    assert bench.metrics.last_fsync._value.get() == at_write


@pytest.mark.parametrize("last_seconds", [0.0, 0.3, 0.5, 1.0, 1.49, 1.5, 40.0])
def test_a_slow_record_and_the_one_after_it_take_less_than_two_seconds_together(last_seconds):
    """On a store at 10 KB/s a request waits for both; a record that may take long does not become one that may not."""
    patience = patience_seconds(last_seconds)

    assert ANSWER_SECONDS - STALL_SECONDS <= patience <= STALL_SECONDS
    assert last_seconds + patience <= ANSWER_SECONDS or last_seconds > STALL_SECONDS
    assert patience == STALL_SECONDS or last_seconds > ANSWER_SECONDS - STALL_SECONDS


async def test_nobody_is_kept_waiting_by_a_store_that_does_not_answer(bench, monkeypatch, caplog):
    """A caller that hangs holds what its own callers wait for; what each is told is no more than is known."""
    caplog.set_level("INFO", "groundplane")
    monkeypatch.setattr("groundplane_shard.committer.STALL_SECONDS", 0.05)
    release, first = await held(bench)
    behind = bench.submit(stored("behind"))
    await settled()
    answers = [await outcome(first), await outcome(behind), await outcome(bench.submit(stored("later")))]
    bench.store.rule = nothing
    release.set()
    await until(lambda: bench.records() == 2)  # the barrier and the first record
    await settled()
    after = await bench.submit(stored("after"))

    assert [(type(answer), answer.code) for answer in answers] == [
        (OutcomeUnknown, "outcome_unknown"),
        (Unavailable, "store_unavailable"),
        (Unavailable, "store_unavailable"),
    ]
    assert (after.sequence, bench.records()) == (3, 3)
    assert [record.getMessage() for record in caplog.records] == ["writes_refused", "writes_accepted_again"]
