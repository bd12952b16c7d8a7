"""Restoring a corpus into a new incarnation, without a running shard: `log.restoring` on a real store.

The source's snapshot is put, verified, into a fresh directory of this machine and goes from there to the target; the table
is never opened. Whoever ordered the copy makes the target the corpus's incarnation afterwards; the source stays as it is.
"""

import secrets
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from groundplane.process.clock import Clock
from groundplane_shard.disk import local_disk
from groundplane_shard.log import (
    Identity,
    Layout,
    Position,
    Record,
    Restoration,
    Seq,
    Snapshot,
    SnapshotFile,
    restore,
    steps,
)
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log.manifest import Manifest
from groundplane_shard.log.operations import Absent, Damaged, Operation, Restored, Result, Steps
from groundplane_shard.stores import ObjectStore, Progress, download_snapshot, run
from groundplane_shard.witness import WitnessFile

Tell = Callable[[Progress], None]


class RestoreOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be copied. `until` is the last sequence, None: the newest, which must reach the source's witness."""

    target: Layout
    source_incarnation: str
    until: Seq | None
    witness: WitnessFile
    work_directory: Path

    @property
    def source(self) -> Layout:
        """Where the objects to be copied lie."""
        return Layout(self.target.corpus_key, self.source_incarnation)


class RestoredCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """The new incarnation: its end, and the snapshot that it begins with (sequence 0: none)."""

    incarnation: str
    restored_from: str
    sequence: int
    epoch: int
    snapshot_sequence: int


class _Files:
    """The effects of a copy: the files of a snapshot in a fresh directory, and nothing else."""

    def __init__(self, store: ObjectStore, source: Layout, parent: Path, clock: Clock, tell: Tell) -> None:
        self._store = store
        self._source = source
        self._parent = parent
        self._directory = parent
        self._clock = clock
        self._tell = tell
        self.progress = Progress((), clock, tell)

    def local_path(self, file: SnapshotFile) -> str:
        """Return where a file of the snapshot restored last was put."""
        return str(self._directory / file.path)

    def watch(self, operation: Operation, result: Result) -> None:
        """Count what is stored in the target."""
        self.progress.watch(operation, result)

    async def restore(self, snapshot: Snapshot | None) -> Restored | Damaged:
        """Put the snapshot's files into a fresh directory; None is no files at all."""
        files = snapshot.files if snapshot is not None else ()
        self.progress = progress = Progress((file.size for file in files), self._clock, self._tell)
        if snapshot is None:
            return Restored()
        with local_disk():
            self._directory = Path(tempfile.mkdtemp(dir=self._parent))
            return await download_snapshot(
                self._store, self._source, snapshot, self._directory, lambda size: progress.add("downloaded", size)
            )

    async def apply(self, _record: Record, _position: Position) -> None:
        """Never asked for."""
        raise TypeError("a copy applies nothing")

    async def foresee(self, _records: Sequence[Record]) -> None:
        """Never asked for."""
        raise TypeError("a copy applies nothing")


async def restore_corpus(store: ObjectStore, order: RestoreOrder, clock: Clock, tell: Tell) -> RestoredCorpus:
    """Copy the source into the target, unless that was done, and return what it is now. Raises as `log.restore` does."""
    with local_disk():
        order.work_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="restore-", dir=order.work_directory) as directory:
        files = _Files(store, order.source, Path(directory), clock, tell)
        wanted = Restoration(
            source=_identity(order.source),
            target=_identity(order.target),
            until=order.until,
            witness=await order.witness.read() if order.until is None else None,
            token=secrets.token_hex(16),
            local_path=files.local_path,
        )
        manifest = await run(_find_copy(wanted), store, files)
        if manifest is None:
            manifest = await run(restore(wanted), store, files, files.watch)
        files.progress.finish()
    end = manifest.restored_from.sequence if manifest.restored_from is not None else None
    return RestoredCorpus(
        incarnation=manifest.incarnation,
        restored_from=order.source_incarnation,
        sequence=end or 0,
        epoch=manifest.epoch,
        snapshot_sequence=manifest.newest_sequence,
    )


def _find_copy(wanted: Restoration) -> Steps[Manifest | None]:
    """Return the target's MANIFEST if it is a complete copy of the wanted source, None if it is anything else or nothing.

    A copy that was asked for up to a sequence ends exactly there; one of all that there was may end anywhere, since the
    source may have grown. The source is not read: it may be gone by now.
    """
    layout = wanted.target.layout
    found = yield from steps.get(layout.manifest)
    if isinstance(found, Absent):
        return None
    manifest = manifest_codec.decode(found.data, key=layout.manifest)
    origin, source = manifest.restored_from, wanted.source.layout
    is_copy = (
        manifest.owner == wanted.target.owner
        and origin is not None
        and origin.sequence is not None
        and (origin.corpus_key, origin.incarnation) == (source.corpus_key, source.incarnation)
        and wanted.until in {None, origin.sequence}
    )
    return manifest if is_copy else None


def _identity(layout: Layout) -> Identity:
    return Identity(layout=layout, owner=layout.incarnation, writer_id=str(uuid.uuid4()))
