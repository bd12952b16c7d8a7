"""Flushes and snapshots: due when they should be, labelled with what they hold, and harmless when they fail."""

import asyncio

import pytest

from groundplane.errors import CorruptData, OutcomeUnknown, Superseded, Unavailable
from groundplane.process.metrics import new_registry
from groundplane.wire.public import Basis
from groundplane_shard import snapshots
from groundplane_shard.local_state import Journal, Lag
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.payload import encode
from groundplane_shard.rows import StoredMemo
from groundplane_shard.snapshots import CHECK_SECONDS, RETRY_SECONDS, SnapshotPolicy, Snapshots
from groundplane_shard.stores import MemoryStore, run
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.corpus_model import stored
from tests.shard.shard_parts import local_state, outcome, replica, settled, until
from tests.support.failing_store import FailingStore, failing, nothing, waiting

NEVER = SnapshotPolicy(records=1_000_000, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40)
EVERY_RECORD = SnapshotPolicy(records=1, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40)


class Bench:
    """Snapshots of a writer over a store that can be made to fail; time stands still until it is moved."""

    def __init__(self, store, directory, policy):
        self.store = FailingStore(store)
        self.directory = directory
        self.policy = policy
        self.clock = VirtualClock()
        self.metrics = ShardMetrics(new_registry())
        self.task: asyncio.Task[None] | None = None

    async def open(self):
        self.state = local_state(self.store, self.directory)
        self.replica = replica()
        await run(self.replica.open(), self.store, self.state)
        self.journal = Journal(await run(self.replica.take_over(), self.store, self.state), self.store, self.state)
        self.snapshots = Snapshots(self.journal, self.state, self.policy, self.clock, self.metrics)
        return self

    def start(self):
        self.task = asyncio.create_task(self.snapshots.keep())

    async def write(self, *operations):
        return await self.journal.append(encode(operations), operations)

    async def checked(self):
        """Let the task look once more, and wait until it has done what it found."""
        await until(self._is_idle)
        self.clock.advance(CHECK_SECONDS)
        await until(self._is_idle)

    def _is_idle(self):
        return self.clock.sleeping == 1 or (self.task is not None and self.task.done())

    @property
    def listed(self):
        return [snapshot.sequence for snapshot in self.journal.writer.manifest.snapshots]

    def corpus_rows(self):
        rows, _ = self.state.corpus.documents(self.state.corpus.view(), "", 100)
        return rows

    def uploads(self):
        return sum(call.verb == "upload" for call in self.store.calls)


@pytest.fixture
async def make(tmp_path):
    """Return a maker of benches; their tasks end with the test."""
    benches = []

    async def maker(policy=NEVER, store=None, name="work"):
        bench = Bench(MemoryStore() if store is None else store, tmp_path / name, policy)
        benches.append(await bench.open())
        return bench

    yield maker
    for bench in benches:
        if bench.task is not None:
            bench.task.cancel()
            await asyncio.gather(bench.task, return_exceptions=True)


def memo(name="m"):
    return StoredMemo(name, "f", b"1", Basis(tenant=None, platform=None))


async def test_a_snapshot_is_due_after_so_many_records(make):
    """The tail that a restart has to read stays short."""
    bench = await make(SnapshotPolicy(records=2, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40))
    bench.start()
    await bench.write(stored("a"))
    await bench.checked()
    after_one = bench.listed
    last = await bench.write(stored("b"))
    await bench.checked()

    assert (after_one, bench.listed) == ([], [last])
    assert bench.state.lag == Lag(0, 0)


async def test_a_snapshot_is_due_after_so_many_bytes(make):
    """Few large records make a long tail too."""
    bench = await make(SnapshotPolicy(records=1_000, log_bytes=1, seconds=1e9, flush_bytes=1 << 40))
    bench.start()
    last = await bench.write(stored("a"))
    await bench.checked()

    assert bench.listed == [last]


async def test_a_snapshot_is_due_so_long_after_the_first_change(make):
    """A corpus that is written to now and then gets one too; one that nobody touches gets none."""
    bench = await make(SnapshotPolicy(records=1_000, log_bytes=1 << 40, seconds=600.0, flush_bytes=1 << 40))
    bench.start()
    await bench.checked()
    bench.clock.advance(1_000.0)
    await bench.checked()
    untouched = bench.listed
    last = await bench.write(stored("a"))
    await bench.checked()
    bench.clock.advance(599.0)
    await bench.checked()
    before = bench.listed
    bench.clock.advance(1.0)
    await bench.checked()

    assert (untouched, before, bench.listed) == ([], [], [last])


async def test_the_tail_read_at_start_counts_towards_the_next_snapshot(make):
    """A shard that dies again and again before its thousandth record would else read an ever longer log."""
    first = await make()
    for number in range(3):
        await first.write(stored(f"d{number}"))
    second = await make(
        SnapshotPolicy(records=3, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40), first.store.store, "second"
    )
    lag = second.state.lag
    second.start()
    await second.checked()

    assert lag.records == 3
    assert lag.log_bytes > 0
    assert second.listed == [second.journal.sequence]


async def test_a_restart_without_changes_publishes_nothing(make):
    """A barrier is no news: stopping and starting must not fill the store with equal snapshots."""
    first = await make()
    await first.write(stored("a"))
    await first.snapshots.publish()
    second = await make(EVERY_RECORD, first.store.store, "second")
    await second.snapshots.publish()

    assert second.state.lag == Lag(0, 0)
    assert second.uploads() == 0


async def test_a_snapshot_is_labelled_with_the_last_record_it_holds(make):
    """Writes go on while it is made; a label that is too high would lose them: I8."""
    bench = await make()
    flushed = await bench.write(stored("a"))
    release = asyncio.Event()
    bench.store.rule = waiting(release, "upload")
    publishing = asyncio.create_task(bench.snapshots.publish())
    await until(lambda: bench.uploads() > 0)
    await bench.write(stored("b"))
    release.set()
    await publishing

    assert bench.listed == [flushed]
    assert bench.state.lag.records == 1


@pytest.mark.parametrize("verb", ["upload", "replace", "verify", "get"])
@pytest.mark.parametrize("failure", ["refused", "lost"])
async def test_after_a_snapshot_that_failed_half_way_the_next_one_holds_everything(make, monkeypatch, verb, failure):
    """Nothing that a failed try left behind may be taken for a snapshot, and its writes are not forgotten."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    bench = await make()
    await bench.write(stored("a"))
    bench.store.rule = failing(failure, verb)
    error = await outcome(bench.snapshots.publish())
    bench.store.rule = nothing
    last = await bench.write(stored("b"))
    await bench.snapshots.publish()
    restored = await make(store=bench.store.store, name="restored")

    assert error is None or isinstance(error, Unavailable)
    assert bench.listed[-1] == last
    assert restored.state.lag == Lag(0, 0)
    assert sorted(row.doc_id for row in restored.corpus_rows()) == ["a", "b"]


async def test_a_publication_whose_answer_was_lost_is_found_by_the_next_try(make, monkeypatch):
    """It was stored: to publish it again is impossible, and no reason to end the writer."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    bench = await make()
    last = await bench.write(stored("a"))
    lost = asyncio.Event()

    def from_the_change_on(call):
        if call.verb == "replace":
            lost.set()
        return "lost" if lost.is_set() else None

    bench.store.rule = from_the_change_on
    error = await outcome(bench.snapshots.publish())
    bench.store.rule = nothing
    await bench.snapshots.publish()

    assert isinstance(error, OutcomeUnknown)
    assert bench.listed == [last]
    assert bench.state.lag == Lag(0, 0)


async def test_a_failed_snapshot_is_tried_again_half_a_minute_later(make):
    """Also one that was due by time: it must not wait for another ten minutes."""
    bench = await make(SnapshotPolicy(records=1_000, log_bytes=1 << 40, seconds=600.0, flush_bytes=1 << 40))
    bench.start()
    last = await bench.write(stored("a"))
    await bench.checked()
    bench.store.rule = failing("refused", "upload")
    bench.clock.advance(600.0)
    await bench.checked()
    failed_at = bench.clock.monotonic()
    bench.store.rule = nothing
    await bench.checked()
    too_early = bench.listed
    bench.clock.advance(RETRY_SECONDS)
    await bench.checked()

    assert (too_early, bench.listed) == ([], [last])
    assert bench.clock.monotonic() - failed_at < 2 * RETRY_SECONDS
    assert bench.metrics.snapshot_failures._value.get() == 1


async def test_a_collection_that_fails_does_not_undo_the_snapshot(make, monkeypatch):
    """It is published; what is left over is collected after the next one."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    bench = await make()
    last = await bench.write(stored("a"))
    bench.store.rule = failing("refused", "list", "delete")
    await bench.snapshots.publish()

    assert bench.listed == [last]
    assert bench.snapshots.last_success == bench.clock.now()
    assert bench.metrics.last_snapshot._value.get() == bench.clock.now()
    assert bench.metrics.snapshot_failures._value.get() == 0


async def test_an_upload_that_arrives_damaged_is_a_failed_snapshot_and_no_more(make, monkeypatch):
    """A store that spoils files must not take the shard's readers away again and again."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    store = MemoryStore()
    bench = await make(EVERY_RECORD, store)
    bench.start()
    await bench.write(stored("a"))
    spoiled = store.upload

    async def spoil(key, file):
        answer = await spoiled(key, file)
        store.objects[key] = store.objects[key][:-1] + b"?"
        return answer

    vars(store)["upload"] = spoil
    await bench.checked()

    assert not bench.task.done()
    assert bench.listed == []
    vars(store)["upload"] = spoiled
    bench.clock.advance(RETRY_SECONDS)
    await bench.checked()
    assert bench.listed == [bench.journal.sequence]


async def test_a_flush_that_finds_the_disk_full_is_tried_again_and_ends_nothing(make, monkeypatch):
    """Reads go on from memory while somebody makes room."""
    bench = await make(SnapshotPolicy(records=1_000, log_bytes=1 << 40, seconds=1e9, flush_bytes=1))
    bench.start()
    last = await bench.write(stored("a"))
    flush = bench.state.corpus.flush

    async def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.state.corpus, "flush", full)
    await bench.checked()
    assert not bench.task.done()
    monkeypatch.setattr(bench.state.corpus, "flush", flush)
    await bench.checked()
    too_early = bench.state.corpus.flushed_sequence
    bench.clock.advance(RETRY_SECONDS)
    await bench.checked()

    assert (too_early, bench.state.corpus.flushed_sequence) == (0, last)


async def test_a_memtable_of_the_size_of_a_flush_is_flushed_without_a_snapshot(make):
    """Memory is bounded even while the store takes no snapshot."""
    bench = await make(SnapshotPolicy(records=1_000, log_bytes=1 << 40, seconds=1e9, flush_bytes=1))
    bench.start()
    last = await bench.write(stored("a"))
    await bench.checked()

    assert bench.state.corpus.flushed_sequence == last
    assert bench.listed == []
    assert bench.state.lag.records == 1


async def test_memos_alone_are_flushed_and_published(make):
    """A corpus without any document must neither fill its memory nor keep its log for ever."""
    bench = await make()
    for number in range(5):
        last = await bench.write(memo(f"m{number}"))
    await bench.snapshots.publish()
    restored = await make(store=bench.store.store, name="restored")

    assert bench.listed == [last]
    assert restored.state.corpus.flushed_sequence == last
    assert restored.state.corpus.memo("m4", "f") == memo("m4")


async def test_memos_from_before_the_first_document_are_in_its_snapshot(make):
    """From the first vector on there is a table, and all that waited goes into it."""
    bench = await make()
    await bench.write(memo())
    await bench.write(memo("n"))
    last = await bench.write(stored("a"))
    await bench.snapshots.publish()
    restored = await make(store=bench.store.store, name="restored")

    assert bench.listed == [last]
    assert restored.state.lag == Lag(0, 0)
    assert restored.state.corpus.memo("m", "f") == memo()


async def test_a_damaged_newest_snapshot_is_replaced_by_the_one_before_and_more_log(make):
    """Nothing is lost, and the longer tail counts: a good snapshot is due sooner."""
    bench = await make()
    await bench.write(stored("a"))
    await bench.snapshots.publish()
    await bench.write(stored("b"))
    await bench.snapshots.publish()
    store = bench.store.store
    newest = bench.journal.writer.manifest.snapshots[-1]
    own = next(file for file in newest.files if newest.upload_id in file.key)
    store.objects[f"{bench.replica.cell.identity.layout.prefix}{own.key}"] = b"damaged"
    restored = await make(store=store, name="restored")
    await restored.snapshots.publish()
    again = await make(store=store, name="again")

    assert sorted(row.doc_id for row in restored.corpus_rows()) == ["a", "b"]
    assert newest.upload_id not in [each.upload_id for each in restored.journal.writer.manifest.snapshots]
    assert again.state.lag == Lag(0, 0)


async def test_a_superseded_writer_publishes_nothing(make):
    """Its MANIFEST is not its own any more; the task ends, so that the shard does."""
    bench = await make(EVERY_RECORD)
    bench.start()
    await bench.write(stored("a"))
    other = await make(store=bench.store.store, name="other")
    await bench.checked()

    assert isinstance(bench.task.exception(), Superseded)
    assert other.listed == []


async def test_a_manifest_that_went_back_ends_the_writer(make):
    """Somebody put old bytes back: nothing may be acknowledged on top of them: I7."""
    bench = await make(EVERY_RECORD)
    key = bench.replica.cell.identity.layout.manifest
    old = bench.store.store.objects[key]
    await bench.write(stored("a"))
    await bench.snapshots.publish()
    bench.store.store.objects[key] = old
    await bench.write(stored("b"))
    bench.start()
    await bench.checked()

    assert isinstance(bench.task.exception(), CorruptData)


async def test_a_publication_cut_off_leaves_the_next_one_free(make):
    """SIGTERM may come at any await; the lock, the staged copy and the counts are as before."""
    bench = await make()
    last = await bench.write(stored("a"))
    bench.store.rule = waiting(asyncio.Event(), "upload")
    publishing = asyncio.create_task(bench.snapshots.publish())
    await until(lambda: bench.uploads() > 0)
    publishing.cancel()
    await outcome(publishing)
    staged = [path.name for path in bench.directory.iterdir() if path.name.startswith("snapshot")]
    bench.store.rule = nothing
    await bench.snapshots.publish()

    assert staged == []
    assert bench.listed == [last]


async def test_a_file_that_did_not_change_is_not_read_again(make, monkeypatch):
    """Hashing a large table at every snapshot would cost more than the snapshot."""
    bench = await make()
    await bench.write(stored("a"))
    await bench.snapshots.publish()
    read, original = [], snapshots._sha256

    def noting(path):
        read.append(path)
        return original(path)

    monkeypatch.setattr(snapshots, "_sha256", noting)
    await bench.write(memo())
    await bench.snapshots.publish()
    newest = bench.journal.writer.manifest.snapshots[-1]

    assert 0 < len(read) < len(newest.files)


async def test_paused_keeps_the_next_snapshot_from_starting(make):
    """Whoever stops the shard waits for the one under way, and for no other."""
    bench = await make()
    await bench.write(stored("a"))
    async with bench.snapshots.paused():
        publishing = asyncio.create_task(bench.snapshots.publish())
        await settled()
        assert bench.uploads() == 0
    await publishing

    assert bench.uploads() > 0
