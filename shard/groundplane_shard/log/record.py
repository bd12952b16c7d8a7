"""The log record: one object of the log: one batch of operations, one barrier, one switch or one override.

Layout, format version 1, big-endian:

    offset  size  field
         0     4  magic "GPLR"
         4     2  format version
         6     1  kind: 1 batch, 2 barrier, 3 switch (a step of a change of the embedding; its payload belongs to the
                  shard), 4 override (a barrier that says which loss was accepted, see `override`)
         7     1  cipher suite: 0 none
         8     8  epoch of the writer
        16     8  sequence, 1 is the first
        24    16  incarnation (UUID)
        40    16  embedding id, zero = none
        56    32  digest of the previous record, zero before the first
        88    16  key id, zero = none
       104    32  salt, zero without a cipher
       136     8  payload length
       144     n  payload, opaque here
     144+n    32  SHA-256 of everything before it: the record's digest

Invariants: a record is checked whole before any of it is used (I11); its place (incarnation, sequence) and its
predecessor (digest, epoch that does not fall: I5) are part of the check, so a record that was flipped, cut, swapped,
taken from another corpus, or follows a missing one is found. Equal records have equal bytes, so that a retry sends the
same object (I4). Errors: `CorruptData`, with code `unsupported_format` where another version of the software wrote it.
"""

import enum
import hashlib
import struct
from uuid import UUID

import msgspec

from groundplane.errors import CorruptData, InvalidInput
from groundplane_shard.log.layout import Epoch, Seq

FORMAT_VERSION = 1
NO_EMBEDDING = bytes(16)
_MAGIC = b"GPLR"
_HEADER = struct.Struct(">4sHBBQQ16s16s32s16s32sQ")
_DIGEST_BYTES = 32
_NO_KEY = bytes(16)
_NO_SALT = bytes(32)
_MAX_U64 = 2**64 - 1


class Kind(enum.IntEnum):
    """What a record is. The numbers are part of the format."""

    BATCH = 1
    BARRIER = 2
    SWITCH = 3
    OVERRIDE = 4

    @property
    def is_barrier(self) -> bool:
        """Whether a take-over placed it: it shuts older writers out, holds no operations and is never deleted."""
        return self in (Kind.BARRIER, Kind.OVERRIDE)


_KINDS = frozenset(Kind)


class Position(msgspec.Struct, frozen=True):
    """A place in the log: the last record that a state holds. The beginning is sequence 0, epoch 0, digest zero."""

    sequence: Seq = Seq(0)
    epoch: Epoch = Epoch(0)
    digest: bytes = bytes(_DIGEST_BYTES)

    @property
    def next_sequence(self) -> Seq:
        """Sequence of the record that comes after."""
        return Seq(self.sequence + 1)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One log record. `previous` is the digest of the record before it."""

    kind: Kind
    epoch: Epoch
    sequence: Seq
    incarnation: bytes
    previous: bytes
    embedding_id: bytes = NO_EMBEDDING
    payload: bytes = b""


class Encoded(msgspec.Struct, frozen=True):
    """A record, its bytes as stored, and the position that holds it as the last record."""

    record: Record
    data: bytes
    position: Position


def encode(record: Record) -> Encoded:
    """Return the record's bytes. Raises InvalidInput for a field that does not fit its place in the header."""
    _check_fields(record)
    header = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        record.kind,
        0,
        record.epoch,
        record.sequence,
        record.incarnation,
        record.embedding_id,
        record.previous,
        _NO_KEY,
        _NO_SALT,
        len(record.payload),
    )
    body = header + record.payload
    digest = hashlib.sha256(body).digest()
    return Encoded(record, body + digest, Position(record.sequence, record.epoch, digest))


def decode(data: bytes, *, key: str, incarnation: bytes, after: Position) -> Encoded:
    """Return the record stored under `key`, which must be the one that follows `after` in this incarnation's log.

    Raises CorruptData that names the key, what was found and what was expected; nothing of a faulty record is returned.
    """
    found = decode_unchained(data, key=key)
    record = found.record
    if record.incarnation != incarnation:
        raise _fault(key, f"incarnation {UUID(bytes=record.incarnation)}", str(UUID(bytes=incarnation)))
    if record.sequence != after.next_sequence:
        raise _fault(key, f"sequence {record.sequence}", str(after.next_sequence))
    if record.epoch < after.epoch:
        raise _fault(key, f"epoch {record.epoch} after epoch {after.epoch}", f"{after.epoch} or more")
    if record.previous != after.digest:
        raise _fault(key, f"predecessor {record.previous.hex()}", after.digest.hex())
    return found


def decode_unchained(data: bytes, *, key: str) -> Encoded:
    """Return the record in `data` after checking its bytes, but not its place in the log. Raises CorruptData."""
    version = _read_version(data, key)
    if version != FORMAT_VERSION:
        raise CorruptData(
            f"log record {key} has format version {version}: this software reads version {FORMAT_VERSION}; use the software that wrote it",
            code="unsupported_format",
        )
    if len(data) < _HEADER.size + _DIGEST_BYTES:
        raise _fault(key, f"{len(data)} bytes", f"at least {_HEADER.size + _DIGEST_BYTES}")
    digest = hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest()
    if digest != data[-_DIGEST_BYTES:]:
        raise _fault(key, f"sha256 {digest.hex()}", data[-_DIGEST_BYTES:].hex())
    _, _, kind, suite, epoch, sequence, incarnation, embedding, previous, _, _, length = _HEADER.unpack_from(data)
    if kind not in _KINDS or suite != 0:
        raise CorruptData(
            f"log record {key} has kind {kind} and cipher suite {suite}: this software reads kinds 1 to 4 with suite 0; use the software that wrote it",
            code="unsupported_format",
        )
    payload = data[_HEADER.size : -_DIGEST_BYTES]
    if length != len(payload):
        raise _fault(key, f"{len(payload)} bytes of payload", str(length))
    record = Record(
        kind=Kind(kind),
        epoch=epoch,
        sequence=sequence,
        incarnation=incarnation,
        previous=previous,
        embedding_id=embedding,
        payload=payload,
    )
    return Encoded(record, data, Position(record.sequence, record.epoch, digest))


def _read_version(data: bytes, key: str) -> int:
    if data[:4] != _MAGIC or len(data) < 6:
        raise _fault(key, f"first bytes {data[:4].hex()!r}", _MAGIC.hex())
    return int.from_bytes(data[4:6], "big")


def _check_fields(record: Record) -> None:
    sizes = {"incarnation": 16, "embedding_id": 16, "previous": _DIGEST_BYTES}
    for name, size in sizes.items():
        found = len(getattr(record, name))
        if found != size:
            raise InvalidInput(f"{name} of a log record has {found} bytes: expected {size}", field=name)
    if not (1 <= record.sequence <= _MAX_U64 and 1 <= record.epoch <= _MAX_U64):
        raise InvalidInput(f"log record with sequence {record.sequence} and epoch {record.epoch}: expected 1 or more")


def _fault(key: str, found: str, expected: str) -> CorruptData:
    return CorruptData(f"log record {key} has {found}: expected {expected}; restore from a snapshot or from a backup")
