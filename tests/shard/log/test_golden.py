"""Stored corpora stay readable for ever: one that format version 1 left behind, read by the product and by a second decoder.

`golden/` is the whole store of one small corpus: two writers and a third that accepted a loss, a snapshot, operations of
every kind. Its files are never made again: a change that cannot read them needs a new format version and reads both.
The second decoder is written from docs/format.md alone and shares nothing with the product.
"""

import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import lancedb
import msgspec
import pyarrow as pa
import pytest

from groundplane_shard import inspection
from groundplane_shard.log import Kind, Layout
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import override as override_codec
from groundplane_shard.log import record as record_codec
from groundplane_shard.log.record import Position
from groundplane_shard.payload import decode as decode_payload
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredMemoDelete
from groundplane_shard.statistics import read_statistics
from groundplane_shard.stores import LocalStore, run
from tests.shard.shard_parts import INCARNATION, LAYOUT, make_shard, running
from tests.support.no_effects import NoEffects

GOLDEN = Path(__file__).parent / "golden"
PREFIX = GOLDEN / LAYOUT.prefix
RECORDS = sorted((PREFIX / "log").iterdir())

# What was written, by sequence: kind of the record, its epoch, its operations.
WRITTEN: dict[int, tuple[int, int, list[tuple[Any, ...]]]] = {
    1: (2, 1, []),
    2: (1, 1, [("replace", "pump", ["The pump hums.", "Café water 泵站."]), ("replace", "valve", ["A valve."])]),
    3: (1, 1, [("put memo", "greeting", b"2")]),
    4: (1, 1, [("delete", "valve")]),
    5: (2, 2, []),
    6: (1, 2, [("replace", "pump", ["The pump stopped."]), ("delete memo", "greeting")]),
    7: (4, 8, []),
}
LOSS = {"accepted_sequence": 6, "witness_epoch": 7, "witness_sequence": 94}


# -- the second decoder


def read_record(data: bytes, previous: bytes) -> tuple[int, int, int, bytes, bytes]:
    """Return kind, epoch, sequence, payload and digest of a log record."""
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    assert data[:4] == b"GPLR"
    version, kind, suite = struct.unpack(">HBB", data[4:8])
    epoch, sequence = struct.unpack(">QQ", data[8:24])
    (length,) = struct.unpack(">Q", data[136:144])
    assert (version, suite, data[88:136]) == (1, 0, bytes(48))
    assert data[24:40].hex() == INCARNATION.replace("-", "")
    assert data[56:88] == previous
    assert len(data) == 144 + length + 32
    return kind, epoch, sequence, data[144:-32], data[-32:]


def read_operations(payload: bytes) -> list[tuple[Any, ...]]:
    """Return the operations of a batch's payload, as `WRITTEN` has them."""
    operations: list[tuple[Any, ...]] = []
    for row in pa.ipc.open_stream(payload).read_all().to_pylist():
        match row["kind"]:
            case 0:
                operations.append(("replace", row["key"], [chunk["text"] for chunk in row["chunks"]]))
            case 1:
                operations.append(("delete", row["key"]))
            case 2:
                operations.append(("put memo", row["key"], row["body"]))
            case 3:
                operations.append(("delete memo", row["key"]))
    return operations


def read_manifest(data: bytes) -> dict[str, Any]:
    """Return the inner document of MANIFEST, its bytes checked against the digest beside it."""
    start, end = data.index(b":") + 1, data.rindex(b',"sha256":')
    manifest: dict[str, Any] = json.loads(data[start:end])
    assert hashlib.sha256(data[start:end]).hexdigest() == json.loads(data)["sha256"]
    return manifest


def read_chain() -> dict[int, tuple[int, int, bytes]]:
    """Return kind, epoch and payload of every log record by its sequence, the chain of digests checked."""
    chain, previous = {}, bytes(32)
    for path in RECORDS:
        kind, epoch, sequence, payload, previous = read_record(path.read_bytes(), previous)
        assert path.name == f"{sequence:020d}"
        chain[sequence] = (kind, epoch, payload)
    return chain


# -- both decoders


def plain(operation: object) -> tuple[Any, ...]:
    """Return an operation of the product as `WRITTEN` has it."""
    match operation:
        case StoredDocument():
            return ("replace", operation.doc_id, [chunk.text for chunk in operation.chunks])
        case StoredDelete():
            return ("delete", operation.doc_id)
        case StoredMemo():
            return ("put memo", operation.name, operation.response)
        case StoredMemoDelete():
            return ("delete memo", operation.name)
    raise TypeError(operation)


def test_the_second_decoder_reads_every_record():
    """The format is what its document says, not what one program does."""
    found = {
        sequence: (kind, epoch, read_operations(payload) if kind == Kind.BATCH else [])
        for sequence, (kind, epoch, payload) in read_chain().items()
    }

    assert found == WRITTEN
    assert json.loads(read_chain()[7][2]) == LOSS


def test_the_product_reads_every_record():
    """A log may be older than the software that restores it."""
    here, found = Position(), {}
    for path in RECORDS:
        incarnation = bytes.fromhex(INCARNATION.replace("-", ""))
        read = record_codec.decode(path.read_bytes(), key=path.name, incarnation=incarnation, after=here)
        here, record = read.position, read.record
        operations = [] if record.kind.is_barrier else list(map(plain, decode_payload(record.payload, None)))
        found[int(record.sequence)] = (int(record.kind), int(record.epoch), operations)

    assert found == WRITTEN
    assert msgspec.to_builtins(override_codec.decode(read.record.payload, key="golden")) == LOSS


def test_both_decoders_read_the_same_manifest():
    """Every field of it, and the second one finds every file that it lists."""
    data = (PREFIX / "MANIFEST").read_bytes()
    manifest = read_manifest(data)

    assert json.loads(msgspec.json.encode(manifest_codec.decode(data, key="MANIFEST"))) == manifest
    assert (manifest["counter"], manifest["epoch"], manifest["log_floor"]) == (7, 8, 0)
    for file in manifest["snapshots"][0]["files"]:
        stored = (PREFIX / file["key"]).read_bytes()
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file["size"], file["sha256"])


def test_the_snapshot_is_labelled_with_the_record_that_it_ends_with():
    """Whoever restores goes on with the record behind it."""
    (snapshot,) = read_manifest((PREFIX / "MANIFEST").read_bytes())["snapshots"]

    assert (snapshot["sequence"], snapshot["epoch"]) == (3, 1)
    assert snapshot["digest"] == RECORDS[2].read_bytes()[-32:].hex()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Give a directory with the snapshot's files under the paths that MANIFEST names."""
    for file in read_manifest((PREFIX / "MANIFEST").read_bytes())["snapshots"][0]["files"]:
        target = tmp_path / "table" / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PREFIX / file["key"], target)
    return tmp_path / "table"


def test_both_decoders_read_the_statistics(table):
    """A start does not count what a flush has counted."""
    data = (table / "statistics").read_bytes()
    body = msgspec.msgpack.decode(data[32:])

    assert hashlib.sha256(data[32:]).digest() == data[:32]
    since_then = {"embedding_id": None, "generation": 0}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(read_statistics(table))) == {**body, **since_then}
    assert (body["format"], body["sequence"], body["dimension"]) == (1, 3, 3)
    assert body["totals"] == [2, 3, 9]


def test_plain_lancedb_opens_the_snapshot(table):
    """Nobody needs this software to get at a corpus."""
    rows = lancedb.connect(table).open_table("chunks").to_arrow()
    texts = sorted(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), rows["sequence"].to_pylist(), strict=True))

    assert texts == [("pump#0", "The pump hums.", 2), ("pump#1", "Café water 泵站.", 2), ("valve#0", "A valve.", 2)]


async def test_a_shard_opens_the_corpus_and_writes_on(tmp_path):
    """The whole: snapshot, log behind it, take-over, with everything that was acknowledged and no memo that was deleted."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    store = LocalStore(tmp_path / "store")
    shard = make_shard(store, tmp_path / "work")
    async with running(shard):
        page = await shard.documents("", 10)
        pump = await shard.document("pump")
        memo, status = shard.memo("greeting", "f"), shard.status()
    store.close()

    assert [row.doc_id for row in page.documents] == ["pump"]
    assert pump.text == "The pump stopped."
    assert memo.response is None
    assert (status.sequence, status.epoch) == (8, 9)


async def test_nothing_is_wrong_with_the_corpus(tmp_path):
    """The check of every byte that users run."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    store = LocalStore(tmp_path / "store")
    layout = Layout(LAYOUT.corpus_key, LAYOUT.incarnation)
    found = await run(inspection.verify(layout), store, NoEffects())
    store.close()

    assert found.faults == ()
