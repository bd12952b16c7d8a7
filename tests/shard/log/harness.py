"""A store in a dict and a state in a list, to run the protocol step by step without an event loop.

`answer` may be set to a function that answers an operation itself, or returns None to let the store do it.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from groundplane.errors import GroundplaneError
from groundplane_shard.log import Identity, Layout, LocalFile, Position, Replica, Snapshot, Steps, Writer
from groundplane_shard.log import operations as ops

LAYOUT = Layout("t-acme", "00000000-0000-4000-8000-00000000000a")
Value = TypeVar("Value")


def identity(writer_id: str = "w1", owner: str = "uid-a") -> Identity:
    """Return a process's identity in the one corpus of these tests."""
    return Identity(layout=LAYOUT, owner=owner, writer_id=writer_id)


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex, which is also the etag."""
    return hashlib.sha256(data).hexdigest()


def in_turn(steps: Steps[Value]) -> Steps[Value]:
    """Return the same dialogue, what it wants at once asked for one after the other: a test can stop between two parts."""
    answer: ops.Result | None = None
    while True:
        try:
            operation = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            value: Value = end.value
            return value
        if isinstance(operation, ops.Together):
            answer = ops.Joined((yield from _all_in_turn(operation.parts)))
        else:
            answer = yield operation


def _all_in_turn(parts: Sequence[Steps[Any]]) -> Steps[tuple[Any, ...]]:
    values: tuple[Any, ...] = ()
    for part in parts:
        values += ((yield from in_turn(part)),)
    return values


class Harness:
    """One store shared by every process of a test, and the state of the process that runs now."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.sources: dict[str, bytes] = {}
        self.asked: list[ops.Operation] = []
        self.state: list[bytes] = []
        self.position = Position()
        self.restored: list[int] = []
        self.foreseen: list[int] = []
        self.answer: Callable[[ops.Operation], ops.Result | None] = lambda operation: None

    def run(self, steps: Steps[Value]) -> Value:
        """Perform what the protocol yields until it returns."""
        return self.finish(steps, next(steps))

    def run_until(self, steps: Steps[Value], kind: type[ops.Operation]) -> ops.Operation:
        """Perform what the protocol yields until it asks for an operation of this kind; return that one, not performed."""
        operation = next(steps)
        while not isinstance(operation, kind):
            operation = steps.send(self.perform(operation))
        return operation

    def finish(self, steps: Steps[Value], operation: ops.Operation) -> Value:
        """Perform `operation`, which the protocol waits for, and all that follows."""
        try:
            while True:
                operation = steps.send(self.perform(operation))
        except StopIteration as end:
            value: Value = end.value
            return value
        finally:
            steps.close()

    def perform(self, operation: ops.Operation) -> ops.Result:
        """Answer one operation."""
        self.asked.append(operation)
        return self.answer(operation) or self.store(operation)

    def store(self, operation: ops.Operation) -> ops.Result:  # noqa: C901  # one case for each operation
        """Answer one operation as a store without faults does."""
        match operation:
            case ops.Get(key):
                return ops.Found(self.objects[key], digest(self.objects[key])) if key in self.objects else ops.Absent()
            case ops.Create(key, data):
                return self._create(key, data)
            case ops.Replace(key, data, etag):
                if digest(self.objects.get(key, b"")) != etag:
                    return ops.PreconditionFailed()
                self.objects[key] = data
                return ops.Stored(digest(data))
            case ops.Upload(key, file):
                return self._create(key, self.sources[file.source])
            case ops.Verify(key, _, sha256):
                return ops.Verified() if digest(self.objects.get(key, b"")) == sha256 else ops.Damaged("other bytes")
            case ops.List(prefix, start_after):
                return ops.Listed(
                    tuple(sorted(key for key in self.objects if key > start_after and key.startswith(prefix)))
                )
            case ops.Delete(key):
                self.objects.pop(key, None)
                return ops.Deleted()
            case ops.Restore(snapshot):
                return self._restore(snapshot)
            case ops.Apply(record, position):
                self.state += [] if record.kind.is_barrier else [record.payload]
                self.position = position
                return ops.Applied()
            case ops.Foresee(records):
                self.foreseen += [record.sequence for record in records]
                return ops.Foreseen()
            case ops.Pause():
                return ops.Resumed()
            case ops.Together(parts):
                return self._hold(parts)

    def _hold(self, parts: Sequence[Steps[Any]]) -> ops.Result:
        """Hold one dialogue after the other."""
        try:
            return ops.Joined(tuple(self.run(part) for part in parts))
        except GroundplaneError as error:
            return ops.Failed(error)

    def _create(self, key: str, data: bytes) -> ops.Result:
        if key in self.objects:
            return ops.PreconditionFailed()
        self.objects[key] = data
        return ops.Stored(digest(data))

    def _restore(self, snapshot: Snapshot | None) -> ops.Result:
        files = snapshot.files if snapshot else ()
        contents = [self.objects.get(LAYOUT.object(file.key), b"") for file in files]
        if any(digest(content) != file.sha256 for content, file in zip(contents, files, strict=True)):
            return ops.Damaged("other bytes")
        self.state = [payload for content in contents for payload in content.split()]
        self.position = snapshot.position if snapshot else Position()
        self.restored.append(self.position.sequence)
        return ops.Restored()

    # -- shorthands

    def replica(self, writer_id: str = "w1", **options: Any) -> Replica:
        """Return an opened replica."""
        replica = Replica(identity(writer_id), **options)
        self.run(replica.open())
        return replica

    def writer(self, writer_id: str = "w1", payloads: Sequence[bytes] = (), **options: Any) -> Writer:
        """Return a writer that has appended the payloads."""
        writer = self.run(self.replica(writer_id, **options).take_over())
        for payload in payloads:
            self.run(writer.append(payload))
        return writer

    def files(self, *contents: bytes) -> tuple[LocalFile, ...]:
        """Return local files named part-0, part-1 … with these contents; by default one file with the whole state."""
        found = []
        for number, content in enumerate(contents or (b" ".join(self.state),)):
            source = f"{number}-{digest(content)}"
            self.sources[source] = content
            found.append(LocalFile(path=f"part-{number}", source=source, size=len(content), sha256=digest(content)))
        return tuple(found)

    def publish(self, writer: Writer, token: str, *contents: bytes) -> Snapshot:
        """Publish the present state."""
        return self.run(writer.publish_snapshot(self.files(*contents), self.position, token=token))

    def log_keys(self) -> list[int]:
        """Return the sequences of the log records that are stored."""
        return sorted(int(key[-20:]) for key in self.objects if key.startswith(LAYOUT.log))


def damage(harness: Harness, snapshot: Snapshot) -> None:
    """Damage the first file of a snapshot."""
    harness.objects[LAYOUT.object(snapshot.files[0].key)] += b"!"
