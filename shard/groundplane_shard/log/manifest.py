"""MANIFEST: the one mutable object of an incarnation, a small JSON document.

    {"manifest": {...}, "sha256": "<hex digest of the bytes of the inner object>"}

Invariants: created by If-None-Match and changed by If-Match only; `counter` grows with every change and `writer_id`
names who made it, so no two versions have equal bytes and reading it back settles an unknown outcome (I7). `epoch` never
falls. `snapshots` are in ascending order, newest last; their files are named by paths that stay inside the directory
they are put in. `barriers` holds at least every barrier up to the newest snapshot; they are never deleted (I6).
`log_floor` is the sequence up to which log records may be gone. `restored_from` names the incarnation whose log this one
goes on with; while the copy is not complete the incarnation is refused (see `restoring`).
Errors: `CorruptData`, with code `unsupported_format` for another format version.
"""

import hashlib
from itertools import pairwise
from typing import Any

import msgspec

from groundplane.errors import CorruptData
from groundplane_shard.log.layout import Epoch, Seq, is_safe_path, snapshot_name, upload_epoch
from groundplane_shard.log.record import FORMAT_VERSION as RECORD_FORMAT_VERSION
from groundplane_shard.log.record import Position

FORMAT_VERSION = 1


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a snapshot. `key` is relative to the incarnation's prefix and may lie under an older upload id."""

    path: str
    key: str
    size: int
    sha256: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A complete copy of the table. `sequence`, `epoch` and `digest` are those of the last record that it holds."""

    upload_id: str
    sequence: Seq
    epoch: Epoch
    digest: str  # hex
    files: tuple[SnapshotFile, ...]
    taken_at: float | None = None  # seconds since 1970, by the writer's clock: for people, no rule rests on it

    @property
    def position(self) -> Position:
        """The place in the log up to which this snapshot goes."""
        return Position(self.sequence, self.epoch, bytes.fromhex(self.digest))


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a restored incarnation came from: the log of `incarnation` up to and with `sequence`."""

    corpus_key: str
    incarnation: str
    sequence: Seq | None  # None until everything was copied


class FormatVersions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Format versions in use; software that does not know one of them refuses the corpus."""

    manifest: int = FORMAT_VERSION
    record: int = RECORD_FORMAT_VERSION


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of one incarnation that is not in its log."""

    corpus_key: str
    incarnation: str
    owner: str  # whose prefix this is: the uid of the TenantCorpus (I9)
    counter: int
    epoch: Epoch
    writer_id: str
    formats: FormatVersions = FormatVersions()
    log_floor: Seq = Seq(0)
    barriers: tuple[Seq, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    embeddings: tuple[dict[str, Any], ...] = ()  # JSON objects with an `id`; their meaning belongs to the shard
    analyser_id: str | None = None
    key_slots: tuple[dict[str, Any], ...] = ()  # empty until encryption at rest exists
    restored_from: Origin | None = None

    @property
    def newest_sequence(self) -> Seq:
        """Sequence of the newest snapshot, 0 without one."""
        return self.snapshots[-1].sequence if self.snapshots else Seq(0)

    @property
    def is_unfinished(self) -> bool:
        """Whether a restore into this incarnation has not ended, or was cut off."""
        return self.restored_from is not None and self.restored_from.sequence is None

    def listed_names(self) -> frozenset[str]:
        """Return the names, relative to the prefix, of every file that a kept snapshot needs."""
        return frozenset(file.key for snapshot in self.snapshots for file in snapshot.files)


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifest: msgspec.Raw
    sha256: str


class _Versioned(msgspec.Struct, frozen=True):
    formats: FormatVersions


_ENCODER = msgspec.json.Encoder()
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_VERSIONED = msgspec.json.Decoder(_Versioned)
_MANIFEST = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of MANIFEST."""
    inner = _ENCODER.encode(manifest)
    return _ENCODER.encode(_Envelope(msgspec.Raw(inner), hashlib.sha256(inner).hexdigest()))


def decode(data: bytes, *, key: str) -> Manifest:
    """Return the MANIFEST in `data`, checked. Raises CorruptData that names `key`, what was found and what was expected."""
    try:
        envelope = _ENVELOPE.decode(data)
        inner = bytes(envelope.manifest)
        if (digest := hashlib.sha256(inner).hexdigest()) != envelope.sha256:
            raise _fault(key, f"sha256 {digest}", envelope.sha256)
        _check_formats(_VERSIONED.decode(inner).formats, key)
        manifest = _MANIFEST.decode(inner)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _fault(key, str(error)[:256], "the JSON document that a shard writes") from error
    check(manifest, key=key)
    return manifest


def check(manifest: Manifest, *, key: str) -> None:
    """Raise CorruptData unless the parts of `manifest` agree with each other and its names are safe."""
    if manifest.counter < 1 or manifest.epoch < 0:
        raise _fault(key, f"counter {manifest.counter}, epoch {manifest.epoch}", "counter from 1, epoch from 0")
    sequences = [snapshot.sequence for snapshot in manifest.snapshots]
    if any(older >= newer for older, newer in pairwise(sequences)):
        raise _fault(key, f"snapshots at {sequences}", "ascending sequences")
    if not 0 <= manifest.log_floor <= (sequences[0] if sequences else 0):
        raise _fault(key, f"log floor {manifest.log_floor}", "at most the oldest snapshot's sequence")
    for snapshot in manifest.snapshots:
        _check_snapshot(snapshot, key)


def _check_formats(formats: FormatVersions, key: str) -> None:
    expected = FormatVersions()
    if formats != expected:
        raise CorruptData(
            f"{key} has format versions manifest {formats.manifest}, record {formats.record}: this software reads "
            f"manifest {expected.manifest}, record {expected.record}; use the software that wrote it",
            code="unsupported_format",
        )


def _check_snapshot(snapshot: Snapshot, key: str) -> None:
    where = f"snapshot {snapshot.sequence} in {key}"
    if upload_epoch(snapshot.upload_id) is None or not _is_digest(snapshot.digest) or snapshot.sequence < 1:
        raise _fault(
            where, f"upload id {snapshot.upload_id!r}, digest {snapshot.digest!r}", "those that a writer makes"
        )
    seen: set[str] = set()
    for file in snapshot.files:
        if not is_safe_path(file.path) or file.path in seen:
            raise _fault(where, f"path {file.path!r}", "a relative path without '..', listed once")
        seen.add(file.path)
        _, upload, _ = (*file.key.split("/", 2), "", "")[:3]
        if upload_epoch(upload) is None or file.key != snapshot_name(upload, file.path):
            raise _fault(where, f"key {file.key!r}", f"snapshots/<upload id>/{file.path}")
        if file.size < 0 or not _is_digest(file.sha256):
            raise _fault(
                where, f"size {file.size} and sha256 {file.sha256!r} of {file.path!r}", "a size and 64 hex digits"
            )
    for path in seen:
        if any("/".join(path.split("/")[:depth]) in seen for depth in range(1, path.count("/") + 1)):
            raise _fault(where, f"file {path!r} beneath another file", "files in directories")


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _fault(where: str, found: str, expected: str) -> CorruptData:
    return CorruptData(f"{where} has {found}: expected {expected}; restore it from a backup")
