"""Faults planted into single steps of the protocol, to show that the simulation finds what it is there to find.

Each is a context manager that replaces one function of the production code while a seed runs; production code has no
switch for any of them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log import (
    Committed,
    LocalFile,
    Manifest,
    Replica,
    SnapshotFile,
    Writer,
    cell,
    collecting,
    publishing,
    steps,
)
from groundplane_shard.log import operations as ops
from groundplane_shard.log import record as record_codec
from groundplane_shard.log.record import Encoded, Position
from tests.simulation.world import ANY_VERSION, LAYOUT


def _take_over_without_barrier(self: Replica, witness: Any = None) -> ops.Steps[Writer]:
    yield from self._follow_to_end()
    epoch = yield from self._raise_epoch(None)
    yield from self._follow_to_end()
    standing = publishing.Standing(epoch, frozenset(self._barriers), frozenset(self._damaged), self._keep_snapshots)
    return Writer(self.cell, standing, self.position)


def _confirm_nothing(self: Replica, epoch: int, barrier: Encoded) -> ops.Steps[None]:
    yield ops.Pause(1)


def _any_record_is_unneeded(key: str, judged: collecting.Judgement) -> bool:
    sequence = judged.layout.sequence_of(key)
    return sequence is not None and sequence <= judged.manifest.log_floor


def _below_the_newest_is_unneeded(key: str, judged: collecting.Judgement) -> bool:
    sequence = judged.layout.sequence_of(key)
    return (
        sequence is not None
        and sequence <= judged.manifest.newest_sequence
        and sequence not in judged.manifest.barriers
    )


def _reuse_what_exists(file: LocalFile, base: Manifest, plan: publishing.Plan) -> ops.Steps[SnapshotFile]:
    keys = yield from steps.list_all(LAYOUT.snapshots)
    for key in keys:
        if key.endswith(f"/{file.path}"):
            return SnapshotFile(path=file.path, key=key.removeprefix(LAYOUT.prefix), size=file.size, sha256=file.sha256)
    return (yield from _place_file(file, base, plan))


def _publish_as_head(self: Writer, files: tuple[LocalFile, ...], position: Position, *, token: str) -> ops.Steps[Any]:
    return _publish_snapshot(self, files, self.position, token=token)


def _create_412_means_lost(key: str, data: bytes) -> ops.Steps[bytes | None]:
    for _ in range(steps.MAX_TRIES):
        result = yield ops.Create(key, data)
        if isinstance(result, ops.Stored):
            return None
        if isinstance(result, ops.PreconditionFailed):
            raise Unavailable("the key exists: the write is lost")
    raise OutcomeUnknown("tries are used up")


def _create_absent_means_failed(key: str, data: bytes) -> ops.Steps[bytes | None]:
    for _ in range(steps.MAX_TRIES):
        result = yield ops.Create(key, data)
        if isinstance(result, ops.Stored):
            return None
        found = yield from steps.get(key)
        if isinstance(found, ops.Found):
            return None if found.data == data else found.data
        if isinstance(result, ops.Unknown):
            raise Unavailable("the key is absent: the write failed")
    raise OutcomeUnknown("tries are used up")


def _create_unknown_means_stored(key: str, data: bytes) -> ops.Steps[bytes | None]:
    result = yield ops.Create(key, data)
    if isinstance(result, ops.Stored | ops.Unknown):
        return None
    return (yield from _create(key, data))


def _next_record_or_a_later_one(self: Replica) -> ops.Steps[Encoded | None]:
    found = yield from steps.get(LAYOUT.record(self.position.next_sequence))
    if isinstance(found, ops.Absent):
        page = yield from steps.list_page(LAYOUT.log, LAYOUT.record(self.position.sequence))
        found = (yield from steps.get(page.keys[0])) if page.keys else found
    return record_codec.decode_unchained(found.data, key="log") if isinstance(found, ops.Found) else None


def _append_without_waiting(self: Writer, payload: bytes, *, embedding_id: bytes = bytes(16)) -> ops.Steps[Any]:
    batch = self._next_batch(payload, embedding_id)
    result = yield ops.Create(LAYOUT.record(batch.record.sequence), batch.data)
    if isinstance(result, ops.Unknown):
        self.position = batch.position  # the next record is sent whatever became of this one
        raise OutcomeUnknown("not waited for")
    if not isinstance(result, ops.Stored):
        raise Unavailable("not stored")
    yield ops.Apply(batch.record, batch.position)
    self.position = batch.position
    return _committed(batch)


def _append_acknowledged_before_apply(
    self: Writer, payload: bytes, *, embedding_id: bytes = bytes(16)
) -> ops.Steps[Any]:
    batch = self._next_batch(payload, embedding_id)
    yield from self._store(batch)
    self.position = batch.position
    return _committed(batch)


def _committed(batch: Encoded) -> Committed:
    return Committed(batch.record.sequence, batch.position.digest)


def _replace_any_version(key: str, data: bytes, etag: str) -> ops.Replace:
    return ops.Replace(key, data, ANY_VERSION)


_create = steps.create
_place_file = publishing.place_file
_publish_snapshot = Writer.publish_snapshot

PLANTED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no-barrier": lambda: patch.object(Replica, "take_over", _take_over_without_barrier),
    "barrier-deleted": lambda: patch.object(collecting, "is_unneeded_record", _any_record_is_unneeded),
    "file-reused-because-it-exists": lambda: patch.object(publishing, "place_file", _reuse_what_exists),
    "floor-of-the-newest-snapshot": lambda: patch.object(
        collecting, "is_unneeded_record", _below_the_newest_is_unneeded
    ),
    "snapshot-labelled-with-the-head": lambda: patch.object(Writer, "publish_snapshot", _publish_as_head),
    "no-second-manifest-read": lambda: patch.object(Replica, "_confirm", _confirm_nothing),
    "412-taken-as-lost": lambda: patch.object(steps, "create", _create_412_means_lost),
    "absent-taken-as-failed": lambda: patch.object(steps, "create", _create_absent_means_failed),
    "gap-skipped": lambda: patch.object(Replica, "next_record", _next_record_or_a_later_one),
    "two-puts-in-flight": lambda: patch.object(Writer, "append", _append_without_waiting),
    "manifest-put-without-condition": lambda: patch.object(cell, "Replace", _replace_any_version),
    "acknowledged-before-apply": lambda: patch.object(Writer, "append", _append_acknowledged_before_apply),
    "acknowledged-on-unknown": lambda: patch.object(steps, "create", _create_unknown_means_stored),
}
