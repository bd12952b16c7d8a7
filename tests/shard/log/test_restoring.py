"""A corpus restored into a new incarnation: whole or not at all, and never over something else."""

import msgspec
import pytest

from groundplane.errors import CorruptData, InvalidInput, OutcomeUnknown, Unavailable
from groundplane_shard.log import Identity, Layout, Replica, Restoration, Seq, Witness, restore
from groundplane_shard.log import operations as ops
from groundplane_shard.log.layout import Epoch
from groundplane_shard.log.manifest import decode, encode
from groundplane_shard.log.record import decode_unchained
from tests.shard.log.harness import LAYOUT, Harness, identity, in_turn

TARGET = Identity(layout=Layout("t-acme", "00000000-0000-4000-8000-00000000000b"), owner="uid-b", writer_id="restorer")


@pytest.fixture
def harness():
    """Return a store with a barrier, a snapshot at 3 and two more records; two snapshots are kept."""
    found = Harness()
    writer = found.writer("w1", [b"a", b"b"], keep_snapshots=2)
    found.publish(writer, "00000001", b"a b", b"vectors")
    for payload in (b"c", b"d"):
        found.run(writer.append(payload))
    return found


def wanted(harness, **changes):
    """Return a restoration of everything; the driver keeps restored files by the names they have in the source."""

    def local_path(file):
        harness.sources[file.key] = harness.objects[LAYOUT.object(file.key)]
        return file.key

    options = {"source": identity("none"), "target": TARGET, "token": "0000000c", "local_path": local_path}
    return Restoration(**{**options, **changes})


def target_keys(harness):
    """Return the names in the target's prefix."""
    prefix = TARGET.layout.prefix
    return sorted(key.removeprefix(prefix) for key in harness.objects if key.startswith(prefix))


def opened(harness):
    """Open the target and return the harness's state then."""
    layout = TARGET.layout
    replica = Replica(msgspec.structs.replace(TARGET, writer_id="w9"))
    steps = replica.open()
    operation = next(steps)
    try:
        while True:
            if isinstance(operation, ops.Restore):
                files = operation.snapshot.files if operation.snapshot else ()
                harness.state = harness.objects[layout.object(files[0].key)].split() if files else []
                operation = steps.send(ops.Restored())
            else:
                operation = steps.send(harness.perform(operation))
    except StopIteration:
        return harness.state, replica


def test_restored_incarnation_holds_snapshot_and_log(harness):
    """Every document that was acknowledged is there, and the next writer goes on behind it."""
    manifest = harness.run(restore(wanted(harness)))
    state, replica = opened(harness)

    assert state == [b"a", b"b", b"c", b"d"]
    assert replica.position.sequence == 5
    assert manifest.restored_from is not None
    assert (manifest.restored_from.incarnation, manifest.restored_from.sequence) == (LAYOUT.incarnation, 5)
    assert (manifest.owner, manifest.incarnation) == ("uid-b", TARGET.layout.incarnation)


def test_restored_records_belong_to_the_new_incarnation(harness):
    """A record that still named the old one would be refused by every reader."""
    harness.run(restore(wanted(harness)))

    records = [decode_unchained(harness.objects[TARGET.layout.record(at)], key="log").record for at in (4, 5)]
    assert {record.incarnation.hex() for record in records} == {TARGET.layout.incarnation.replace("-", "")}
    assert [record.sequence for record in records] == [4, 5]


@pytest.mark.parametrize(("until", "state"), [(3, [b"a", b"b"]), (4, [b"a", b"b", b"c"]), (2, [b"a"])])
def test_restore_ends_at_the_sequence_that_was_named(harness, until, state):
    """A bad import is undone by going back to the write before it; the log before the snapshot is still whole here."""
    harness.run(restore(wanted(harness, until=Seq(until))))

    assert opened(harness)[0] == state


def test_source_is_only_read(harness):
    """The old incarnation's writer may be at work, and may be needed again."""
    before = dict(harness.objects)
    harness.run(restore(wanted(harness)))

    assert {key: data for key, data in harness.objects.items() if key.startswith(LAYOUT.prefix)} == before


@pytest.mark.parametrize("key", ["MANIFEST", "log/00000000000000000009", "snapshots/x/y", "something"])
def test_target_that_is_not_empty_is_refused_before_any_write(harness, key):
    """Nothing may be mixed with, or put over, what is there."""
    harness.objects[TARGET.layout.prefix + key] = b"there"
    before = dict(harness.objects)

    with pytest.raises(InvalidInput, match=f"{key} exists") as refusal:
        harness.run(restore(wanted(harness)))

    assert refusal.value.code == "target_not_empty"
    assert harness.objects == before


def test_target_claimed_meanwhile_is_refused(harness):
    """Of two restores into one incarnation, one gets it."""
    first = restore(wanted(harness))
    waiting = harness.run_until(first, ops.Create)
    other = msgspec.structs.replace(TARGET, writer_id="other")
    harness.run(restore(wanted(harness, target=other, token="0000000d")))
    before = dict(harness.objects)

    with pytest.raises(InvalidInput, match="MANIFEST exists"):
        harness.finish(first, waiting)

    assert harness.objects == before


@pytest.mark.parametrize("operation", [ops.Upload, ops.Replace], ids=["files", "completion"])
def test_copy_that_was_cut_off_is_never_opened(harness, operation):
    """Half a corpus must not look like a small one."""
    steps = in_turn(restore(wanted(harness)))
    harness.run_until(steps, operation)
    steps.close()

    with pytest.raises(Unavailable) as refusal:
        harness.run(Replica(TARGET).open())

    assert refusal.value.code == "restore_unfinished"


def test_copy_that_was_cut_off_is_not_gone_on_with(harness):
    """What is there was made by somebody else, and may not be what it seems."""
    steps = in_turn(restore(wanted(harness)))
    harness.run_until(steps, ops.Upload)
    steps.close()

    with pytest.raises(InvalidInput, match="restore into an incarnation that nobody used"):
        harness.run(restore(wanted(harness)))


@pytest.mark.parametrize(("until", "code"), [(6, "no_such_sequence"), (1, "sequence_collected")])
def test_sequence_that_is_not_kept_is_refused_before_any_write(harness, until, code):
    """The caller mistook a number; no incarnation need be spent on that."""
    replica = Replica(identity("w1"), keep_snapshots=2)
    harness.run(replica.open())
    writer = harness.run(replica.take_over())
    harness.publish(writer, "00000002")
    harness.run(writer.collect())

    with pytest.raises(InvalidInput) as refusal:
        harness.run(restore(wanted(harness, until=Seq(until + 1 if until == 6 else until))))

    assert refusal.value.code == code
    assert target_keys(harness) == []


def test_damaged_snapshot_falls_back_to_the_one_before(harness):
    """A longer log makes up for it."""
    harness.objects[LAYOUT.object("snapshots/00000000000000000001-00000001/part-0")] = b"rotten"
    harness.run(restore(wanted(harness)))

    assert "log/00000000000000000001" in target_keys(harness)


def test_newest_restore_of_less_than_the_witness_knows_is_refused(harness):
    """Restoring what is left of a log that lost its end is a decision, taken by naming the sequence."""
    with pytest.raises(CorruptData) as refusal:
        harness.run(restore(wanted(harness, witness=Witness(Epoch(1), Seq(6)))))

    assert refusal.value.code == "behind_witness"
    assert target_keys(harness) == []


def test_named_restore_of_less_than_the_witness_knows_passes(harness):
    """This is how a corpus is saved whose store lost its end."""
    manifest = harness.run(restore(wanted(harness, witness=Witness(Epoch(1), Seq(6)), until=Seq(5))))

    assert not manifest.is_unfinished


def test_half_a_copy_is_no_source(harness):
    """What a cut-off restore did not reach would be lost in the copy of the copy, and nobody would know."""
    manifest = harness.run(restore(wanted(harness)))
    unfinished = msgspec.structs.replace(
        manifest, restored_from=msgspec.structs.replace(manifest.restored_from, sequence=None)
    )
    harness.objects[TARGET.layout.manifest] = encode(unfinished)
    other = msgspec.structs.replace(
        TARGET, layout=Layout("t-acme", "00000000-0000-4000-8000-00000000000c"), owner="uid-c"
    )

    with pytest.raises(InvalidInput) as refusal:
        harness.run(restore(wanted(harness, source=TARGET, target=other)))

    assert refusal.value.code == "source_unfinished"
    assert LAYOUT.incarnation in refusal.value.message
    assert not any(key.startswith(other.layout.prefix) for key in harness.objects)


def test_hole_in_the_source_is_not_the_end(harness):
    """What lies behind the hole was acknowledged, too."""
    del harness.objects[LAYOUT.record(4)]

    with pytest.raises(CorruptData) as refusal:
        harness.run(restore(wanted(harness)))

    assert refusal.value.code == "log_gap"


def test_source_that_does_not_exist_is_refused_and_not_made(harness):
    """A restore must never initialise a prefix that somebody mistyped."""
    nowhere = Layout("t-acme", "00000000-0000-4000-8000-00000000000c")
    before = dict(harness.objects)

    with pytest.raises(CorruptData, match="is missing"):
        harness.run(restore(wanted(harness, source=msgspec.structs.replace(identity(), layout=nowhere))))

    assert harness.objects == before


def test_lost_answer_to_the_completion_is_settled_by_reading_back(harness):
    """A copy that is complete must not be thrown away for a lost packet."""
    lost = iter([True])

    def answer(operation):
        if isinstance(operation, ops.Replace) and next(lost, False):
            harness.store(operation)
            return ops.Unknown("lost")
        return None

    harness.answer = answer
    manifest = harness.run(restore(wanted(harness)))

    assert manifest.counter == 2
    assert decode(harness.objects[TARGET.layout.manifest], key="MANIFEST") == manifest


def test_completion_that_cannot_be_settled_is_told_as_unknown(harness):
    """The caller restores into another incarnation; whatever became of this one is whole or refused."""
    harness.answer = lambda operation: ops.Unknown("lost") if isinstance(operation, ops.Replace) else None

    with pytest.raises(OutcomeUnknown):
        harness.run(restore(wanted(harness)))
