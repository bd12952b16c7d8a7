"""The witness stays outside the store, never goes back, and never stands in the way of a write."""

import asyncio
import stat

import pytest

from groundplane.errors import CorruptData, InvalidInput
from groundplane.tokens import SigningKey
from groundplane_shard.log import Epoch, Seq, Witness
from groundplane_shard.settings import read_shard_settings
from groundplane_shard.witness import WRITE_SECONDS, WitnessFile, write_witness
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.shard_parts import until


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t-acme" / "witness.json"


def at(epoch: int, sequence: int) -> Witness:
    return Witness(Epoch(epoch), Seq(sequence))


def read(path):
    return asyncio.run(WitnessFile(path).read())


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        pytest.param((1, 5), (1, 6), (1, 6), id="later"),
        pytest.param((1, 6), (1, 5), (1, 6), id="earlier-of-the-same-writer"),
        pytest.param((2, 6), (1, 9), (2, 6), id="superseded-writer"),
        pytest.param((2, 90), (3, 81), (3, 81), id="after-an-accepted-loss"),
    ],
)
def test_the_witness_never_goes_back(path, first, second, stands):
    """A superseded process that ends late must not hide what its successor wrote."""
    write_witness(path, at(*first))
    write_witness(path, at(*second))

    assert read(path) == at(*stands)


def test_the_witness_is_private_and_leaves_nothing_beside_it(path):
    """It tells how much a tenant writes; and a crash between two files would leave half a witness."""
    write_witness(path, at(1, 5))

    visible = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    assert visible == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{}", b'{"epoch": 1, "sequence": "x"}', b"\xff"])
def test_a_damaged_witness_is_not_read_as_none(path, content):
    """That would let a store that lost its writes pass."""
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(CorruptData) as raised:
        read(path)

    assert raised.value.code == "witness_damaged"


async def test_the_witness_is_written_at_once_every_ten_seconds_and_at_the_end(path):
    """I12: a kill hides at most ten seconds, an orderly stop nothing."""
    clock, witness, stands = VirtualClock(), WitnessFile(path, may_write=True), []
    durable = at(1, 1)
    async with witness.kept(lambda: durable, clock):
        await until(lambda: clock.sleeping == 1)
        stands.append(await witness.read())
        durable = at(1, 2)
        clock.advance(WRITE_SECONDS)
        await until(lambda: clock.sleeping == 1)
        stands.append(await witness.read())
        durable = at(1, 3)
        stands.append(await witness.read())
    stands.append(await witness.read())

    assert stands == [at(1, 1), at(1, 2), at(1, 2), at(1, 3)]


async def test_a_witness_that_cannot_be_written_ends_nothing(path):
    """Writes go on; the log says what is wrong."""
    path.parent.write_text("a file where the directory should be")
    async with WitnessFile(path, may_write=True).kept(lambda: at(1, 1), VirtualClock()):
        pass

    assert path.parent.is_file()


async def test_a_witness_that_belongs_to_the_operator_is_left_alone(path):
    """A mounted ConfigMap cannot be written, and has another author."""
    async with WitnessFile(path).kept(lambda: at(1, 1), VirtualClock()):
        pass

    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"GROUNDPLANE_WITNESS_WRITE": "true"}, "expected GROUNDPLANE_WITNESS_FILE", id="no-file"),
        pytest.param({"GROUNDPLANE_WITNESS_FILE": "/store/w.json"}, "lies in the store", id="in-the-store"),
        pytest.param({"GROUNDPLANE_WITNESS_FILE": "/cache/w.json"}, "emptied at every start", id="in-the-cache"),
    ],
)
def test_a_witness_that_could_not_testify_is_refused(variables, expected, tmp_path):
    """It must outlive both the store and the process."""
    key = SigningKey.generate()
    (tmp_path / f"router-{key.id}.pem").write_bytes(key.public_pem())
    settings = {
        "GROUNDPLANE_CORPUS_KEY": "t-acme",
        "GROUNDPLANE_INCARNATION": "00000000-0000-4000-8000-00000000000a",
        "GROUNDPLANE_WORK_DIRECTORY": "/cache",
        "GROUNDPLANE_KEYS_DIRECTORY": str(tmp_path),
        "GROUNDPLANE_STORE_DIRECTORY": "/store",
    }

    with pytest.raises(InvalidInput, match=expected):
        read_shard_settings({**settings, **variables})
