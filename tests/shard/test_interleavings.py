"""A real shard over an unreliable store, killed and opened again at random: nothing acknowledged is lost, nothing invented.

Documents carry a version; for each the test knows the versions that it tried and the last one acknowledged. What is
stored afterwards must be a version that was tried, no older than the last acknowledged one.
"""

import random

import pytest

from groundplane.errors import GroundplaneError
from groundplane_shard.snapshots import SnapshotPolicy
from groundplane_shard.stores import MemoryStore
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.shard_parts import (
    delete,
    document,
    kill_at_the_end,
    make_shard,
    memo,
    outcome,
    running,
    until,
    write_request,
)
from tests.support.failing_store import FailingStore, nothing, unreliable

SEEDS = 200
BLOCKS = 10
NAMES = ("a", "b", "c", "d")
DELETED = 0

NO_FLUSH = SnapshotPolicy(records=10**6, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40)
FLUSHES = SnapshotPolicy(records=6, log_bytes=1 << 40, seconds=1e9, flush_bytes=1 << 40)


class History:
    """What was tried and what was acknowledged, document by document and memo by memo."""

    def __init__(self):
        self.version = 0
        self.tried = {name: [DELETED] for name in NAMES}
        self.acknowledged = dict.fromkeys(NAMES, 0)  # index into what was tried: deletions all look alike
        self.memos_tried: list[int | None] = [None]
        self.memo_acknowledged = 0
        self.sequence = 0
        self.faults = []

    def attempt(self, generator):
        """Return a request, noted as tried, and what to note once it is acknowledged."""
        self.version += 1
        names = generator.sample(NAMES, generator.randint(1, 2))
        versions = {name: generator.choice((DELETED, self.version, self.version)) for name in names}
        for name, version in versions.items():
            self.tried[name].append(version)
        self.memos_tried.append(self.version)
        operations = [
            document(name, f"version {version}") if version else delete(name) for name, version in versions.items()
        ]
        return write_request(*operations, memo("m", self.version)), {name: len(self.tried[name]) - 1 for name in names}

    def note(self, result, indexes):
        if result.sequence < self.sequence:
            self.faults.append(f"sequence {result.sequence} after {self.sequence}")
        self.sequence = max(self.sequence, result.sequence)
        self.acknowledged.update(indexes)
        self.memo_acknowledged = len(self.memos_tried) - 1

    async def check(self, shard):
        """Compare what the shard holds with what it may hold."""
        for name in NAMES:
            stored = await shard.document(name)
            version = int(stored.text.split()[1]) if stored.document else DELETED
            possible = self.tried[name][self.acknowledged[name] :]
            if version not in possible:
                self.faults.append(f"{name} is at {version}: possible are {possible}")
        response = shard.memo("m", "f").response
        value = None if response is None else int(response)
        if value not in self.memos_tried[self.memo_acknowledged :]:
            self.faults.append(f"memo is at {value}: acknowledged was {self.memos_tried[self.memo_acknowledged]}")
        if shard.status().sequence < self.sequence:
            self.faults.append(f"shard is at {shard.status().sequence}: acknowledged was {self.sequence}")


async def life(generator, store, history, directory, policy):
    """One process: writes, snapshots and failures, then a stop or a kill. It is opened and checked without failures first."""
    shard = make_shard(store, directory, clock=VirtualClock(runs=True), snapshot_policy=policy)
    store.rule = nothing
    async with running(shard):
        await history.check(shard)
        store.rule = unreliable(generator, generator.choice((0.0, 0.2, 0.7)))
        for _ in range(generator.randint(2, 8)):
            request, indexes = history.attempt(generator)
            result = await outcome(shard.write(request))
            if not isinstance(result, BaseException):
                history.note(result, indexes)
            elif not isinstance(result, GroundplaneError):
                history.faults.append(repr(result))
            if policy is FLUSHES and generator.random() < 0.1:
                await outcome(shard.snapshot())
            if generator.random() < 0.2:
                store.rule = nothing
                await until(lambda: shard.unready_detail is None)
                await history.check(shard)
                store.rule = unreliable(generator, generator.choice((0.0, 0.2, 0.7)))
        store.rule = nothing
        await until(lambda: shard.unready_detail is None)
        if policy is NO_FLUSH or generator.random() < 0.5:
            kill_at_the_end(shard)


@pytest.mark.parametrize("block", range(BLOCKS))
async def test_no_acknowledged_write_is_lost_and_none_is_invented(block, tmp_path, monkeypatch):
    """I1, I2, I4 through every layer of the shard, whatever the store answers."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    monkeypatch.setattr("groundplane_shard.service.forget_loaded_modules", lambda: None)  # 100 ms a life
    monkeypatch.setattr("groundplane_shard.local_state.release_unused", lambda: None)  # 5 ms a life
    for seed in range(block, SEEDS, BLOCKS):
        generator = random.Random(seed)
        store, history = FailingStore(MemoryStore()), History()
        policy = FLUSHES if seed % 33 == 0 else NO_FLUSH
        for number in range(3):
            await life(generator, store, history, tmp_path / f"{seed}-{number}", policy)
        store.rule = nothing
        async with running(make_shard(store, tmp_path / f"{seed}-end")) as shard:
            await history.check(shard)
            kill_at_the_end(shard)

        assert history.faults == [], f"seed {seed}"
