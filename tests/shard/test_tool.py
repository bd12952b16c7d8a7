"""The shard's tool: a corpus is restored into a new incarnation as it was, or nothing is written at all."""

import asyncio
import shutil
import uuid
from contextlib import closing

import msgspec
import pytest

from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Epoch, Identity, Layout, Replica, Seq, Witness
from groundplane_shard.service import Shard
from groundplane_shard.stores import LocalStore
from groundplane_shard.tool import main
from groundplane_shard.witness import write_witness
from tests.shard.shard_parts import INCARNATION, LAYOUT, delete, document, memo, parts, running, write_request

TARGET = str(uuid.UUID(int=9))


async def nothing(_serving):
    return None


def shard_of(store, incarnation, directory):
    layout = Layout(LAYOUT.corpus_key, incarnation)
    replica = Replica(Identity(layout=layout, owner=incarnation, writer_id=str(uuid.uuid4())))
    return Shard(parts(layout=layout), replica, store, LocalState(store, layout, directory, 1 << 30), directory)


async def write_history(store, directory):
    """Write two records into a snapshot and two behind it; return the sequence of each. The end is a kill."""
    shard = shard_of(store, INCARNATION, directory)
    shard._publish_at_stop = nothing
    async with running(shard):
        done = [
            await shard.write(write_request(document("a"), memo("m"))),
            await shard.write(write_request(document("b"))),
        ]
        await shard.snapshot()
        done += [await shard.write(write_request(document("c"))), await shard.write(write_request(delete("a")))]
    return [each.sequence for each in done]


@pytest.fixture
def history(tmp_path):
    with closing(LocalStore(tmp_path / "store")) as store:
        return asyncio.run(write_history(store, tmp_path / "work"))


@pytest.fixture
def tool(tmp_path, capsys):
    """Run the tool on the target; return exit code, what it wrote to stdout, decoded, and stderr."""

    def call(*arguments, incarnation=TARGET, **variables):
        environment = {
            "GROUNDPLANE_CORPUS_KEY": LAYOUT.corpus_key,
            "GROUNDPLANE_INCARNATION": incarnation,
            "GROUNDPLANE_STORE_DIRECTORY": str(tmp_path / "store"),
            "GROUNDPLANE_WORK_DIRECTORY": str(tmp_path / "restoring"),
        }
        code = main(arguments, {**environment, **variables})
        out, err = capsys.readouterr()
        return code, msgspec.json.decode(out) if out else None, err

    return call


def contents(tmp_path, incarnation):
    """Open an incarnation as its shard does; return its document ids, and whether its memo is there."""

    async def ask(store):
        shard = shard_of(store, incarnation, tmp_path / "reading")
        async with running(shard):
            page = await shard.documents("", 100)
            return [row.doc_id for row in page.documents], shard.memo("m", "f").response is not None

    with closing(LocalStore(tmp_path / "store")) as store:
        return asyncio.run(ask(store))


async def write_on(tmp_path, incarnation):
    """Open an incarnation, which is made if there is none, and write a document."""
    with closing(LocalStore(tmp_path / "store")) as store:
        shard = shard_of(store, incarnation, tmp_path / "writing")
        async with running(shard):
            request = write_request(document("z"))
            await shard.write(msgspec.structs.replace(request, incarnation=incarnation))


def objects(tmp_path, incarnation):
    root = tmp_path / "store" / LAYOUT.corpus_key / incarnation
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("index", "documents"),
    [
        pytest.param(None, ["b", "c"], id="newest"),
        pytest.param(2, ["a", "b", "c"], id="between-two-records-of-the-log"),
        pytest.param(1, ["a", "b"], id="at-the-snapshot"),
        pytest.param(0, ["a"], id="before-the-snapshot"),
    ],
)
def test_a_restored_corpus_answers_as_the_source_did_at_that_sequence(tool, tmp_path, history, index, documents):
    """That is what a restore is for; and nothing it needed on the way stays on the disk."""
    before = objects(tmp_path, INCARNATION)
    sequence = () if index is None else (str(history[index]),)
    code, restored, err = tool("restore", INCARNATION, *sequence)

    assert code == 0, err
    assert restored["sequence"] == history[-1 if index is None else index]
    assert (restored["incarnation"], restored["restored_from"]) == (TARGET, INCARNATION)
    assert err.startswith("progress ")
    assert list((tmp_path / "restoring").iterdir()) == []
    assert objects(tmp_path, INCARNATION) == before
    assert contents(tmp_path, TARGET) == (documents, True)


@pytest.mark.parametrize(
    ("source", "index"),
    [
        pytest.param(INCARNATION, 1, id="ends-elsewhere"),
        pytest.param(str(uuid.UUID(int=4)), None, id="of-another-source"),
    ],
)
def test_nothing_is_written_into_an_incarnation_that_holds_anything_else(tool, tmp_path, history, source, index):
    """A restore over a living corpus would be the loss that it is to mend."""
    assert tool("restore", INCARNATION)[0] == 0
    asyncio.run(write_on(tmp_path, source))
    before = objects(tmp_path, TARGET)
    code, _, err = tool("restore", source, *(() if index is None else (str(history[index]),)))

    assert code == 2
    assert "expected an empty prefix to restore into" in err
    assert objects(tmp_path, TARGET) == before


@pytest.mark.parametrize("index", [pytest.param(None, id="newest"), pytest.param(2, id="at-a-sequence")])
def test_a_restore_that_was_done_is_not_done_again(tool, tmp_path, history, index):
    """A pod restores at each of its starts; by then the copy has gone on, and its source may be gone."""
    sequence = () if index is None else (str(history[index]),)
    first = tool("restore", INCARNATION, *sequence)[1]
    assert contents(tmp_path, TARGET)[1]
    shutil.rmtree(tmp_path / "store" / LAYOUT.corpus_key / INCARNATION)
    before = objects(tmp_path, TARGET)
    code, again, err = tool("restore", INCARNATION, *sequence)

    assert code == 0, err
    assert {**again, "epoch": None, "snapshot_sequence": None} == {**first, "epoch": None, "snapshot_sequence": None}
    assert objects(tmp_path, TARGET) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((INCARNATION, "99"), "sequence 99: expected one that", id="no-such-sequence"),
        pytest.param((str(uuid.UUID(int=4)),), "is missing", id="no-such-source"),
        pytest.param(("../t-globex",), "expected a lower-case UUID", id="no-uuid"),
        pytest.param((INCARNATION, "-1"), "usage", id="no-number"),
    ],
)
def test_what_cannot_be_restored_leaves_no_target(tool, tmp_path, history, arguments, expected):
    """Half a corpus under a fresh name would be taken for a whole one."""
    code, _, err = tool("restore", *arguments)

    assert (code in {1, 2}, expected in err) == (True, True), err
    assert objects(tmp_path, TARGET) == {}


def test_the_newest_state_must_hold_all_that_was_witnessed(tool, tmp_path, history):
    """A restore must not hide a loss; naming the sequence is how somebody accepts it."""
    witness = tmp_path / "witness.json"
    write_witness(witness, Witness(Epoch(1), Seq(history[-1] + 1)))
    variables = {"GROUNDPLANE_WITNESS_FILE": str(witness)}
    code, _, err = tool("restore", INCARNATION, **variables)
    named, _, _ = tool("restore", INCARNATION, str(history[-1]), incarnation=str(uuid.UUID(int=10)), **variables)

    assert (code, "recorded outside the store" in err) == (1, True), err
    assert objects(tmp_path, TARGET) == {}
    assert named == 0


def test_an_erased_incarnation_leaves_nothing_and_the_others_whole(tool, tmp_path, history):
    """deletionPolicy Delete in a cluster: this life of the corpus, and no other."""
    tool("restore", INCARNATION)
    before = objects(tmp_path, INCARNATION)
    count = len(objects(tmp_path, TARGET))
    code, erased, err = tool("erase")

    assert code == 0, err
    assert erased == {"prefix": f"{LAYOUT.corpus_key}/{TARGET}/", "objects": count}
    assert (objects(tmp_path, TARGET), objects(tmp_path, INCARNATION)) == ({}, before)
    assert tool("erase")[1]["objects"] == 0


def test_every_life_of_a_corpus_is_listed_with_its_state(tool, tmp_path, history):
    """After the loss of the machine the bucket is all that says what can be restored."""
    tool("restore", INCARNATION, str(history[1]))
    damaged = str(uuid.UUID(int=11))
    (tmp_path / "store" / LAYOUT.corpus_key / damaged).mkdir()
    (tmp_path / "store" / LAYOUT.corpus_key / damaged / "MANIFEST").write_text("{}")
    _, found, _ = tool("incarnations")
    listed = [(each["incarnation"], each["state"], each["sequence"], each["restored_from"]) for each in found]

    assert listed == sorted(
        [
            (INCARNATION, "complete", history[-1], None),
            (TARGET, "complete", history[1], INCARNATION),
            (damaged, "damaged", 0, None),
        ]
    )
