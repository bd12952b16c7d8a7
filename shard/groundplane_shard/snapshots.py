"""Flushes and snapshots, one at a time, beside the writes.

A flush moves the memtable into the table: due at its size, or when a snapshot is. A snapshot is a flush, a hard-link
copy of the tables as flushed, its publication in the store, and the collection of what no kept snapshot needs. Its
sequence is that of the last record frozen, never the log's head (I8). It is due after so many records or bytes of log
since the last one, those read at start included, or so long after the first of them; a corpus that did not change gets
none.

A flush or snapshot that fails is tried again half a minute later: nothing depends on it but the length of the log and
the size of the memtable. Errors that end the writer: `Superseded`, and `CorruptData` of the table or of MANIFEST.
"""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from groundplane.errors import CorruptData, GroundplaneError, InvalidInput, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane_shard.disk import local_disk
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.generations import Flushed
from groundplane_shard.local_state import Journal, LocalState, Place
from groundplane_shard.log import LocalFile
from groundplane_shard.memory import release_unused
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.stores import Progress

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

    def __init__(
        self, journal: Journal, state: LocalState, policy: SnapshotPolicy, clock: Clock, metrics: ShardMetrics
    ) -> None:
        self._journal = journal
        self._state = state
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._log = Log("snapshots")
        self._one_at_a_time = asyncio.Lock()
        self._hashes: dict[tuple[str, int, int, int], str] = {}
        self._dirty_since: float | None = None
        self.last_success = journal.snapshot_taken_at  # seconds since 1970; None before the first
        if self.last_success is not None:
            self._metrics.last_snapshot.set(self.last_success)

    async def keep(self) -> None:
        """Flush and publish whenever it is due, until cancelled or an error ends the writer."""
        publish_from = flush_from = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            now = self._clock.monotonic()
            if self._snapshot_is_due(now) and now >= publish_from:
                publish_from = now if await self._succeeds(self.publish, "snapshot_failed") else now + RETRY_SECONDS
            elif self._flush_is_due() and now >= flush_from:
                flush_from = now if await self._succeeds(self.flush, "flush_failed") else now + RETRY_SECONDS

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Wait for the flush or snapshot under way, and keep the next one from starting."""
        async with self._one_at_a_time:
            yield

    async def flush(self) -> None:
        """Move what is in the memtable now into the table. Raises Unavailable (tried again), CorruptData."""
        async with self._one_at_a_time:
            await self._flush()

    async def publish(self) -> None:
        """Publish a snapshot of everything committed so far, if there is any news, and collect.

        Raises Unavailable (not published, or not known to be), Superseded, CorruptData.
        """
        async with self._one_at_a_time:
            if not self._has_news():
                return
            try:
                flushed, place = await self._flush()
                await self._publish(flushed, place)
            except GroundplaneError:
                self._metrics.snapshot_failures.inc()
                raise
            reach(Failpoint.SNAPSHOT_PUBLISHED)
            self._succeeded(place)
            await self._collect()

    async def _succeeds(self, work: Callable[[], Awaitable[None]], failure: str) -> bool:
        try:
            await work()
        except (Unavailable, CorruptData) as error:
            if isinstance(error, CorruptData) and error.code != "upload_damaged":
                raise
            self._log.warning(failure, code=error.code, message=error.message)
            return False
        return True

    def _has_news(self) -> bool:
        return self._state.lag.records > 0

    def _snapshot_is_due(self, now: float) -> bool:
        if not self._has_news():
            self._dirty_since = None
            return False
        self._dirty_since = self._dirty_since if self._dirty_since is not None else now
        lag = self._state.lag
        return (
            lag.records >= self._policy.records
            or lag.log_bytes >= self._policy.log_bytes
            or now - self._dirty_since >= self._policy.seconds
        )

    def _flush_is_due(self) -> bool:
        return self._state.generations.memtable_bytes >= self._policy.flush_bytes

    async def _flush(self) -> tuple[Flushed, Place]:
        with self._metrics.flush_seconds.time(), local_disk():
            flushed = await self._state.generations.flush()
        await asyncio.to_thread(release_unused)
        return flushed, self._state.place_of(flushed.sequence)

    async def _publish(self, flushed: Flushed, place: Place) -> None:
        directory = self._state.fresh_directory("snapshot")
        try:
            with local_disk():
                await flushed.copy_to(directory)
                reach(Failpoint.TABLE_COPIED)
                files = await asyncio.to_thread(self._describe, directory)
            progress = Progress((file.size for file in files), self._clock, self._tell)
            try:
                await self._journal.publish(files, place, progress, taken_at=self._clock.now())
            finally:
                progress.finish()
        except InvalidInput as error:
            if error.code != "snapshot_not_newer":  # an earlier try was stored although its answer was lost
                raise
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def _tell(self, progress: Progress) -> None:
        self._log.info("snapshot_upload", **progress.fields())

    def _succeeded(self, place: Place) -> None:
        self._state.published(place)
        self._dirty_since = None
        self.last_success = self._clock.now()
        self._metrics.last_snapshot.set(self.last_success)
        self._log.info("snapshot_published", sequence=place.position.sequence)

    async def _collect(self) -> None:
        try:
            await self._journal.collect()
        except Unavailable as error:  # what is left over is collected after the next snapshot
            self._log.warning("collection_failed", code=error.code, message=error.message)

    def _describe(self, directory: Path) -> tuple[LocalFile, ...]:
        """Return every file of `directory`; one whose inode was hashed before is not read again."""
        files, hashes = [], {}
        for source in sorted(path for path in directory.rglob("*") if path.is_file()):
            path, status = source.relative_to(directory).as_posix(), source.stat()
            identity = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            hashes[identity] = self._hashes.get(identity) or _sha256(source)
            files.append(LocalFile(path=path, source=str(source), size=status.st_size, sha256=hashes[identity]))
        if not files:
            raise CorruptData("the table has no files: expected at least one; it is built again", code="empty_table")
        self._hashes = hashes
        return tuple(files)


def _sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
