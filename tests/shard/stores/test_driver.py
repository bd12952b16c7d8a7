"""The driver between the log protocol and a store: nothing lost in translation."""

import asyncio
import hashlib
import uuid
from pathlib import Path

import pytest

from groundplane.errors import CorruptData, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import Epoch, Identity, Layout, LocalFile, Position, Replica, Seq, Snapshot, SnapshotFile
from groundplane_shard.log.operations import Absent, Damaged, Get, Pause, Refused, Restored, Unknown
from groundplane_shard.log.operations import Create as CreateOperation
from groundplane_shard.stores import LocalStore, MemoryStore, download_snapshot, run
from tests.support.failing_store import FailingStore, failing

LAYOUT = Layout("t-acme", "00000000-0000-4000-8000-00000000000a")


class State:
    """Effects whose state is one file: the payloads, a line each."""

    def __init__(self, store, directory):
        self.store, self.directory = store, directory
        self.payloads = []
        self.foreseen = []
        self.position = Position()

    async def restore(self, snapshot):
        self.payloads, self.position = [], Position()
        if snapshot is None:
            return Restored()
        fresh = self.directory / uuid.uuid4().hex
        answer = await download_snapshot(self.store, LAYOUT, snapshot, fresh)
        if isinstance(answer, Restored):
            self.payloads = (fresh / "data/payloads").read_bytes().split(b"\n")
            self.position = snapshot.position
        return answer

    async def apply(self, record, position):
        self.payloads += [record.payload] if record.payload else []
        self.position = position

    async def foresee(self, records):
        self.foreseen += [record.sequence for record in records]

    def freeze(self):
        content = b"\n".join(self.payloads)
        source = self.directory / uuid.uuid4().hex
        source.write_bytes(content)
        return (
            LocalFile(
                path="data/payloads", source=str(source), size=len(content), sha256=hashlib.sha256(content).hexdigest()
            ),
        )


@pytest.fixture(params=["local", "memory"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    local = LocalStore(tmp_path / "store")
    yield local
    local.close()


def replica(name):
    return Replica(Identity(layout=LAYOUT, owner="uid-a", writer_id=name), keep_snapshots=2)


async def opened_writer(store, directory, name):
    """Return the state and the writer of a process that has just taken over."""
    state, process = State(store, directory), replica(name)
    await run(process.open(), store, state)
    return state, await run(process.take_over(), store, state)


async def test_whole_life_on_a_real_store(store, tmp_path):
    """Write, snapshot, collect, be replaced, restore: the next process holds exactly what was acknowledged."""
    state, writer = await opened_writer(store, tmp_path, "w1")
    for number in range(12):
        await run(writer.append(b"p%d" % number), store, state)
        if number % 3 == 2:
            await run(writer.publish_snapshot(state.freeze(), state.position, token=uuid.uuid4().hex), store, state)
            await run(writer.collect(), store, state)
    await run(writer.append(b"tail"), store, state)
    heir, successor = await opened_writer(store, tmp_path, "w2")

    assert heir.payloads == state.payloads
    assert successor.position.sequence == writer.position.sequence + 1
    assert len(successor.manifest.snapshots) == 2
    with pytest.raises(Superseded):
        await run(writer.append(b"late"), store, state)


async def test_damaged_snapshot_file_on_the_disk_falls_back(tmp_path):
    """The path from a flipped bit on the disk to the older snapshot, with nothing simulated."""
    store = LocalStore(tmp_path / "store")
    state, writer = await opened_writer(store, tmp_path, "w1")
    for payload in (b"a", b"b"):
        await run(writer.append(payload), store, state)
        newest = await run(
            writer.publish_snapshot(state.freeze(), state.position, token=uuid.uuid4().hex), store, state
        )
    stored = tmp_path / "store" / LAYOUT.object(newest.files[0].key)
    stored.write_bytes(b"rotten")
    heir, _ = await opened_writer(store, tmp_path, "w2")

    assert heir.payloads == [b"a", b"b"]
    store.close()


@pytest.mark.parametrize(
    ("error", "result"),
    [(OutcomeUnknown("lost"), Unknown("lost")), (Unavailable("full"), Refused("full"))],
    ids=["unknown", "refused"],
)
async def test_errors_of_the_store_become_results(error, result):
    """Certainly-not-done and not-known-whether-done lead to different rules, so they must arrive as different answers."""

    class FailingStore(MemoryStore):
        async def create(self, key, data):
            raise error

    def steps():
        return (yield CreateOperation("t/a", b"x"))

    assert await run(steps(), FailingStore(), State(None, Path())) == result


async def test_pauses_grow_and_are_bounded(monkeypatch):
    """A store that is down must be left alone a little longer each time, but a write must be refused within 2 seconds."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    def steps():
        for attempt in range(1, 6):
            yield Pause(attempt)

    await run(steps(), MemoryStore(), State(None, Path()))
    assert slept[-1] > slept[0]
    assert sum(slept) < 2


async def test_cancelled_run_closes_the_protocol_where_it_stands():
    """The writer must know that its append was cut off."""
    closed = []

    class StuckStore(MemoryStore):
        async def get(self, key):
            await asyncio.Event().wait()
            return Absent()

    def steps():
        try:
            yield Get("t/a")
        finally:
            closed.append(True)

    task = asyncio.create_task(run(steps(), StuckStore(), State(None, Path())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert closed == [True]


async def test_failed_apply_stops_the_writer(store, tmp_path):
    """A committed record that cannot be applied means rebuilding the state, never going on without it."""
    state, writer = await opened_writer(store, tmp_path, "w1")

    async def fail(record, position):
        raise CorruptData("cannot be applied")

    state.apply = fail
    with pytest.raises(CorruptData):
        await run(writer.append(b"a"), store, state)
    with pytest.raises(Unavailable) as refusal:
        await run(writer.append(b"b"), store, state)
    assert refusal.value.code == "append_unfinished"


async def test_download_of_a_damaged_snapshot_says_so(store, tmp_path):
    """One wrong file spoils the snapshot; the directory is thrown away by the caller."""
    state, writer = await opened_writer(store, tmp_path, "w1")
    await run(writer.append(b"a"), store, state)
    snapshot = await run(writer.publish_snapshot(state.freeze(), state.position, token="00c0ffee"), store, state)
    await store.delete(LAYOUT.object(snapshot.files[0].key))

    assert isinstance(await download_snapshot(store, LAYOUT, snapshot, tmp_path / "fresh"), Damaged)


async def test_a_file_that_fails_on_the_way_is_fetched_again(store, tmp_path, monkeypatch):
    """Of a hundred files one or the other fails; to begin anew for that would never end over a bad line."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    state, writer = await opened_writer(store, tmp_path, "w1")
    await run(writer.append(b"a"), store, state)
    snapshot = await run(writer.publish_snapshot(state.freeze(), state.position, token="00c0ffee"), store, state)
    unreliable = FailingStore(store, failing("refused", "download", times=3))

    assert await download_snapshot(unreliable, LAYOUT, snapshot, tmp_path / "fresh") == Restored()


async def test_no_further_download_begins_after_one_has_failed(tmp_path, monkeypatch):
    """The directory is emptied for the next try; a straggler would write into that one."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    files = tuple(SnapshotFile(path=f"f{n}", key=f"snapshots/u/f{n}", size=1, sha256="0" * 64) for n in range(40))
    snapshot = Snapshot(upload_id="u", sequence=Seq(1), epoch=Epoch(1), digest="", files=files)
    store = FailingStore(MemoryStore(), failing("refused", "download"))

    with pytest.raises(Unavailable):
        await download_snapshot(store, LAYOUT, snapshot, tmp_path / "fresh")
    assert len({call.key for call in store.calls}) < len(files)
