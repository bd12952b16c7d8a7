"""Publishing a snapshot: upload what is new, verify everything, list it in MANIFEST (I8).

A file is reused only if the MANIFEST that the change is based on lists it with equal path, size and SHA-256 and its
stored bytes still verify; never because an object happens to exist. Everything else is uploaded under this upload's own
id, which no other upload ever has. Files are placed several at a time. The snapshot's sequence is that of the last record frozen into it.
The log floor moves only once as many snapshots are kept as were asked for: until then the whole log is the last resort.
Errors: `Unavailable` and `InvalidInput` (certainly not published), `OutcomeUnknown`, `CorruptData` (an upload does not
verify), and what the caller's ownership check raises.
"""

from collections.abc import Callable

import msgspec

from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane_shard.log import steps
from groundplane_shard.log.cell import ManifestCell
from groundplane_shard.log.layout import Epoch, Layout, Seq, snapshot_name
from groundplane_shard.log.manifest import Manifest, Snapshot, SnapshotFile
from groundplane_shard.log.operations import (
    Conflict,
    Damaged,
    LocalFile,
    Pause,
    PreconditionFailed,
    Refused,
    Steps,
    Stored,
    Unknown,
    Upload,
    Verified,
    Verify,
)
from groundplane_shard.log.record import Position


class Standing(msgspec.Struct, frozen=True):
    """What a writer brings from its take-over."""

    epoch: Epoch
    barriers: frozenset[Seq]  # those it read after its snapshot, and its own; MANIFEST has the ones before
    damaged_uploads: frozenset[str]  # snapshots that did not verify; the next publication drops them
    keep_snapshots: int


class Plan(msgspec.Struct, frozen=True):
    """One publication: these files, frozen at this position, under this upload id."""

    layout: Layout
    upload: str
    position: Position
    files: tuple[LocalFile, ...]
    standing: Standing
    taken_at: float | None = None  # see `Snapshot`


def publish(cell: ManifestCell, plan: Plan, check_ours: Callable[[Manifest], None]) -> Steps[Snapshot]:
    """Publish and return the snapshot. `check_ours` raises if a MANIFEST is not the calling writer's to change."""
    base = yield from cell.refresh()
    check_ours(base)
    _check_newer(base, plan)
    try:
        placed = yield from _place_files(base, plan)
    except CorruptData:
        check_ours((yield from cell.refresh()))  # a newer writer collects what we uploaded: superseded, not corrupt
        raise
    snapshot = describe(plan, placed)

    def decide(current: Manifest) -> Manifest:
        check_ours(current)
        if any(known.upload_id == plan.upload for known in current.snapshots):
            return current  # an earlier try was stored, and another change followed it
        _check_newer(current, plan)
        _check_still_listed(snapshot, current, plan)
        return with_snapshot(current, snapshot, plan.standing)

    yield from cell.change(decide)
    return snapshot


def _place_files(base: Manifest, plan: Plan) -> Steps[tuple[SnapshotFile, ...]]:
    files = sorted(plan.files, key=lambda file: file.path)
    return (yield from steps.together(place_file(file, base, plan) for file in files))


def place_file(file: LocalFile, base: Manifest, plan: Plan) -> Steps[SnapshotFile]:
    """Return where the file's bytes are stored, verified: where `base` lists them already, else freshly uploaded."""
    for known in _equal_files(file, base):
        if (yield from is_intact(plan.layout.object(known.key), file)):
            return known
    name = snapshot_name(plan.upload, file.path)
    yield from upload(plan.layout.object(name), file)
    return SnapshotFile(path=file.path, key=name, size=file.size, sha256=file.sha256)


def describe(plan: Plan, files: tuple[SnapshotFile, ...]) -> Snapshot:
    """Return the snapshot's entry in MANIFEST, labelled with the last record frozen into it."""
    return Snapshot(
        upload_id=plan.upload,
        sequence=plan.position.sequence,
        epoch=plan.position.epoch,
        digest=plan.position.digest.hex(),
        files=files,
        taken_at=plan.taken_at,
    )


def with_snapshot(base: Manifest, snapshot: Snapshot, standing: Standing) -> Manifest:
    """Return MANIFEST with the snapshot as the newest, the oldest dropped, and the floor of the oldest that is kept."""
    intact = [known for known in base.snapshots if known.upload_id not in standing.damaged_uploads]
    kept = (*intact, snapshot)[-standing.keep_snapshots :]
    return msgspec.structs.replace(
        base,
        snapshots=kept,
        barriers=tuple(sorted({*base.barriers, *standing.barriers})),
        log_floor=floor_of(kept, base, standing),
    )


def floor_of(kept: tuple[Snapshot, ...], base: Manifest, standing: Standing) -> Seq:
    """Return the sequence up to which log records may be deleted: that of the oldest kept snapshot (I6)."""
    return kept[0].sequence if len(kept) == standing.keep_snapshots else base.log_floor


def upload(key: str, file: LocalFile) -> Steps[None]:
    """Store the file under a key that only this upload uses, and verify it. Raises Unavailable, CorruptData."""
    reason = ""
    for attempt in range(steps.MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield Upload(key, file)):
            case Stored() | PreconditionFailed():  # 412: an own try whose answer was lost; verifying tells
                break
            case Refused(reason):
                raise _not_uploaded(file, reason)
            case Conflict():
                reason = "another request for the key was under way"
            case Unknown(reason):
                pass
            case other:
                raise steps.unexpected(Upload(key, file), other)
    else:
        raise _not_uploaded(file, reason)
    if not (yield from is_intact(key, file)):
        raise CorruptData(
            f"object {key} does not verify after its upload: expected {file.size} bytes with sha256 {file.sha256}; publish again",
            code="upload_damaged",
        )


def is_intact(key: str, file: LocalFile) -> Steps[bool]:
    """Return whether the stored object has the file's bytes. Raises Unavailable without an answer."""
    operation = Verify(key, file.size, file.sha256)
    reason = ""
    for attempt in range(steps.MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield operation):
            case Verified():
                return True
            case Damaged():
                return False
            case Unknown(reason) | Refused(reason):
                pass
            case other:
                raise steps.unexpected(operation, other)
    raise _not_uploaded(file, reason)


def _equal_files(file: LocalFile, base: Manifest) -> list[SnapshotFile]:
    wanted = (file.path, file.size, file.sha256)
    found = {
        known.key: known
        for snapshot in base.snapshots
        for known in snapshot.files
        if (known.path, known.size, known.sha256) == wanted
    }
    return list(found.values())


def _check_newer(base: Manifest, plan: Plan) -> None:
    if plan.position.sequence <= base.newest_sequence:
        raise InvalidInput(
            f"snapshot at {plan.position.sequence}: expected one above the newest at {base.newest_sequence}; nothing to publish",
            code="snapshot_not_newer",
        )


def _check_still_listed(snapshot: Snapshot, current: Manifest, plan: Plan) -> None:
    own, listed = snapshot_name(plan.upload, ""), current.listed_names()
    for file in snapshot.files:
        if not file.key.startswith(own) and file.key not in listed:
            raise Unavailable(
                f"file {file.key} is no longer listed: expected it to be reused; publish again", code="base_moved"
            )


def _not_uploaded(file: LocalFile, reason: str) -> Unavailable:
    return Unavailable(
        f"snapshot file {file.path} was not stored: {reason[:256]}; publish again", code="store_unavailable"
    )
