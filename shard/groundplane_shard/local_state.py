"""What the log protocol does to this process: restoring snapshots into fresh directories, applying records.

`LocalState` is the protocol's `Effects`; `Journal` appends to the log and publishes through it. Nothing below the work
directory outlives the process: it is emptied at every start, because LanceDB neither syncs nor checks its files (I13).
"""

import asyncio
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from groundplane.errors import CorruptData, OutcomeUnknown, Unavailable
from groundplane.process.clock import Clock, SystemClock
from groundplane.process.logs import Log
from groundplane_shard import payload, switches
from groundplane_shard.arrivals import Arrivals
from groundplane_shard.corpus import Corpus
from groundplane_shard.disk import local_disk
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.generations import Generations, open_generations
from groundplane_shard.log import (
    NO_EMBEDDING,
    Kind,
    Layout,
    LocalFile,
    Override,
    Position,
    Record,
    Snapshot,
    Writer,
)
from groundplane_shard.log import override as override_codec
from groundplane_shard.log.operations import Damaged, Restored
from groundplane_shard.memory import release_unused
from groundplane_shard.rows import StoredDelete, StoredOperation
from groundplane_shard.stores import ObjectStore, Progress, download_snapshot, run
from groundplane_shard.switches import Switch


class Lag(NamedTuple):
    """How much of the log no snapshot holds: batches, and bytes of their payloads. Barriers do not count."""

    records: int = 0
    log_bytes: int = 0

    def since(self, before: "Lag") -> "Lag":
        """Return what came after `before`."""
        return Lag(self.records - before.records, self.log_bytes - before.log_bytes)


class Place(NamedTuple):
    """One applied record: its position, and all that was applied from the restored snapshot up to it."""

    position: Position
    applied: Lag


class LocalState:
    """The searchable state of this process and how it is built from the log."""

    def __init__(
        self,
        store: ObjectStore,
        layout: Layout,
        work_directory: Path,
        exact_bytes: int,
        clock: Clock = SystemClock(),  # noqa: B008 - has no state
    ) -> None:
        self._store = store
        self._layout = layout
        self._work_directory = work_directory
        self._exact_bytes = exact_bytes
        self._clock = clock
        self._log = Log("shard")
        self._download: Progress | None = None  # while a snapshot is being fetched
        self._numbers = count(1)
        self._generations: Generations | None = None
        self._expected: tuple[bytes, Sequence[StoredOperation]] | None = None
        self._places: dict[int, Place] = {}
        self._applied = Lag()
        self._published = Lag()
        self.arrivals = Arrivals()
        self.accepted_loss: Override | None = None  # what the last applied record says, if it is an override

    @property
    def generations(self) -> Generations:
        """The corpus as last restored, and the one it is re-embedded into. Raises Unavailable before that and after `forget`."""
        if self._generations is None:
            raise Unavailable("this shard has no state yet: repeat later", code="not_ready", retry_after_seconds=1)
        return self._generations

    @property
    def corpus(self) -> Corpus:
        """The generation that is searched. Raises as `generations`."""
        return self.generations.current

    @property
    def download(self) -> str | None:
        """How much of a snapshot has been fetched, as `34/120 MiB in 5/31 files`; None while none is."""
        return None if self._download is None else self._download.shown("downloaded")

    @property
    def is_empty(self) -> bool:
        """Whether there is no corpus: nothing was restored yet, or it was let go of."""
        return self._generations is None

    @property
    def lag(self) -> Lag:
        """What no snapshot holds: the log applied since the one restored, or since the last one published."""
        return self._applied.since(self._published)

    def fresh_directory(self, name: str) -> Path:
        """Return the path of a directory below the work directory that does not exist yet."""
        return self._work_directory / f"{name}-{next(self._numbers)}"

    async def restore(self, snapshot: Snapshot | None) -> Restored | Damaged:
        """Drop the state and build it from the snapshot's verified files in a fresh directory; None: start empty.

        Raises Unavailable where the store gives no answer or the local disk takes no files.
        """
        self.forget()
        directory = self.fresh_directory("table")
        with local_disk():
            directory.mkdir(parents=True, mode=0o700)
            answer = await self._open(snapshot, directory)
        if isinstance(answer, Damaged):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            return answer
        self._generations = answer
        await asyncio.to_thread(release_unused)
        self._applied = self._published = Lag()
        self._places = {snapshot.sequence: Place(snapshot.position, Lag())} if snapshot is not None else {}
        reach(Failpoint.SNAPSHOT_RESTORED)
        return Restored()

    async def apply(self, record: Record, position: Position) -> None:
        """Apply one committed record, whole. Raises CorruptData if that cannot be done: the state must be rebuilt."""
        if record.kind is Kind.SWITCH:
            switch = switches.decode(record.payload, key=self._layout.record(record.sequence))
            await self.generations.take_step(record.sequence, switch)
        else:
            operations = await self._operations(record)
            await self.generations.apply(record.sequence, _embedding_id(record), operations)
        if not record.kind.is_barrier:
            self._applied = Lag(self._applied.records + 1, self._applied.log_bytes + len(record.payload))
        self._places[record.sequence] = Place(position, self._applied)
        reach(Failpoint.APPLIED)
        self.accepted_loss = self._override(record)
        self.arrivals.moved(record.sequence)

    async def foresee(self, records: Sequence[Record]) -> None:
        """Look up in one query what applying `records` will need of the table: one for each takes 3 ms at 100,000 chunks."""
        with suppress(Unavailable, CorruptData):  # whatever is wrong with a record is said when its turn comes
            doc_ids = {
                doc_id
                for record in records
                if record.kind is Kind.BATCH
                for doc_id in payload.document_ids(record.payload)
            }
            await self.generations.prefetch(None, [StoredDelete(doc_id) for doc_id in sorted(doc_ids)])

    def place_of(self, sequence: int) -> Place:
        """Return the place of the record that a flush ended with; places before it are forgotten."""
        self._places = {known: place for known, place in self._places.items() if known >= sequence}
        return self._places[sequence]

    def published(self, place: Place) -> None:
        """Count the lag from `place` on: a snapshot that ends there is published."""
        self._published = place.applied

    def forget(self) -> None:
        """Let go of the corpus: its memory, and the table's version once no search uses it."""
        self._generations = None
        self._expected = None
        self.arrivals.abandon()

    def expect(self, encoded: bytes, operations: Sequence[StoredOperation]) -> None:
        """Announce the batch about to be committed, so that its own payload is not decoded again."""
        self._expected = (encoded, operations)

    async def _open(self, snapshot: Snapshot | None, directory: Path) -> Generations | Damaged:
        if snapshot is not None:
            answer = await self._fetch(snapshot, directory)
            if isinstance(answer, Damaged):
                return answer
        try:
            return await open_generations(directory, lambda: self.fresh_directory("table"), self._exact_bytes)
        except CorruptData as error:
            return Damaged(error.message)

    async def _fetch(self, snapshot: Snapshot, directory: Path) -> Restored | Damaged:
        progress = self._download = Progress((file.size for file in snapshot.files), self._clock, self._tell)
        try:
            return await download_snapshot(
                self._store, self._layout, snapshot, directory, lambda size: progress.add("downloaded", size)
            )
        finally:
            self._download = None
            progress.finish()

    def _tell(self, progress: Progress) -> None:
        self._log.info("snapshot_download", **progress.fields())

    async def _operations(self, record: Record) -> Sequence[StoredOperation]:
        expected, self._expected = self._expected, None
        if record.kind.is_barrier:
            return ()
        if expected is not None and expected[0] is record.payload:
            return expected[1]
        dimension = self.generations.of_embedding(_embedding_id(record)).dimension
        return await asyncio.to_thread(payload.decode, record.payload, dimension)

    def _override(self, record: Record) -> Override | None:
        if record.kind is not Kind.OVERRIDE:
            return None
        return override_codec.decode(record.payload, key=self._layout.record(record.sequence))


def _embedding_id(record: Record) -> str | None:
    return None if record.embedding_id == NO_EMBEDDING else record.embedding_id.hex()


class Journal:
    """The log as committer and snapshots see it: append one batch, publish a snapshot, know where both stand."""

    def __init__(self, writer: Writer, store: ObjectStore, state: LocalState) -> None:
        self.writer = writer
        self._store = store
        self._state = state

    @property
    def sequence(self) -> int:
        """Sequence of the last committed record."""
        return self.writer.position.sequence

    @property
    def snapshot_sequence(self) -> int:
        """Sequence of the newest published snapshot, 0 before the first."""
        return self.writer.manifest.newest_sequence

    @property
    def snapshot_taken_at(self) -> float | None:
        """When the newest published snapshot was taken, in seconds since 1970; None before the first."""
        snapshots = self.writer.manifest.snapshots
        return snapshots[-1].taken_at if snapshots else None

    async def append(
        self, encoded: bytes, operations: Sequence[StoredOperation], embedding_id: str | None = None
    ) -> int:
        """Return the sequence under which the batch is durable and applied.

        embedding_id: that of the documents' vectors; None: the current generation's. Raises Unavailable only if certainly
        nothing was stored and this writer goes on; any other failure ends it: OutcomeUnknown, Superseded, CorruptData.
        """
        embedding_id = embedding_id or self._state.corpus.made.embedding_id
        self._state.expect(encoded, operations)
        prefetch = asyncio.ensure_future(self._prefetch(embedding_id, operations))
        try:
            return await self._append(encoded, embedding_id, Kind.BATCH)
        finally:
            await prefetch

    async def switch(self, switch: Switch) -> int:
        """Return the sequence under which the step is durable and applied. Raises as `append` does."""
        return await self._append(switches.encode(switch), switch.target, Kind.SWITCH)

    async def _append(self, encoded: bytes, embedding_id: str | None, kind: Kind) -> int:
        header_id = NO_EMBEDDING if embedding_id is None else bytes.fromhex(embedding_id)
        steps = self.writer.append(encoded, embedding_id=header_id, kind=kind)
        try:
            return (await run(steps, self._store, self._state)).sequence
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            if self.writer.stopped is not None:  # it is in the log, and applying it failed
                raise OutcomeUnknown(f"the record was not applied: {error.message}; repeat the write") from error
            raise

    async def confirm(self) -> int:
        """Return the last committed sequence, having made sure that it is the log's. Raises Superseded, Unavailable."""
        await run(self.writer.confirm(), self._store, self._state)
        return self.sequence

    async def publish(self, files: tuple[LocalFile, ...], place: Place, progress: Progress, *, taken_at: float) -> None:
        """Publish the files of a table flushed at `place`. Raises as `Writer.publish_snapshot` does."""
        steps = self.writer.publish_snapshot(files, place.position, token=secrets.token_hex(16), taken_at=taken_at)
        await run(steps, self._store, self._state, progress.watch)

    async def collect(self) -> int:
        """Delete what no kept snapshot needs; return how many objects. Raises Unavailable; may be repeated."""
        return await run(self.writer.collect(), self._store, self._state)

    async def _prefetch(self, embedding_id: str | None, operations: Sequence[StoredOperation]) -> None:
        """Look up early what applying will read; if that fails, applying tries it again and its failure is the one that counts."""
        with suppress(Unavailable, CorruptData):
            await self._state.generations.prefetch(embedding_id, operations)
