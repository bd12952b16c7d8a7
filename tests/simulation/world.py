"""A simulated store, several processes of one corpus, and a scheduler that decides everything from one seed.

One step lets one lane of one process do the one operation it waits for. On the way the operation may be lost, its
answer may be lost, it may arrive (again) much later, meet a 409, or its process may freeze or crash. Bytes are never
damaged here, so any `CorruptData` is a violation. Equal seeds give equal traces.
"""

import hashlib
import random
from collections.abc import Callable, Generator
from typing import Any

from groundplane.errors import CorruptData, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import Identity, Layout, LocalFile, Replica, Writer
from groundplane_shard.log import operations as ops
from groundplane_shard.log.record import Position
from tests.simulation.model import Model, Violation, pack, unpack

LAYOUT = Layout("t-simulated", "00000000-0000-4000-8000-000000000001")
PROCESSES = 4
ANY_VERSION = "*"  # etag of a MANIFEST change without condition: only a planted fault sends it

Lane = Generator[ops.Operation, Any, None]


class Rates:
    """How rough this seed's world is: drawn once, so that seeds differ in kind and not only in detail.

    Chances are per operation. `at_barrier` multiplies freezes and crashes between the end of the log and the barrier: the
    moment is short, and what must not happen there is rare.
    """

    def __init__(self, rng: random.Random) -> None:
        self.lost = rng.choice((0.0, 0.04, 0.12))
        self.late = rng.choice((0.0, 0.03, 0.08))
        self.conflict = rng.choice((0.0, 0.04))
        self.outage = rng.choice((0.0, 0.006))
        self.freeze = rng.choice((0.0, 0.015, 0.04))
        self.crash = rng.choice((0.0, 0.004, 0.012))
        self.take_over = rng.choice((0.05, 0.15, 0.4))
        self.keep = rng.choice((1, 1, 2, 3))
        self.records_per_snapshot = rng.choice((1, 2, 5))
        self.longest_freeze = rng.choice((60, 250))
        self.at_barrier = 8
        if rng.random() < 0.33:
            self._stall_take_overs()

    def _stall_take_overs(self) -> None:
        """Make it likely that a take-over sleeps while another process takes over, publishes and collects."""
        self.lost = self.late = self.conflict = self.outage = self.crash = 0.0
        self.freeze, self.at_barrier, self.longest_freeze = 0.01, 60, 600
        self.take_over, self.keep, self.records_per_snapshot = 0.1, 1, 3


class Process:
    """One process life: its local state, its lanes, and whether it is frozen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.payloads: list[bytes] = []
        self.position = Position()
        self.writer: Writer | None = None
        self.lanes: list[
            tuple[Lane, ops.Operation, Any]
        ] = []  # generator, operation it waits for, answer already there
        self.frozen_until = 0
        self.cut_off_until = 0  # until this step none of its requests is answered


class World:
    """Everything that exists in one run."""

    def __init__(self, seed: int, *, on_trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.rates = Rates(self.rng)
        self.objects: dict[str, bytes] = {}
        self.late: list[ops.Operation] = []
        self.local_files: dict[str, bytes] = {}
        self.model = Model(LAYOUT)
        self.processes: list[Process] = []
        self.store_operations = 0
        self.step_number = 0
        self.events: dict[str, int] = {}
        self._names = 0
        self._payloads = 0
        self._on_trace = on_trace

    # -- running

    def run(self, store_operations: int) -> None:
        """Run until so many store operations were made, then check the end. Raises Violation."""
        for _ in range(PROCESSES):
            self._start_process()
        while self.store_operations < store_operations:
            self.step()
        self._check_end()

    def step(self) -> None:
        """Let one lane of one process that is not frozen do one operation."""
        self.step_number += 1
        if self.late and self.rng.random() < 0.02:
            self._perform(self.late.pop(self.rng.randrange(len(self.late))), "late")
        ready = [process for process in self.processes if process.frozen_until <= self.step_number]
        if not ready:
            return
        process = self.rng.choice(ready)
        index = self.rng.randrange(len(process.lanes))
        lane, operation, answer = process.lanes[index]
        if answer is None:
            answer = self._perform_with_faults(operation, process)
            fate = self.rng.random()
            if isinstance(operation, ops.List) and process.writer is None:
                fate /= self.rates.at_barrier
            if fate < self.rates.crash:
                self._crash(process)
                return
            if fate < self.rates.crash + self.rates.freeze:
                self._freeze(process)
                process.lanes[index] = (lane, operation, answer)
                return
        elif self.rng.random() < self.rates.freeze:
            self._freeze(process)
            return
        self._resume(process, index, lane, answer)

    def count(self, event: str) -> None:
        """Note that something worth reaching was reached."""
        self.events[event] = self.events.get(event, 0) + 1

    def trace(self, text: str) -> None:
        """Add one line to the trace, if somebody reads it."""
        if self._on_trace is not None:
            self._on_trace(f"{self.step_number:5d} {text}")

    def fresh_token(self) -> str:
        """Return hex that was not used before."""
        self._names += 1
        return f"{self._names:08x}"

    def fresh_payload(self) -> bytes:
        """Return a payload that was not used before."""
        self._payloads += 1
        return b"p%d" % self._payloads

    # -- processes

    def _start_process(self) -> None:
        process = Process(f"w{self.fresh_token()[-4:]}")
        self.processes.append(process)
        self._add_lane(process, log_lane(self, process))
        self._add_lane(process, manifest_lane(self, process))

    def _add_lane(self, process: Process, lane: Lane) -> None:
        process.lanes.append((lane, next(lane), None))

    def _resume(self, process: Process, index: int, lane: Lane, answer: Any) -> None:
        try:
            process.lanes[index] = (lane, lane.send(answer), None)
        except StopIteration:
            self.trace(f"{process.name} ends")
            self._replace(process)
        except CorruptData as error:
            raise Violation(f"I11 nothing was damaged, yet: {error.message}") from error

    def _crash(self, process: Process) -> None:
        self.trace(f"{process.name} crashes")
        self.count("crash")
        for _, operation, answer in process.lanes:
            if (
                answer is None
                and self.rng.random() < 0.3
                and isinstance(operation, ops.Create | ops.Replace | ops.Upload | ops.Delete)
            ):
                self.late.append(operation)  # it was on its way
        self._replace(process)

    def _replace(self, process: Process) -> None:
        for lane, _, _ in process.lanes:
            lane.close()
        self.processes.remove(process)
        self._start_process()

    def _freeze(self, process: Process) -> None:
        process.frozen_until = self.step_number + self.rng.randrange(5, self.rates.longest_freeze)
        self.trace(f"{process.name} freezes until {process.frozen_until}")
        self.count("freeze")

    # -- operations

    def _perform_with_faults(self, operation: ops.Operation, process: Process) -> ops.Result:
        if isinstance(operation, ops.Pause):
            return ops.Resumed()
        if isinstance(operation, ops.Restore):
            return self._restore(operation, process)
        if isinstance(operation, ops.Apply):
            return self._apply(operation, process)
        self.store_operations += 1
        is_write = not isinstance(operation, ops.Get | ops.List | ops.Verify)
        fate, rates = self.rng.random(), self.rates
        if fate < rates.outage:
            process.cut_off_until = self.step_number + self.rng.randrange(30, 200)
            self.trace(f"{process.name} is cut off until {process.cut_off_until}")
            self.count("outage")
        if fate < rates.lost or process.cut_off_until > self.step_number:
            if self.rng.random() < 0.5:
                self._perform(operation, f"{process.name} (answer lost)")
            return ops.Unknown("lost")
        fate -= rates.lost
        if is_write and fate < rates.late:
            self.late.append(operation)
            if self.rng.random() < 0.5:
                return ops.Unknown("late")
            return self._perform(operation, f"{process.name} (and again later)")
        fate -= rates.late
        if fate < rates.conflict and isinstance(operation, ops.Create | ops.Replace | ops.Upload):
            return ops.Conflict()
        return self._perform(operation, process.name)

    def _perform(self, operation: ops.Operation, who: str) -> ops.Result:
        result = self._store(operation)
        if self._on_trace is not None:
            self.trace(f"{who} {_describe(operation)} -> {_describe(result)}")
        return result

    def _store(self, operation: ops.Operation) -> ops.Result:
        match operation:
            case ops.Get(key):
                data = self.objects.get(key)
                return ops.Absent() if data is None else ops.Found(data, _etag(data))
            case ops.Create(key, data):
                return self._create(key, data)
            case ops.Replace(key, data, etag):
                current = self.objects.get(key)
                if current is None or etag not in (ANY_VERSION, _etag(current)):
                    return ops.PreconditionFailed()
                self.model.manifest_changed(data, self.objects)
                self.objects[key] = data
                return ops.Stored(_etag(data))
            case ops.List(prefix, start_after):
                return ops.Listed(
                    tuple(sorted(key for key in self.objects if key > start_after and key.startswith(prefix)))
                )
            case ops.Delete(key):
                self.model.deleted(key, self.objects)
                self.objects.pop(key, None)
                return ops.Deleted()
            case ops.Upload(key, file):
                return self._create(key, self.local_files[file.source])
            case ops.Verify(key, size, sha256):
                data = self.objects.get(key, b"")
                return ops.Verified() if (len(data), _etag(data)) == (size, sha256) else ops.Damaged("other bytes")
        raise TypeError(operation)

    def _create(self, key: str, data: bytes) -> ops.Result:
        if key in self.objects:
            return ops.PreconditionFailed()
        self.objects[key] = data
        if key.startswith(LAYOUT.log):
            if not self.model.created(key, data):
                self.count("stray record")
        elif key == LAYOUT.manifest:
            self.model.manifest_changed(data, self.objects)
        return ops.Stored(_etag(data))

    def _restore(self, operation: ops.Restore, process: Process) -> ops.Result:
        files = operation.snapshot.files if operation.snapshot else ()
        contents = [self.objects.get(LAYOUT.object(file.key), b"") for file in files]
        self.trace(f"{process.name} restores {operation.snapshot.sequence if operation.snapshot else 0}")
        if any(_etag(content) != file.sha256 for content, file in zip(contents, files, strict=True)):
            self.count("damaged snapshot")
            return ops.Damaged("other bytes")
        process.payloads = unpack(contents)
        process.position = operation.snapshot.position if operation.snapshot else Position()
        self.count("restore")
        return ops.Restored()

    def _apply(self, operation: ops.Apply, process: Process) -> ops.Result:
        record = operation.record
        self.model.applied(record, process.position.sequence)
        process.position = operation.position
        if record.payload:
            process.payloads.append(record.payload)
        return ops.Applied()

    # -- the end

    def _check_end(self) -> None:
        """Let everything late arrive, then read all of it with a fresh process, and once more without the newest snapshot."""
        for process in self.processes:
            for lane, _, _ in process.lanes:
                lane.close()
        while self.late:
            self._perform(self.late.pop(), "late")
        self.rates.lost = self.rates.late = self.rates.conflict = self.rates.outage = 0.0
        self._check_fresh_process()
        manifest = self.model.manifest
        if manifest is not None and (len(manifest.snapshots) > 1 or (manifest.snapshots and not manifest.log_floor)):
            for file in manifest.snapshots[-1].files:
                key = LAYOUT.object(file.key)
                if not any(file in snapshot.files for snapshot in manifest.snapshots[:-1]):
                    self.objects[key] = b"rotten"
            self._check_fresh_process()

    def _check_fresh_process(self) -> None:
        process = Process("last")
        replica = Replica(
            Identity(layout=LAYOUT, owner="u1", writer_id=f"last-{self.fresh_token()}"), keep_snapshots=self.rates.keep
        )
        try:
            self._drive(replica.open(), process)
            writer = self._drive(replica.take_over(), process)
            payload = self.fresh_payload()
            before = self.model.invoked(payload)
            done = self._drive(writer.append(payload), process)
        except CorruptData as error:
            raise Violation(f"I2 a fresh process can read everything, yet: {error.message}") from error
        self.model.acknowledge(payload, done.sequence, process.payloads[-1], before)
        self.model.check_end(writer.position, process.payloads)

    def _drive(self, steps: ops.Steps[Any], process: Process) -> Any:
        try:
            operation = next(steps)
            while True:
                operation = steps.send(self._perform_with_faults(operation, process))
        except StopIteration as end:
            return end.value


# -- what a process does


def log_lane(world: World, process: Process) -> Lane:
    """Follow for a while, take over, append until superseded."""
    replica = Replica(Identity(layout=LAYOUT, owner="u1", writer_id=process.name), keep_snapshots=world.rates.keep)
    try:
        yield from _until_available(replica.open)
        while world.rng.random() > world.rates.take_over:
            yield ops.Pause(1)
            yield from _until_available(replica.follow)
        while True:
            writer = yield from _take_over(world, process, replica)
            yield from _append_until_unknown(world, process, writer)
            process.writer = None
            yield from _until_available(replica.open)
    except Superseded as error:
        world.trace(f"{process.name} is superseded: {error.message}")
        world.count("superseded")


def _take_over(world: World, process: Process, replica: Replica) -> ops.Steps[Writer]:
    writer: Writer = yield from _until_available(replica.take_over)
    world.model.check_state(writer.position, process.payloads, "I2 a writer begins with the log's prefix")
    world.trace(f"{process.name} is the writer of epoch {writer.epoch}")
    world.count("take-over")
    process.writer = writer
    return writer


def _append_until_unknown(world: World, process: Process, writer: Writer) -> Lane:
    while True:
        payload = world.fresh_payload()
        before = world.model.invoked(payload)
        try:
            done = yield from writer.append(payload)
        except OutcomeUnknown:
            world.trace(f"{process.name} {payload!r}: outcome unknown")
            world.count("unknown outcome")
            if writer.stopped is not None:
                return
        except Unavailable:
            world.trace(f"{process.name} {payload!r}: failed")
            world.model.fail(payload)
        else:
            world.trace(f"{process.name} {payload!r}: acknowledged at {done.sequence}")
            world.count("acknowledged")
            world.model.acknowledge(payload, done.sequence, process.payloads[-1] if process.payloads else None, before)


def manifest_lane(world: World, process: Process) -> Lane:
    """While this process is the writer: publish snapshots and collect, beside the appends."""
    while True:
        yield ops.Pause(1)
        writer = process.writer
        if (
            writer is None
            or writer.stopped is not None
            or process.position.sequence <= writer.manifest.newest_sequence + world.rates.records_per_snapshot
        ):
            continue
        try:
            yield from _publish(world, process, writer)
            if world.rng.random() < 0.8:
                deleted = yield from writer.collect()
                world.events["collected objects"] = world.events.get("collected objects", 0) + deleted
        except Superseded:
            if process.writer is writer:
                world.count("superseded")
                return
        except (Unavailable, InvalidInput) as error:
            world.trace(f"{process.name} publishes nothing: {error.message}")


def _publish(world: World, process: Process, writer: Writer) -> Lane:
    position = process.position
    files = _freeze_files(world, process, position)
    yield ops.Pause(1)  # the flush takes its time, writes go on
    yield from writer.publish_snapshot(files, position, token=world.fresh_token())
    world.trace(f"{process.name} published a snapshot at {position.sequence}")
    world.count("snapshot")


def _freeze_files(world: World, process: Process, position: Position) -> tuple[LocalFile, ...]:
    files = []
    for number, content in enumerate(pack(process.payloads)):
        source = f"{process.name}/{position.sequence}/{number}"
        world.local_files[source] = content
        files.append(LocalFile(path=f"part-{number:04d}", source=source, size=len(content), sha256=_etag(content)))
    return tuple(files)


def _until_available(start: Callable[[], ops.Steps[Any]]) -> ops.Steps[Any]:
    """Start the dialogue again until the store answers, as a process at its start does."""
    while True:
        try:
            return (yield from start())
        except Unavailable:
            yield ops.Pause(1)


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _describe(message: ops.Operation | ops.Result) -> str:
    match message:
        case ops.Get(key) | ops.Delete(key) | ops.Upload(key) | ops.Verify(key):
            where = key.removeprefix(LAYOUT.prefix)
        case ops.Create(key, data) | ops.Replace(key, data):
            where = f"{key.removeprefix(LAYOUT.prefix)} {_etag(data)[:8]}"
        case ops.List(prefix, start_after):
            where = f"{prefix.removeprefix(LAYOUT.prefix)} after {start_after.removeprefix(LAYOUT.prefix)}"
        case ops.Found(_, etag) | ops.Stored(etag):
            where = etag[:8]
        case ops.Listed(keys):
            where = f"{len(keys)} keys"
        case _:
            where = ""
    return f"{type(message).__name__} {where}".strip()
