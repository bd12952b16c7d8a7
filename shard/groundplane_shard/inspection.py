"""Reading a corpus in its store without being its writer: what the log holds, which snapshots there are, whether all is whole.

Like the protocol, these are generators without I/O of their own; they never write. A corpus may be read while its writer
is at work: what is collected meanwhile makes the reading start again from the newest MANIFEST.
Errors: `CorruptData` that names the key for MANIFEST; damage elsewhere is listed, not raised; `Unavailable`.
"""

import re

import msgspec

from groundplane.errors import CorruptData, InvalidInput
from groundplane_shard.log import Layout, Manifest, steps
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import record as record_codec
from groundplane_shard.log.operations import Absent, Damaged, Steps, Unknown, Verified, Verify
from groundplane_shard.log.record import Position

_MAX_READINGS = 3
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One log record: its place, its kind, and the size of the whole object in bytes."""

    sequence: int
    epoch: int
    kind: str
    size: int
    embedding_id: str | None
    digest: str


class SnapshotEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot: the last record that it holds, and the size of its files in bytes."""

    sequence: int
    epoch: int
    upload_id: str
    files: int
    size: int
    taken_at: float | None  # seconds since 1970


class IncarnationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a corpus. `state` is complete, unfinished (a restore that was cut off) or damaged (no readable MANIFEST)."""

    incarnation: str
    state: str
    epoch: int = 0
    sequence: int = 0
    snapshots: int = 0
    restored_from: str | None = None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is not as it must be."""

    key: str
    message: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of every byte found. `size` counts the bytes that were checked."""

    sequence: int
    records: int
    snapshots: int
    files: int
    size: int
    faults: tuple[Fault, ...]


def read_manifest(layout: Layout) -> Steps[Manifest]:
    """Return MANIFEST. Raises InvalidInput if there is no such corpus, CorruptData if it is damaged."""
    found = yield from steps.get(layout.manifest)
    if isinstance(found, Absent):
        raise InvalidInput(
            f"{layout.manifest} does not exist: expected the corpus key and incarnation of a corpus in this store"
        )
    return manifest_codec.decode(found.data, key=layout.manifest)


def list_snapshots(layout: Layout) -> Steps[tuple[SnapshotEntry, ...]]:
    """Return the kept snapshots, oldest first."""
    manifest = yield from read_manifest(layout)
    return tuple(
        SnapshotEntry(
            sequence=snapshot.sequence,
            epoch=snapshot.epoch,
            upload_id=snapshot.upload_id,
            files=len(snapshot.files),
            size=sum(file.size for file in snapshot.files),
            taken_at=snapshot.taken_at,
        )
        for snapshot in manifest.snapshots
    )


def list_log(layout: Layout) -> Steps[tuple[LogEntry, ...]]:
    """Return the records from the floor on, each checked for itself. Raises CorruptData for one that is damaged."""
    entries: list[LogEntry] = []
    for key in (yield from _record_keys(layout)):
        found = yield from steps.get(key)
        if not isinstance(found, Absent):  # collected since it was listed
            encoded = record_codec.decode_unchained(found.data, key=key)
            entries.append(_entry(encoded.record, encoded.position, len(found.data)))
    return tuple(entries)


def list_incarnations(layout: Layout) -> Steps[tuple[IncarnationEntry, ...]]:
    """Return every incarnation of the corpus of `layout` that the store holds, by uid."""
    entries: list[IncarnationEntry] = []
    prefix = after = f"{layout.corpus_key}/"
    while (page := (yield from steps.list_page(prefix, after))).keys:
        incarnation = page.keys[0].removeprefix(prefix).partition("/")[0]
        if _UUID.fullmatch(incarnation):
            entries.append((yield from _incarnation(Layout(layout.corpus_key, incarnation))))
        after = f"{prefix}{incarnation}0"  # "0" follows "/": behind all keys of this incarnation
    return tuple(entries)


def _incarnation(layout: Layout) -> Steps[IncarnationEntry]:
    try:
        manifest = yield from read_manifest(layout)
    except (CorruptData, InvalidInput):
        return IncarnationEntry(incarnation=layout.incarnation, state="damaged")
    keys = yield from steps.list_all(layout.log)
    last = max((layout.sequence_of(key) or 0 for key in keys), default=0)
    return IncarnationEntry(
        incarnation=layout.incarnation,
        state="unfinished" if manifest.is_unfinished else "complete",
        epoch=manifest.epoch,
        sequence=max(last, manifest.newest_sequence),
        snapshots=len(manifest.snapshots),
        restored_from=manifest.restored_from.incarnation if manifest.restored_from else None,
    )


def verify(layout: Layout) -> Steps[Verification]:
    """Check MANIFEST, every kept snapshot's files, and the chain of records from the oldest kept snapshot to the end."""
    for _ in range(_MAX_READINGS):
        manifest = yield from read_manifest(layout)
        found = yield from _verify_once(layout, manifest)
        if not found.faults or (yield from read_manifest(layout)).counter == manifest.counter:
            break  # faults that a concurrent collection cannot explain
    return found


def _verify_once(layout: Layout, manifest: Manifest) -> Steps[Verification]:
    faults: list[Fault] = []
    files = {file.key: file for snapshot in manifest.snapshots for file in snapshot.files}
    for file in files.values():
        key = layout.object(file.key)
        answer = yield Verify(key, file.size, file.sha256)
        if isinstance(answer, (Damaged, Unknown)):
            faults.append(Fault(key=key, message=answer.reason))
        elif not isinstance(answer, Verified):
            raise steps.unexpected(Verify(key, file.size, file.sha256), answer)
    position, records, size = yield from _verify_log(layout, manifest, faults)
    return Verification(
        sequence=position.sequence,
        records=records,
        snapshots=len(manifest.snapshots),
        files=len(files),
        size=size + sum(file.size for file in files.values()),
        faults=tuple(faults),
    )


def _verify_log(layout: Layout, manifest: Manifest, faults: list[Fault]) -> Steps[tuple[Position, int, int]]:
    """Follow the chain from the oldest kept snapshot (or the beginning) and return its end, its records and their bytes."""
    position = manifest.snapshots[0].position if manifest.snapshots else Position()
    incarnation = bytes.fromhex(layout.incarnation.replace("-", ""))
    records = size = 0
    last = max((layout.sequence_of(key) or 0 for key in (yield from steps.list_all(layout.log))), default=0)
    while position.sequence < last:
        key = layout.record(position.next_sequence)
        found = yield from steps.get(key)
        if isinstance(found, Absent):
            faults.append(Fault(key=key, message=f"missing, though the log goes on to {last}"))
            break
        try:
            position = record_codec.decode(found.data, key=key, incarnation=incarnation, after=position).position
        except CorruptData as error:
            faults.append(Fault(key=key, message=error.message))
            break
        records += 1
        size += len(found.data)
    return position, records, size


def _record_keys(layout: Layout) -> Steps[tuple[str, ...]]:
    manifest = yield from read_manifest(layout)
    keys = yield from steps.list_all(layout.log)
    return tuple(key for key in keys if (layout.sequence_of(key) or 0) > manifest.log_floor)


def _entry(record: record_codec.Record, position: Position, size: int) -> LogEntry:
    has_embedding = record.embedding_id != record_codec.NO_EMBEDDING
    return LogEntry(
        sequence=record.sequence,
        epoch=record.epoch,
        kind=record.kind.name.lower(),
        size=size,
        embedding_id=record.embedding_id.hex() if has_embedding else None,
        digest=position.digest.hex(),
    )
