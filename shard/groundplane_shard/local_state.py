"""What the log protocol does to this process: restoring snapshots into fresh directories, applying records.

`LocalState` is the protocol's `Effects`; `Journal` appends one batch through it. Nothing below the work directory
outlives the process: it is emptied at every start, because LanceDB neither syncs nor checks its files (I13).
"""

import asyncio
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from groundplane.errors import CorruptData, InvalidInput
from groundplane_shard import payload
from groundplane_shard.corpus import Corpus
from groundplane_shard.log import NO_EMBEDDING, Kind, Layout, Position, Record, Replica, Snapshot, Writer
from groundplane_shard.log.operations import Damaged, Restored
from groundplane_shard.memory import release_unused
from groundplane_shard.rows import StoredOperation
from groundplane_shard.stores import ObjectStore, download_snapshot, run


class LocalState:
    """The searchable state of this process and how it is built from the log."""

    def __init__(self, store: ObjectStore, layout: Layout, work_directory: Path, exact_bytes: int) -> None:
        self._store = store
        self._layout = layout
        self._work_directory = work_directory
        self._exact_bytes = exact_bytes
        self._numbers = count(1)
        self._corpus: Corpus | None = None
        self._expected: tuple[bytes, Sequence[StoredOperation]] | None = None
        self._positions: dict[int, Position] = {}
        self.log_bytes = 0  # of records applied since the restored or last published snapshot
        self.embedding_ids: set[bytes] = set()  # that the log records applied so far name

    @property
    def corpus(self) -> Corpus:
        """The corpus as last restored."""
        if self._corpus is None:
            raise InvalidInput("no state was restored yet: open the replica first", code="not_ready")
        return self._corpus

    def fresh_directory(self, name: str) -> Path:
        """Return the path of a directory below the work directory that does not exist yet."""
        return self._work_directory / f"{name}-{next(self._numbers)}"

    async def restore(self, snapshot: Snapshot | None) -> Restored | Damaged:
        """Drop the state and build it from the snapshot's verified files in a fresh directory; None: start empty."""
        self._corpus = None
        directory = self.fresh_directory("table")
        directory.mkdir(parents=True, mode=0o700)
        if snapshot is not None:
            answer = await download_snapshot(self._store, self._layout, snapshot, directory)
            if isinstance(answer, Damaged):
                await asyncio.to_thread(shutil.rmtree, directory)
                return answer
        try:
            self._corpus = await Corpus.open(directory, exact_bytes=self._exact_bytes)
        except CorruptData as error:
            return Damaged(error.message)
        await asyncio.to_thread(release_unused)
        self.log_bytes = 0
        self._positions = {snapshot.sequence: snapshot.position} if snapshot is not None else {}
        return Restored()

    async def apply(self, record: Record, position: Position) -> None:
        """Apply one committed record, whole. Raises CorruptData if that cannot be done: the state must be rebuilt."""
        operations = await self._operations(record)
        await self.corpus.apply(record.sequence, operations)
        self.log_bytes += len(record.payload)
        self._positions[record.sequence] = position
        if record.embedding_id != NO_EMBEDDING:
            self.embedding_ids.add(record.embedding_id)

    def position_of(self, sequence: int) -> Position:
        """Return the place of the record that a flush ended with; places before it are forgotten."""
        position = self._positions[sequence]
        self._positions = {known: place for known, place in self._positions.items() if known >= sequence}
        return position

    def forget(self) -> None:
        """Let go of the corpus: its memory, and the table's version once no search uses it."""
        self._corpus = None

    def expect(self, encoded: bytes, operations: Sequence[StoredOperation]) -> None:
        """Announce the batch about to be committed, so that its own payload is not decoded again."""
        self._expected = (encoded, operations)

    async def _operations(self, record: Record) -> Sequence[StoredOperation]:
        expected, self._expected = self._expected, None
        if record.kind is Kind.BARRIER:
            return ()
        if expected is not None and expected[0] is record.payload:
            return expected[1]
        return await asyncio.to_thread(payload.decode, record.payload, self.corpus.dimension)


class Journal:
    """The log as the committer sees it: append one batch, know where it stands."""

    def __init__(self, replica: Replica, writer: Writer, store: ObjectStore, state: LocalState) -> None:
        self.replica = replica
        self.writer = writer
        self._store = store
        self._state = state
        self.embedding_id = NO_EMBEDDING
        self.records = 0  # appended since the last published snapshot

    @property
    def sequence(self) -> int:
        """Sequence of the last committed record."""
        return self.writer.position.sequence

    async def append(self, encoded: bytes, operations: Sequence[StoredOperation]) -> int:
        """Return the sequence under which the batch is durable and applied. Raises as `Writer.append` does."""
        self._state.expect(encoded, operations)
        prefetch = asyncio.ensure_future(self._state.corpus.prefetch(operations))
        try:
            committed = await run(self.writer.append(encoded, embedding_id=self.embedding_id), self._store, self._state)
        finally:
            await prefetch
        self.records += 1
        return committed.sequence
