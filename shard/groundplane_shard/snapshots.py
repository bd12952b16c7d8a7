"""Flushes and snapshots, one at a time, beside the writes.

A flush moves the memtable into the table: due at its size, or when a snapshot is. A snapshot is a flush, a hard-link
copy of the table as flushed, its publication in the store, and the collection of what no kept snapshot needs. Its
sequence is that of the last record frozen, never the log's head (I8). It is due after so many records or bytes of log,
or so long after the first change; a corpus that did not change gets none.

A snapshot that fails is tried again at the next occasion: nothing depends on it but the length of the log.
"""

import asyncio
import hashlib
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from groundplane.errors import InvalidInput, OutcomeUnknown, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane_shard.local_state import Journal, LocalState
from groundplane_shard.log import LocalFile, Position
from groundplane_shard.memory import release_unused
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.stores import ObjectStore, run

CHECK_SECONDS = 0.5
RETRY_SECONDS = 30.0


class SnapshotPolicy(msgspec.Struct, frozen=True):
    """When a flush and a snapshot are due."""

    records: int
    log_bytes: int
    seconds: float
    flush_bytes: int


class Snapshots:
    """The one task that flushes and publishes; `publish` may also be called by the operator's route."""

    def __init__(self, journal: Journal, state: LocalState, store: ObjectStore, policy: SnapshotPolicy) -> None:
        self._journal = journal
        self._state = state
        self._store = store
        self._policy = policy
        self._one_at_a_time = asyncio.Lock()
        self._hashes: dict[tuple[str, int, int, int], str] = {}
        self._dirty_since: float | None = None
        self.last_success: float | None = None  # seconds since 1970

    @property
    def snapshot_sequence(self) -> int:
        """Sequence of the newest published snapshot, 0 before the first."""
        return self._journal.writer.manifest.newest_sequence

    async def keep(self, clock: Clock, metrics: ShardMetrics, log: Log) -> None:
        """Flush and publish whenever it is due, until cancelled. Raises Superseded, and what a broken flush raises."""
        not_before = 0.0
        while True:
            await clock.sleep(CHECK_SECONDS)
            now = clock.monotonic()
            if self._snapshot_is_due(now) and now >= not_before:
                try:
                    with metrics.flush_seconds.time():
                        await self.publish(clock)
                except (Unavailable, OutcomeUnknown) as error:
                    metrics.snapshot_failures.inc()
                    log.warning("snapshot_failed", code=error.code, message=error.message)
                    not_before = now + RETRY_SECONDS
            elif self._state.corpus.memtable_bytes >= self._policy.flush_bytes:
                with metrics.flush_seconds.time():
                    await self.flush()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Wait for the flush or snapshot under way, and keep the next one from starting."""
        async with self._one_at_a_time:
            yield

    async def flush(self) -> None:
        """Move what is in the memtable now into the table."""
        async with self._one_at_a_time:
            await self._flush()

    async def publish(self, clock: Clock) -> int:
        """Publish a snapshot of everything committed so far and collect; return the newest snapshot's sequence."""
        async with self._one_at_a_time:
            if self._journal.sequence <= self.snapshot_sequence:
                return self.snapshot_sequence
            self._dirty_since = None
            records, log_bytes = self._journal.records, self._state.log_bytes
            position = await self._flush()
            if position is None or position.sequence <= self.snapshot_sequence:
                return self.snapshot_sequence
            directory = self._state.fresh_directory("snapshot")
            try:
                files = await self._copy(directory)
                snapshot = self._journal.writer.publish_snapshot(files, position, token=secrets.token_hex(16))
                await run(snapshot, self._store, self._state)
            finally:
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            self._journal.records -= records
            self._state.log_bytes -= log_bytes
            self.last_success = clock.now()
            await run(self._journal.writer.collect(), self._store, self._state)
            return position.sequence

    def _snapshot_is_due(self, now: float) -> bool:
        if self._journal.sequence <= self.snapshot_sequence or self._journal.records == 0:
            self._dirty_since = None
            return False
        self._dirty_since = self._dirty_since if self._dirty_since is not None else now
        return (
            self._journal.records >= self._policy.records
            or self._state.log_bytes >= self._policy.log_bytes
            or now - self._dirty_since >= self._policy.seconds
        )

    async def _flush(self) -> Position | None:
        flushed = await self._state.corpus.flush()
        await asyncio.to_thread(release_unused)
        return None if flushed is None else self._state.position_of(flushed)

    async def _copy(self, directory: Path) -> tuple[LocalFile, ...]:
        await self._state.corpus.copy_to(directory)
        return await asyncio.to_thread(self._describe, directory)

    def _describe(self, directory: Path) -> tuple[LocalFile, ...]:
        """Return every file of `directory`; one whose inode was hashed before is not read again."""
        files, hashes = [], {}
        for source in sorted(path for path in directory.rglob("*") if path.is_file()):
            path, status = source.relative_to(directory).as_posix(), source.stat()
            identity = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            hashes[identity] = self._hashes.get(identity) or _sha256(source)
            files.append(LocalFile(path=path, source=str(source), size=status.st_size, sha256=hashes[identity]))
        if not files:
            raise InvalidInput("the table has no files: expected at least one", code="empty_table")
        self._hashes = hashes
        return tuple(files)


def _sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
