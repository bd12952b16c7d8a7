"""Runs the log protocol on a real store: performs each operation it yields and sends the result back.

The store's `Unavailable` becomes `Refused` (certainly not done), its `OutcomeUnknown` becomes `Unknown`. Errors of the
effects are not the protocol's business: they end the run, and the protocol's objects know that they were cut off.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from groundplane.errors import GroundplaneError, OutcomeUnknown, Unavailable
from groundplane_shard.failpoints import Failpoint, reach, reach_done, reach_sent
from groundplane_shard.log.layout import Layout
from groundplane_shard.log.manifest import Snapshot, SnapshotFile
from groundplane_shard.log.operations import (
    Applied,
    Apply,
    Create,
    Damaged,
    Delete,
    Deleted,
    Failed,
    Foresee,
    Foreseen,
    Get,
    Joined,
    List,
    Operation,
    Pause,
    Refused,
    Replace,
    Restore,
    Restored,
    Result,
    Resumed,
    Steps,
    StoreOperation,
    Together,
    Unknown,
    Upload,
    Verified,
    Verify,
)
from groundplane_shard.log.record import Position, Record
from groundplane_shard.stores.protocol import ObjectStore

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_PARALLEL_DOWNLOADS = 8
_PARALLEL_DIALOGUES = 8  # that the protocol wants at once
_DOWNLOAD_TRIES = 4

Value = TypeVar("Value")
Watch = Callable[[Operation, Result], None]
OnFile = Callable[[int], None]


def unwatched(_operation: Operation, _result: Result) -> None:
    """Look at nothing."""


def uncounted(_size_bytes: int) -> None:
    """Count nothing."""


class Effects(Protocol):
    """What the protocol does to the process's own state."""

    async def restore(self, snapshot: Snapshot | None) -> Restored | Damaged:
        """Drop the state and build it from the snapshot's verified files in a fresh directory; None: start empty."""

    async def apply(self, record: Record, position: Position) -> None:
        """Apply one committed record, batch or barrier, to the memtable, whole; the state is at `position` then."""

    async def foresee(self, records: Sequence[Record]) -> None:
        """Look up what applying `records` will need; nothing is lost if that is not done, or fails."""


async def run(steps: Steps[Value], store: ObjectStore, effects: Effects, watch: Watch = unwatched) -> Value:
    """Perform what `steps` yields until it returns, and return its value. Cancelling closes it at the present operation.

    `watch` sees every operation with its result, to count them; it must not raise.
    """
    try:
        operation = next(steps)
        while True:
            result = await _perform(operation, store, effects, watch)
            watch(operation, result)
            operation = steps.send(result)
    except StopIteration as end:
        value: Value = end.value
        return value
    finally:
        steps.close()


async def _hold_together(parts: Sequence[Steps[Any]], store: ObjectStore, effects: Effects, watch: Watch) -> Result:
    """Run `parts`, a few at a time, until all have ended or one has failed; none runs on afterwards."""
    turns = asyncio.Semaphore(_PARALLEL_DIALOGUES)

    async def hold(part: Steps[Any]) -> Any:
        async with turns:
            return await run(part, store, effects, watch)

    tasks = [asyncio.ensure_future(hold(part)) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failed = [task for task in tasks if not task.cancelled() and task.exception() is not None]
    try:
        return Joined(tuple(task.result() for task in failed or tasks))
    except GroundplaneError as error:
        return Failed(error)


async def download_snapshot(
    store: ObjectStore, layout: Layout, snapshot: Snapshot, directory: Path, on_file: OnFile = uncounted
) -> Restored | Damaged:
    """Put the snapshot's files, each verified, into `directory`, which is fresh; `Damaged` if one of them is not right.

    `on_file` gets the size in bytes of each file that is there. Paths were checked when MANIFEST was decoded. Raises
    Unavailable when the store gives no answer; no download is under way any more then.
    """
    turns = asyncio.Semaphore(_PARALLEL_DOWNLOADS)
    failures: list[Damaged | Unavailable] = []

    async def fetch(file: SnapshotFile) -> None:
        async with turns:
            if failures:
                return
            try:
                answer = await _download(store, layout.object(file.key), directory / file.path, file)
            except Unavailable as error:
                failures.append(error)
                return
        reach(Failpoint.SNAPSHOT_FILE_DOWNLOADED)
        if isinstance(answer, Damaged):
            failures.append(answer)
        else:
            on_file(file.size)

    await asyncio.gather(*map(fetch, snapshot.files))
    for failure in failures:
        if isinstance(failure, Unavailable):
            raise failure
        return failure
    return Restored()


async def _download(store: ObjectStore, key: str, target: Path, file: SnapshotFile) -> Verified | Damaged:
    """Download one file, trying a few times: of many files one or the other fails on the way."""
    for attempt in range(1, _DOWNLOAD_TRIES):
        try:
            return await store.download(key, target, size=file.size, sha256=file.sha256)
        except Unavailable:
            await asyncio.sleep(_pause_seconds(attempt))
    return await store.download(key, target, size=file.size, sha256=file.sha256)


async def _perform(operation: Operation, store: ObjectStore, effects: Effects, watch: Watch) -> Result:
    match operation:
        case Restore(snapshot):
            return await effects.restore(snapshot)
        case Apply(record, position):
            await effects.apply(record, position)
            return Applied()
        case Foresee(records):
            await effects.foresee(records)
            return Foreseen()
        case Pause(attempt):
            await asyncio.sleep(_pause_seconds(attempt))
            return Resumed()
        case Together(parts):
            return await _hold_together(parts, store, effects, watch)
        case _:
            reach_sent(operation)
            result = await _ask(operation, store)
            reach_done(operation)
            return result


async def _ask(operation: StoreOperation, store: ObjectStore) -> Result:
    try:
        return await _call(operation, store)
    except OutcomeUnknown as error:
        return Unknown(error.message)
    except Unavailable as error:
        return Refused(error.message)


async def _call(operation: StoreOperation, store: ObjectStore) -> Result:
    match operation:
        case Get(key):
            return await store.get(key)
        case Create(key, data):
            return await store.create(key, data)
        case Replace(key, data, etag):
            return await store.replace(key, data, etag)
        case Upload(key, file):
            return await store.upload(key, file)
        case Verify(key, size, sha256):
            return await store.verify(key, size=size, sha256=sha256)
        case List(prefix, start_after):
            return await store.list_page(prefix, start_after)
        case Delete(key):
            await store.delete(key)
            return Deleted()


def _pause_seconds(attempt: int) -> float:
    """Exponential backoff with full jitter, so that shards that lost the same store do not come back in step."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt)
    return random.uniform(longest / 2, longest)  # noqa: S311  # pacing, not secrecy
