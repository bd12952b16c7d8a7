"""The bytes of a log record: what they keep, and that nothing wrong is read from them."""

import hashlib
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import CorruptData, InvalidInput
from groundplane_shard.log import Epoch, Kind, Position, Record, Seq
from groundplane_shard.log.record import FORMAT_VERSION, decode, decode_unchained, encode

INCARNATION = UUID("00000000-0000-4000-8000-00000000000a").bytes
KEY = "t-acme/log/00000000000000000042"
BEFORE = Position(Seq(41), Epoch(6), hashlib.sha256(b"before").digest())
RECORD = Record(
    kind=Kind.BATCH,
    epoch=Epoch(7),
    sequence=Seq(42),
    incarnation=INCARNATION,
    previous=BEFORE.digest,
    embedding_id=bytes(range(16)),
    payload=b"opaque",
)
records = st.builds(
    Record,
    kind=st.sampled_from(Kind),
    epoch=st.integers(1, 2**64 - 1),
    sequence=st.integers(1, 2**64 - 1),
    incarnation=st.binary(min_size=16, max_size=16),
    previous=st.binary(min_size=32, max_size=32),
    embedding_id=st.binary(min_size=16, max_size=16),
    payload=st.binary(max_size=300),
)


def resealed(data: bytes) -> bytes:
    """Return the record with a right digest over changed bytes, as a writer of another version would store it."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@given(records)
def test_record_survives_the_round_trip(record):
    """What is read back is what was acknowledged, whatever the payload holds."""
    assert decode_unchained(encode(record).data, key=KEY).record == record


@given(records)
def test_equal_records_have_equal_bytes(record):
    """An unknown outcome is settled by comparing bytes, so a retry must send the same ones."""
    assert encode(record).data == encode(msgspec.structs.replace(record)).data


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_found(bit):
    """Disks flip bits; not one of them may be read as data or as the end of the log."""
    data = encode(RECORD).data
    for offset in range(len(data)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << bit
        with pytest.raises(CorruptData):
            decode(bytes(flipped), key=KEY, incarnation=INCARNATION, after=BEFORE)


@given(st.integers(0, len(encode(RECORD).data) - 1))
def test_every_cut_is_found(length):
    """An answer that ends early is damage, not a shorter record."""
    with pytest.raises(CorruptData):
        decode(encode(RECORD).data[:length], key=KEY, incarnation=INCARNATION, after=BEFORE)


def test_length_that_contradicts_the_payload_is_refused():
    """A right digest over a wrong length is software's fault, and must not shorten a batch."""
    data = bytearray(encode(RECORD).data)
    data[143] += 1

    with pytest.raises(CorruptData, match="expected 7"):
        decode_unchained(resealed(bytes(data)), key=KEY)


@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused(data):
    """An error document or anything else under a log key is never taken for a record."""
    with pytest.raises(CorruptData):
        decode_unchained(data, key=KEY)


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        pytest.param({"sequence": Seq(43)}, "sequence 43", "expected 42", id="swapped"),
        pytest.param({"epoch": Epoch(5)}, "epoch 5 after epoch 6", "expected 6 or more", id="epoch-falls"),
        pytest.param({"previous": bytes(32)}, f"predecessor {bytes(32).hex()}", BEFORE.digest.hex(), id="predecessor"),
        pytest.param(
            {"incarnation": bytes(16)}, f"incarnation {UUID(int=0)}", str(UUID(bytes=INCARNATION)), id="foreign"
        ),
    ],
)
def test_record_in_the_wrong_place_is_refused_with_what_was_found(change, found, expected):
    """A sound record of another place, time or tenant must not be applied; the text tells the operator which it is."""
    data = encode(msgspec.structs.replace(RECORD, **change)).data

    with pytest.raises(CorruptData) as refusal:
        decode(data, key=KEY, incarnation=INCARNATION, after=BEFORE)
    assert all(part in refusal.value.message for part in (KEY, found, expected))


def test_unknown_format_version_is_refused_naming_both():
    """A newer format may mean anything; the operator must learn that newer software is needed, not a restore."""
    data = encode(RECORD).data
    newer = resealed(data[:4] + (FORMAT_VERSION + 1).to_bytes(2, "big") + data[6:])

    with pytest.raises(
        CorruptData, match=f"version {FORMAT_VERSION + 1}: this software reads version {FORMAT_VERSION}"
    ) as refusal:
        decode_unchained(newer, key=KEY)
    assert refusal.value.code == "unsupported_format"


@pytest.mark.parametrize(("offset", "value"), [(6, 5), (6, 0), (7, 1)], ids=["later", "none", "cipher"])
def test_kind_or_cipher_of_later_software_is_refused(offset, value):
    """A record that this software cannot apply must stop it, not be skipped."""
    data = bytearray(encode(RECORD).data)
    data[offset] = value

    with pytest.raises(CorruptData) as refusal:
        decode_unchained(resealed(bytes(data)), key=KEY)
    assert refusal.value.code == "unsupported_format"


@pytest.mark.parametrize(
    "change",
    [{"sequence": 0}, {"epoch": 0}, {"incarnation": b"short"}, {"previous": b""}, {"embedding_id": bytes(17)}],
    ids=lambda change: next(iter(change)),
)
def test_field_that_does_not_fit_is_refused(change):
    """struct would pad or cut it without a word."""
    with pytest.raises(InvalidInput):
        encode(msgspec.structs.replace(RECORD, **change))


def test_stored_bytes_of_version_1_stay_readable():
    """Logs outlive software: this vector was made once and must be read for ever."""
    vector = (
        bytes.fromhex(
            "47504c52000101000000000000000007000000000000002a000000000000400080000000000000"
            "0a000102030405060708090a0b0c0d0e0f"
        )
        + BEFORE.digest
        + bytes(16)
        + bytes(32)
        + (6).to_bytes(8, "big")
        + b"opaque"
    )

    found = decode(vector + hashlib.sha256(vector).digest(), key=KEY, incarnation=INCARNATION, after=BEFORE)
    assert found.record == RECORD
