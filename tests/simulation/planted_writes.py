"""Faults planted into creating, appending and reading records."""

from typing import Any
from unittest.mock import patch

import msgspec

from groundplane.errors import CorruptData, OutcomeUnknown, Unavailable
from groundplane_shard.log import Committed, Kind, Layout, Replica, Writer, steps
from groundplane_shard.log import operations as ops
from groundplane_shard.log import record as codec
from groundplane_shard.log.record import Encoded, Position
from tests.simulation.planting import Plant

_create = steps.create
_decode = codec.decode
_decode_unchained = codec.decode_unchained


def _create_412_means_lost(key: str, data: bytes) -> ops.Steps[bytes | None]:
    for _ in range(steps.MAX_TRIES):
        result = yield ops.Create(key, data)
        if isinstance(result, ops.Stored):
            return None
        if isinstance(result, ops.PreconditionFailed):
            raise Unavailable("the key exists: the write is lost")
    raise OutcomeUnknown("tries are used up")


def _create_412_means_stored(key: str, data: bytes) -> ops.Steps[bytes | None]:
    for _ in range(steps.MAX_TRIES):
        if isinstance((yield ops.Create(key, data)), ops.Stored | ops.PreconditionFailed):
            return None
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


def _create_conflict_means_stored(key: str, data: bytes) -> ops.Steps[bytes | None]:
    result = yield ops.Create(key, data)
    if isinstance(result, ops.Stored | ops.Conflict):
        return None
    return (yield from _create(key, data))


def _create_retries_with_other_bytes(key: str, data: bytes) -> ops.Steps[bytes | None]:
    result = yield ops.Create(key, data)
    if isinstance(result, ops.Stored) or "/log/" not in key:
        return (yield from _create(key, data)) if "/log/" not in key else None
    found = yield from steps.get(key)
    if isinstance(found, ops.Found):
        return None if found.data == data else found.data
    record = _decode_unchained(data, key=key).record
    other = codec.encode(msgspec.structs.replace(record, embedding_id=bytes([1]) * 16))
    return (yield from _create(key, other.data))


def _append_without_waiting(self: Writer, payload: bytes, *, embedding_id: bytes = bytes(16)) -> ops.Steps[Any]:
    batch = self._next_record(Kind.BATCH, payload, embedding_id)
    result = yield ops.Create(self._layout.record(batch.record.sequence), batch.data)
    if isinstance(result, ops.Unknown):
        self.position = batch.position  # the next record is sent whatever became of this one
        raise OutcomeUnknown("not waited for")
    if not isinstance(result, ops.Stored):
        raise Unavailable("not stored")
    yield ops.Apply(batch.record, batch.position)
    self.position = batch.position
    return Committed(batch.record.sequence, batch.position.digest)


def _append_acknowledged_before_apply(
    self: Writer, payload: bytes, *, embedding_id: bytes = bytes(16)
) -> ops.Steps[Any]:
    batch = self._next_record(Kind.BATCH, payload, embedding_id)
    yield from self._store(batch)
    self.position = batch.position
    return Committed(batch.record.sequence, batch.position.digest)


def _unknown_reported_as_failed(key: str, reason: str, *, is_uncertain: bool) -> Unavailable:
    return Unavailable(f"{key}: {reason}, {is_uncertain}")


def _next_record_or_a_later_one(self: Replica) -> ops.Steps[Encoded | None]:
    found = yield from steps.get(self._layout.record(self.position.next_sequence))
    if isinstance(found, ops.Absent):
        page = yield from steps.list_page(self._layout.log, self._layout.record(self.position.sequence))
        found = (yield from steps.get(page.keys[0])) if page.keys else found
    return _decode_unchained(found.data, key="log") if isinstance(found, ops.Found) else None


def _decode_of_any_incarnation(data: bytes, *, key: str, incarnation: bytes, after: Position) -> Encoded:
    record = _decode_unchained(data, key=key).record
    return _decode(data, key=key, incarnation=record.incarnation, after=after)


def _decode_without_checksum(data: bytes, *, key: str) -> Encoded:
    try:
        return _decode_unchained(data, key=key)
    except CorruptData:
        header, payload, digest = data[: codec._HEADER.size], data[codec._HEADER.size : -32], data[-32:]
        if len(data) < codec._HEADER.size + 32 or data[:7] not in (b"GPLR\x00\x01\x01", b"GPLR\x00\x01\x02"):
            raise
        _, _, kind, _, epoch, sequence, incarnation, embedding, previous, _, _, _ = codec._HEADER.unpack(header)
        record = codec.Record(
            kind=codec.Kind(kind),
            epoch=epoch,
            sequence=sequence,
            incarnation=incarnation,
            previous=previous,
            embedding_id=embedding,
            payload=payload,
        )
        return Encoded(record, data, Position(sequence, epoch, digest))


def _position_never_collected(self: Replica) -> bool:
    return False


def _key_of_any_length(self: Layout, sequence: int) -> str:
    return f"{self.prefix}log/{sequence}"


WRITES: dict[str, Plant] = {
    "412-taken-as-lost": lambda: patch.object(steps, "create", _create_412_means_lost),
    "412-taken-as-stored": lambda: patch.object(steps, "create", _create_412_means_stored),
    "absent-taken-as-failed": lambda: patch.object(steps, "create", _create_absent_means_failed),
    "unknown-taken-as-stored": lambda: patch.object(steps, "create", _create_unknown_means_stored),
    "unknown-reported-as-failed": lambda: patch.object(steps, "not_settled", _unknown_reported_as_failed),
    "409-taken-as-stored": lambda: patch.object(steps, "create", _create_conflict_means_stored),
    "retry-with-other-bytes": lambda: patch.object(steps, "create", _create_retries_with_other_bytes),
    "two-puts-in-flight": lambda: patch.object(Writer, "append", _append_without_waiting),
    "acknowledged-before-apply": lambda: patch.object(Writer, "append", _append_acknowledged_before_apply),
    "gap-skipped": lambda: patch.object(Replica, "next_record", _next_record_or_a_later_one),
    "incarnation-not-checked": lambda: patch.object(codec, "decode", _decode_of_any_incarnation),
    "checksum-not-checked": lambda: patch.object(codec, "decode_unchained", _decode_without_checksum),
    "collected-place-taken-as-the-end": lambda: patch.object(Replica, "_is_off_log", _position_never_collected),
    "record-names-not-padded": lambda: patch.object(Layout, "record", _key_of_any_length),
}
