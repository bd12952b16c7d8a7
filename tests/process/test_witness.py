"""Real shards whose store has lost what was acknowledged: none of them serves as if nothing had happened."""

import shutil
import time

import httpx
import msgspec
import numpy as np
import pytest

from groundplane.wire.internal import (
    ChunkInput,
    DocumentPage,
    PutMemo,
    ReplaceDocument,
    ShardProblem,
    StoredMemo,
)
from groundplane.wire.public import Basis
from tests.support.processes import ShardProcess, running

pytestmark = pytest.mark.process


def memo(name: str) -> PutMemo:
    return PutMemo(name=name, fingerprint="f", response=b"1", basis=Basis(tenant=None, platform=None))


def document(doc_id: str) -> ReplaceDocument:
    chunk = ChunkInput(start=0, end=4, heading=None, vector=np.ones(8, dtype="<f4").tobytes())
    return ReplaceDocument(
        doc_id=doc_id, text="pump", title=None, uri=None, metadata=b"{}", chunker="test", chunks=(chunk,)
    )


def read(shard, client, path, kind, **parameters):
    """Return the answer of a GET of the shard."""
    answer = client.get(f"{shard.url}{path}", params=parameters, headers=shard.headers()).raise_for_status()
    return msgspec.msgpack.decode(answer.content, type=kind)


@pytest.fixture
def witness(tmp_path):
    return tmp_path / "witness" / "t-acme.json"


@pytest.fixture
def shard(tmp_path, witness):
    return ShardProcess(
        tmp_path, settings={"GROUNDPLANE_WITNESS_FILE": str(witness), "GROUNDPLANE_WITNESS_WRITE": "true"}
    )


@pytest.fixture
def client():
    with httpx.Client(timeout=10.0) as client:
        yield client


def write_and_stop(shard, client, *operations, loses_last=False):
    """Write each operation as a record of its own and stop in order; return the last sequence.

    loses_last: the store then forgets the last record and all that came after it, the snapshot of the stop among it.
    """
    root = shard.log_path.parent
    store = root / "store"
    with running(shard):
        sequence = [shard.write(client, operation).sequence for operation in operations][-1]
        shutil.copytree(store, root / "before")
        shard.stop()
    if loses_last:
        shutil.rmtree(store)
        (root / "before").rename(store)
        records(root)[-1].unlink()
    else:
        shutil.rmtree(root / "before")
    return sequence


def await_detail(shard, detail, seconds=20.0):
    """Return the problem that a request gets once /readyz says `detail`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if detail in httpx.get(f"{shard.url}/readyz").text:
                answer = httpx.get(f"{shard.url}/status", headers=shard.headers())
                return msgspec.msgpack.decode(answer.content, type=ShardProblem)
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise AssertionError(shard.log_path.read_text()[-4_000:])


def records(root):
    return sorted((root / "store").glob("t-acme/*/log/*"))


def audited(shard):
    lines = [msgspec.json.decode(line) for line in shard.log_path.read_bytes().splitlines() if line[:1] == b"{"]
    return [line for line in lines if line["event"] == "data_loss_accepted"]


def accepting(shard, sequence):
    """Let the next start of `shard` accept that its log ends at `sequence`."""
    shard._settings["GROUNDPLANE_ACCEPT_DATA_LOSS"] = str(sequence)


def test_a_log_without_its_tail_is_not_served(shard, client, tmp_path, witness):
    """I12: a store that lost its last objects looks whole; only what stands outside of it knows better."""
    last = write_and_stop(shard, client, memo("a"), memo("b"), loses_last=True)
    shard.start()
    try:
        problem = await_detail(shard, "behind_witness")
    finally:
        shard.kill()

    assert f"sequence {last - 1}" in problem.message
    assert f"expected at least epoch 1, sequence {last}" in problem.message
    assert "accept the loss" in problem.message
    assert msgspec.json.decode(witness.read_bytes()) == {"epoch": 1, "sequence": last}
    assert len(records(tmp_path)) == last - 1


def test_an_accepted_loss_stands_in_the_log_and_is_audited_once(shard, client, tmp_path, witness):
    """Going on is a person's decision; who looks at the corpus later must find it."""
    last = write_and_stop(shard, client, memo("a"), memo("b"), loses_last=True)
    accepting(shard, last - 1)
    with running(shard):
        found = [read(shard, client, "/memo", StoredMemo, name=name, fingerprint="f").response for name in ("a", "b")]
        shard.write(client, memo("c"))
        shard.stop()
    with running(shard):
        pass

    assert found == [b"1", None]
    assert [(line["accepted_sequence"], line["witness_sequence"]) for line in audited(shard)] == [(last - 1, last)]
    assert b'"witness_sequence":%d' % last in records(tmp_path)[last - 1].read_bytes()
    assert msgspec.json.decode(witness.read_bytes())["sequence"] > last


@pytest.mark.parametrize("off", [-1, 1])
def test_a_loss_that_is_not_named_exactly_is_not_accepted(shard, client, tmp_path, off):
    """A number that somebody guessed, or that was right yesterday, must not cost more than it names."""
    last = write_and_stop(shard, client, memo("a"), memo("b"), loses_last=True)
    accepting(shard, last - 1 + off)
    shard.start()
    try:
        problem = await_detail(shard, "behind_witness")
    finally:
        shard.kill()

    assert f"the loss accepted was that after {last - 1 + off}" in problem.message
    assert audited(shard) == []


def test_an_old_copy_of_the_whole_store_is_not_served(shard, client, tmp_path):
    """A restored backup of the bucket is consistent in itself and lacks what was acknowledged since."""
    old = write_and_stop(shard, client, document("a"))
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    new = write_and_stop(shard, client, document("b"))
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "backup").rename(tmp_path / "store")
    shard.start()
    try:
        problem = await_detail(shard, "behind_witness")
    finally:
        shard.kill()
    accepting(shard, old)
    with running(shard):
        page = read(shard, client, "/documents", DocumentPage)

    assert f"ends at epoch 1, sequence {old}" in problem.message
    assert f"expected at least epoch 2, sequence {new}" in problem.message
    assert [row.doc_id for row in page.documents] == ["a"]
    assert [line["accepted_sequence"] for line in audited(shard)] == [old]
