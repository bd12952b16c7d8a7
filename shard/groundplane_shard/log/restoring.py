"""Restoring: a new incarnation made of another one's newest usable snapshot and the log after it (I9).

    claim        MANIFEST of the target, created by If-None-Match, says where the copy comes from and that it is not complete
    files        the snapshot's files, verified on the way down and again after their upload, under the target's own names
    records      the log after the snapshot, each record read as a follower reads it, encoded anew for the target's chain
    completion   MANIFEST of the target, changed by If-Match, lists the snapshot and says that the copy is complete

The target is refused before any write unless its prefix is empty. While it is not complete every process refuses to open
it, and nobody ever completes another process's copy: what was cut off is repeated into a further incarnation. The source
is only read; its writer may be at work, and what it appends meanwhile is not copied. Sequences, epochs and embeddings stay
what they were, so positions that callers hold stay comparable; the source's barriers are records like all others.

`Restore` means here: put the snapshot's files, verified, into a fresh directory; no table is opened, nothing is applied.
Errors: `InvalidInput` (target not empty, no such sequence), `CorruptData` (the source is damaged, or nothing that is left
reaches the sequence), `Unavailable` (also: the source was collected while it was read), `OutcomeUnknown`. After any but the
first restore into another incarnation: the target may have been begun.
"""

from collections.abc import Callable
from uuid import UUID

import msgspec

from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import publishing, steps
from groundplane_shard.log import record as codec
from groundplane_shard.log.cell import Identity, ManifestCell
from groundplane_shard.log.layout import Epoch, Seq, snapshot_name, upload_id
from groundplane_shard.log.manifest import Manifest, Origin, Snapshot, SnapshotFile
from groundplane_shard.log.operations import Absent, LocalFile, Steps
from groundplane_shard.log.override import Witness, required_override
from groundplane_shard.log.record import Encoded, Position
from groundplane_shard.log.replica import Replica


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """One copy from `source` into `target`, an incarnation that nobody used yet.

    `until` is the last sequence to be copied; None: all that there is, which must reach `witness`. `token` is fresh random
    hex. `local_path` says where the driver put a file of the snapshot that it restored last.
    """

    source: Identity
    target: Identity
    until: Seq | None = None
    witness: Witness | None = None
    token: str
    local_path: Callable[[SnapshotFile], str]


def restore(wanted: Restoration) -> Steps[Manifest]:
    """Copy, and return the target's MANIFEST, complete."""
    source, target = Replica(wanted.source), ManifestCell(wanted.target)
    yield from source.cell.refresh()
    _refuse_unfinished(source.manifest, wanted)
    yield from _refuse_used(target)
    yield from _check_witness_in_reach(source, wanted)
    snapshot = yield from source.restore_newest(wanted.until)
    yield from _check_sequence_exists(source, wanted.until)
    yield from _claim(target, source.manifest)
    placed = (yield from _copy_files(snapshot, source.manifest.epoch, wanted)) if snapshot else None
    end = yield from _copy_records(source, wanted)
    epoch = Epoch(max(end.epoch, source.manifest.epoch))
    return (yield from target.change(lambda base: _completed(base, placed, end, epoch)))


def _refuse_unfinished(source: Manifest, wanted: Restoration) -> None:
    """Refuse a source that is itself half a copy: what it lacks could not be told from what was never written."""
    if source.is_unfinished:
        raise InvalidInput(
            f"{wanted.source.layout.prefix} is an unfinished restore: expected a complete source; restore from that of "
            f"{source.restored_from.incarnation if source.restored_from else 'another incarnation'}",
            code="source_unfinished",
        )


def _refuse_used(target: ManifestCell) -> Steps[None]:
    layout = target.identity.layout
    found = yield from steps.get(layout.manifest)
    page = yield from steps.list_page(layout.prefix, "")
    if page.keys or not isinstance(found, Absent):
        raise _not_empty(page.keys[0] if page.keys else layout.manifest)


def _claim(target: ManifestCell, source: Manifest) -> Steps[None]:
    """Make the target's MANIFEST, so that nobody else restores into it, and nobody opens it before it is complete."""
    layout, identity = target.identity.layout, target.identity
    first = Manifest(
        corpus_key=layout.corpus_key,
        incarnation=layout.incarnation,
        owner=identity.owner,
        counter=1,
        epoch=source.epoch,
        writer_id=identity.writer_id,
        embeddings=source.embeddings,
        analyser_id=source.analyser_id,
        restored_from=Origin(corpus_key=source.corpus_key, incarnation=source.incarnation, sequence=None),
    )
    if (yield from steps.create(layout.manifest, manifest_codec.encode(first))) is not None:
        raise _not_empty(layout.manifest)


def _copy_files(snapshot: Snapshot, epoch: Epoch, wanted: Restoration) -> Steps[Snapshot]:
    upload, layout = upload_id(epoch, wanted.token), wanted.target.layout

    def copy(known: SnapshotFile) -> Steps[SnapshotFile]:
        name = snapshot_name(upload, known.path)
        local = LocalFile(path=known.path, source=wanted.local_path(known), size=known.size, sha256=known.sha256)
        yield from publishing.upload(layout.object(name), local)
        return msgspec.structs.replace(known, key=name)

    files = yield from steps.together(map(copy, snapshot.files))
    return msgspec.structs.replace(snapshot, upload_id=upload, files=files)


def _copy_records(source: Replica, wanted: Restoration) -> Steps[Position]:
    """Copy the records after the restored snapshot; return the target's position behind the last one."""
    end = source.position
    while wanted.until is None or end.sequence < wanted.until:
        found = yield from _next_record_or_end(source, wanted)
        if found is None:
            break
        source.position = found.position
        end = yield from _copy_record(found, end, wanted.target)
    return end


def _check_witness_in_reach(source: Replica, wanted: Restoration) -> Steps[None]:
    """Refuse before any write what the names in the log already show to be too little; the end is checked again when read."""
    if wanted.until is None and wanted.witness is not None:
        layout = wanted.source.layout
        keys = yield from steps.list_all(layout.log)
        last = max((layout.sequence_of(key) or Seq(0) for key in keys), default=Seq(0))
        found = Witness(source.manifest.epoch, max(last, source.manifest.newest_sequence))
        required_override(layout.prefix, found, wanted.witness, None)


def _next_record_or_end(source: Replica, wanted: Restoration) -> Steps[Encoded | None]:
    """Return the next record; None where the log really ends and holds all that was asked for."""
    for _ in range(steps.MAX_TRIES):
        found = yield from _next_record(source)
        if found is not None:
            return found
        if (yield from source.check_end()):
            if wanted.until is not None:
                raise _no_such_sequence(source, wanted.until)
            _check_witness(source, wanted)
            return None
    raise Unavailable(f"{wanted.source.layout.log} grows and cannot be read: expected to reach its end; try again")


def _next_record(source: Replica) -> Steps[Encoded | None]:
    here = source.position
    found = yield from source.next_record()
    if source.position != here:
        raise Unavailable(
            f"log records after {here.sequence} were collected while they were read: expected them to stay; restore again, "
            "into another incarnation",
            code="source_collected",
        )
    return found


def _check_sequence_exists(source: Replica, until: Seq | None) -> Steps[None]:
    if until is None or until <= source.position.sequence:
        return
    layout = source.cell.identity.layout
    if isinstance((yield from steps.get(layout.record(until))), Absent):
        raise _no_such_sequence(source, until)


def _no_such_sequence(source: Replica, until: Seq) -> InvalidInput:
    return InvalidInput(
        f"sequence {until}: expected one that {source.cell.identity.layout.log} holds; name an earlier one",
        code="no_such_sequence",
        field="until",
    )


def _check_witness(source: Replica, wanted: Restoration) -> None:
    if wanted.witness is not None:
        found = Witness(source.manifest.epoch, source.position.sequence)
        required_override(wanted.source.layout.prefix, found, wanted.witness, None)


def _copy_record(found: Encoded, after: Position, target: Identity) -> Steps[Position]:
    incarnation = UUID(target.layout.incarnation).bytes
    copy = codec.encode(msgspec.structs.replace(found.record, incarnation=incarnation, previous=after.digest))
    key = target.layout.record(copy.record.sequence)
    if (yield from steps.create(key, copy.data)) is not None:
        raise _not_empty(key)
    return copy.position


def _completed(base: Manifest, placed: Snapshot | None, end: Position, epoch: Epoch) -> Manifest:
    if base.restored_from is None or not base.is_unfinished:
        raise CorruptData(
            f"MANIFEST of {base.incarnation} is not that of an unfinished restore: expected it to be left alone"
        )
    return msgspec.structs.replace(
        base,
        epoch=epoch,
        log_floor=placed.sequence if placed else Seq(0),
        snapshots=(placed,) if placed else (),
        restored_from=msgspec.structs.replace(base.restored_from, sequence=end.sequence),
    )


def _not_empty(key: str) -> InvalidInput:
    return InvalidInput(
        f"{key} exists: expected an empty prefix to restore into; restore into an incarnation that nobody used",
        code="target_not_empty",
    )
