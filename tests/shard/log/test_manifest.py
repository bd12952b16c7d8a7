"""The bytes of MANIFEST, and the entries that are refused because they would do harm."""

import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import CorruptData
from groundplane_shard.log import Epoch, Manifest, Seq, Snapshot, SnapshotFile
from groundplane_shard.log.manifest import FormatVersions, decode, encode

UPLOAD = "00000000000000000001-00c0ffee"
HEX = "ab" * 32
KEY = "t-acme/MANIFEST"


def listing(path: str = "part-0", **changes: object) -> SnapshotFile:
    """Return a file entry as a writer makes it, with changes."""
    entry = SnapshotFile(path=path, key=f"snapshots/{UPLOAD}/{path}", size=3, sha256=HEX)
    return msgspec.structs.replace(entry, **changes)


def snapshot(sequence: int, *files: SnapshotFile) -> Snapshot:
    """Return a snapshot entry."""
    return Snapshot(upload_id=UPLOAD, sequence=Seq(sequence), epoch=Epoch(1), digest=HEX, files=files)


def manifest(*snapshots: Snapshot, **changes: object) -> Manifest:
    """Return a MANIFEST as a writer makes it, with changes."""
    plain = Manifest(
        corpus_key="t-acme", incarnation="i", owner="o", counter=3, epoch=Epoch(1), writer_id="w", snapshots=snapshots
    )
    return msgspec.structs.replace(plain, **changes)


ids = st.text("abcdefghij0123456789-", min_size=1, max_size=12)
manifests = st.builds(
    manifest,
    counter=st.integers(1, 2**62),
    epoch=st.integers(0, 2**62),
    owner=st.text(max_size=20),
    barriers=st.lists(st.integers(1, 2**62), unique=True, max_size=5).map(tuple),
    embeddings=st.lists(st.fixed_dictionaries({"id": ids, "probes": st.lists(st.integers(-9, 9))}), max_size=2).map(
        tuple
    ),
    analyser_id=st.none() | ids,
    snapshots=st.lists(st.integers(1, 2**62), unique=True, max_size=3).map(
        lambda found: tuple(snapshot(sequence, listing()) for sequence in sorted(found))
    ),
)


@given(manifests)
def test_manifest_survives_the_round_trip(found):
    """What a take-over reads is what the writer before it stored."""
    assert decode(encode(found), key=KEY) == found


def test_manifest_is_plain_json():
    """An operator must be able to read it with any tool."""
    document = json.loads(encode(manifest(snapshot(7, listing()))))

    assert document["manifest"]["snapshots"][0]["files"][0]["path"] == "part-0"


def test_every_flipped_bit_is_found():
    """A flipped digit in a sequence or a size is still JSON: only the checksum tells."""
    data = encode(manifest(snapshot(7, listing())))
    for offset in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << bit
            with pytest.raises(CorruptData, match=KEY):
                decode(bytes(flipped), key=KEY)


def test_unknown_field_is_refused():
    """A field of later software may carry a duty that this one would not fulfil."""
    body = msgspec.json.encode({**msgspec.to_builtins(manifest()), "fence": 1})

    with pytest.raises(CorruptData, match="fence"):
        decode(sealed(body), key=KEY)


def test_unknown_format_version_is_refused_naming_both():
    """The repair is other software, not a restore; an unknown field must not hide that."""
    body = msgspec.json.encode({**msgspec.to_builtins(manifest(formats=FormatVersions(manifest=2))), "fence": 1})

    with pytest.raises(CorruptData, match="manifest 2, record 1: this software reads manifest 1, record 1") as refusal:
        decode(sealed(body), key=KEY)
    assert refusal.value.code == "unsupported_format"


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "a/",
        "",
        ".",
        "a/./b",
        "a\\b",
        "a\0b",
        "a b",
        "é",
        "x" * 256,
        "a/" * 400 + "a",
    ],
)
def test_path_that_could_leave_the_directory_is_refused(path):
    """A snapshot index is foreign data: it must not make the shard write anywhere else."""
    data = encode(manifest(snapshot(7, listing(path))))

    with pytest.raises(CorruptData, match="path"):
        decode(data, key=KEY)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param((listing("a"), listing("a")), id="path-twice"),
        pytest.param((listing("a"), listing("a/b")), id="file-beneath-a-file"),
        pytest.param((listing("a", key="log/00000000000000000001"),), id="key-of-a-log-record"),
        pytest.param((listing("a", key=f"snapshots/{UPLOAD}/b"),), id="key-of-another-path"),
        pytest.param((listing("a", key="snapshots/../a"),), id="key-outside"),
        pytest.param((listing("a", size=-1),), id="negative-size"),
        pytest.param((listing("a", sha256="AB" * 32),), id="digest-not-lower-hex"),
    ],
)
def test_file_entry_that_no_writer_makes_is_refused(files):
    """Each of these would overwrite, confuse or misread a file at restore."""
    data = encode(manifest(snapshot(7, *files)))

    with pytest.raises(CorruptData):
        decode(data, key=KEY)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(manifest(snapshot(7), snapshot(7)), id="snapshots-not-ascending"),
        pytest.param(manifest(snapshot(7), log_floor=Seq(8)), id="floor-above-the-oldest"),
        pytest.param(manifest(log_floor=Seq(1)), id="floor-without-a-snapshot"),
        pytest.param(manifest(counter=0), id="counter-zero"),
        pytest.param(manifest(epoch=Epoch(-1)), id="epoch-negative"),
        pytest.param(manifest(msgspec.structs.replace(snapshot(7), upload_id="x")), id="upload-id"),
        pytest.param(manifest(msgspec.structs.replace(snapshot(7), digest="")), id="digest"),
        pytest.param(manifest(snapshot(0)), id="sequence-zero"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(wrong):
    """The checksum is right, so software wrote it: the fault must be named where it is read."""
    with pytest.raises(CorruptData, match=KEY):
        decode(encode(wrong), key=KEY)


def sealed(body: bytes) -> bytes:
    """Return MANIFEST with this inner object and the right checksum."""
    return b'{"manifest":' + body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'
