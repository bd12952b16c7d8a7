"""Faults planted into publishing snapshots and into collecting."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from groundplane_shard.log import (
    LocalFile,
    Manifest,
    Seq,
    Snapshot,
    SnapshotFile,
    Writer,
    collecting,
    publishing,
    steps,
)
from groundplane_shard.log import operations as ops
from groundplane_shard.log.cell import ManifestCell
from groundplane_shard.log.layout import upload_epoch
from groundplane_shard.log.publishing import Plan, Standing
from groundplane_shard.log.record import Position
from tests.simulation.planting import Plant

_place_file = publishing.place_file
_publish_snapshot = Writer.publish_snapshot
_publish = publishing.publish
_with_snapshot = publishing.with_snapshot
_is_unneeded_file = collecting.is_unneeded_file
_describe = publishing.describe


def _any_record_is_unneeded(key: str, judged: collecting.Judgement) -> bool:
    sequence = judged.layout.sequence_of(key)
    return sequence is not None and sequence <= judged.manifest.log_floor


def _below_the_newest_is_unneeded(key: str, judged: collecting.Judgement) -> bool:
    sequence = judged.layout.sequence_of(key)
    manifest = judged.manifest
    return sequence is not None and sequence <= manifest.newest_sequence and sequence not in manifest.barriers


def _any_unlisted_file_is_unneeded(key: str, judged: collecting.Judgement) -> bool:
    name = key.removeprefix(judged.layout.prefix)
    return upload_epoch(judged.layout.upload_of(key)) is not None and name not in judged.manifest.listed_names()


def _only_the_newest_is_needed(key: str, judged: collecting.Judgement) -> bool:
    newest = msgspec.structs.replace(judged.manifest, snapshots=judged.manifest.snapshots[-1:])
    return _is_unneeded_file(key, msgspec.structs.replace(judged, manifest=newest))


def _reuse_what_exists(file: LocalFile, base: Manifest, plan: Plan) -> ops.Steps[SnapshotFile]:
    keys = yield from steps.list_all(plan.layout.snapshots)
    for key in keys:
        if key.endswith(f"/{file.path}"):
            name = key.removeprefix(plan.layout.prefix)
            return SnapshotFile(path=file.path, key=name, size=file.size, sha256=file.sha256)
    return (yield from _place_file(file, base, plan))


def _reuse_equal_bytes(file: LocalFile, base: Manifest, plan: Plan) -> ops.Steps[SnapshotFile]:
    keys = yield from steps.list_all(plan.layout.snapshots)
    for key in keys:
        if key.endswith(f"/{file.path}") and (yield from publishing.is_intact(key, file)):
            name = key.removeprefix(plan.layout.prefix)
            return SnapshotFile(path=file.path, key=name, size=file.size, sha256=file.sha256)
    return (yield from _place_file(file, base, plan))


def _reuse_by_size(file: LocalFile, base: Manifest, plan: Plan) -> ops.Steps[SnapshotFile]:
    for snapshot in base.snapshots:
        for known in snapshot.files:
            if (known.path, known.size) == (file.path, file.size):
                return known
    return (yield from _place_file(file, base, plan))


def _always_intact(key: str, file: LocalFile) -> ops.Steps[bool]:
    yield ops.Pause(1)
    return True


def _publish_as_head(self: Writer, files: tuple[LocalFile, ...], position: Position, *, token: str) -> ops.Steps[Any]:
    return _publish_snapshot(self, files, self.position, token=token)


def _describe_without_last_file(plan: Plan, files: tuple[SnapshotFile, ...]) -> Snapshot:
    return _describe(plan, files[1:])


def _same_upload_again(epoch: int, token: str) -> str:
    return f"{epoch:020d}-{'0' * 8}"


def _collect_before_the_manifest_is_stored(
    cell: ManifestCell, plan: Plan, check_ours: Callable[[Manifest], None]
) -> ops.Steps[Snapshot]:
    """Collect by the MANIFEST that is about to be stored: its floor, and the files that it will not list any more."""
    base = yield from cell.refresh()
    check_ours(base)
    planned = _with_snapshot(base, _describe(plan, ()), plan.standing)
    yield from collecting.collect(
        collecting.Judgement(plan.layout, planned, plan.standing.epoch, frozenset((plan.upload,)))
    )
    return (yield from _publish(cell, plan, check_ours))


def _collect_records_of_the_planned_floor(
    cell: ManifestCell, plan: Plan, check_ours: Callable[[Manifest], None]
) -> ops.Steps[Snapshot]:
    base = yield from cell.refresh()
    check_ours(base)
    planned = _with_snapshot(base, _describe(plan, ()), plan.standing)
    judged = collecting.Judgement(plan.layout, planned, plan.standing.epoch, frozenset())
    for key in (yield from collecting._unneeded_records(judged)):
        yield from steps.delete(key)
    return (yield from _publish(cell, plan, check_ours))


def _floor_of_the_new_snapshot(kept: tuple[Snapshot, ...], base: Manifest, standing: Standing) -> Seq:
    return kept[-1].sequence if len(kept) == 1 else base.log_floor


def _forget_barriers(base: Manifest, snapshot: Snapshot, standing: Standing) -> Manifest:
    return _with_snapshot(base, snapshot, msgspec.structs.replace(standing, barriers=frozenset()))


def _list_what_was_dropped(snapshot: Snapshot, current: Manifest, plan: Plan) -> None:
    return None


def _publish_outside_a_change(
    cell: ManifestCell, plan: Plan, check_ours: Callable[[Manifest], None]
) -> ops.Steps[Snapshot]:
    """List the snapshot in the MANIFEST read before the upload, not in the one that is stored by then."""
    base = yield from cell.refresh()
    check_ours(base)
    publishing._check_newer(base, plan)
    snapshot = _describe(plan, (yield from publishing._place_files(base, plan)))
    yield from cell.change(lambda current: _with_snapshot(base, snapshot, plan.standing))
    return snapshot


SNAPSHOTS: dict[str, Plant] = {
    "barrier-deleted": lambda: patch.object(collecting, "is_unneeded_record", _any_record_is_unneeded),
    "barriers-not-remembered": lambda: patch.object(publishing, "with_snapshot", _forget_barriers),
    "floor-of-the-newest-snapshot": lambda: patch.object(
        collecting, "is_unneeded_record", _below_the_newest_is_unneeded
    ),
    "floor-before-manifest-is-stored": lambda: patch.object(
        publishing, "publish", _collect_records_of_the_planned_floor
    ),
    "collected-by-an-unstored-manifest": lambda: patch.object(
        publishing, "publish", _collect_before_the_manifest_is_stored
    ),
    "floor-moved-by-the-first-snapshot": lambda: patch.object(publishing, "floor_of", _floor_of_the_new_snapshot),
    "live-uploads-collected": lambda: patch.object(collecting, "is_unneeded_file", _any_unlisted_file_is_unneeded),
    "older-snapshots-collected": lambda: patch.object(collecting, "is_unneeded_file", _only_the_newest_is_needed),
    "file-reused-because-it-exists": lambda: patch.object(publishing, "place_file", _reuse_what_exists),
    "unlisted-file-reused": lambda: patch.multiple(
        publishing, place_file=_reuse_equal_bytes, _check_still_listed=_list_what_was_dropped
    ),
    "reuse-without-comparing-sha256": lambda: patch.object(publishing, "place_file", _reuse_by_size),
    "snapshot-not-verified": lambda: patch.object(publishing, "is_intact", _always_intact),
    "snapshot-labelled-with-the-head": lambda: patch.object(Writer, "publish_snapshot", _publish_as_head),
    "snapshot-without-one-file": lambda: patch.object(publishing, "describe", _describe_without_last_file),
    "upload-name-used-twice": lambda: patch("groundplane_shard.log.writer.upload_id", _same_upload_again),
    "manifest-changed-from-an-old-version": lambda: patch.object(publishing, "publish", _publish_outside_a_change),
}
