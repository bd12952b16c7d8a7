"""Going on behind a loss: only with the sequence named, and never without a record of it."""

import pytest

from groundplane.errors import CorruptData, Superseded
from groundplane_shard.log import Kind, Override, Seq, Witness
from groundplane_shard.log import operations as ops
from groundplane_shard.log import override as override_codec
from groundplane_shard.log.layout import Epoch
from groundplane_shard.log.record import decode_unchained
from tests.shard.log.harness import LAYOUT, Harness

WITNESS = Witness(Epoch(4), Seq(9))
OVERRIDE = Override(accepted_sequence=Seq(4), witness_epoch=Epoch(4), witness_sequence=Seq(9))


@pytest.fixture
def harness():
    """Return a store whose log ends at 4, in epoch 1: a barrier and three batches."""
    found = Harness()
    found.writer("w1", [b"a", b"b", b"c"])
    return found


def test_override_survives_the_round_trip():
    """What was accepted must be readable for as long as the log is."""
    payload = override_codec.encode(OVERRIDE)

    assert payload == b'{"accepted_sequence":4,"witness_epoch":4,"witness_sequence":9}'
    assert override_codec.decode(payload, key="log/5") == OVERRIDE


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"accepted_sequence":4,"witness_epoch":4,"witness_sequence":9,"x":1}']
)
def test_override_with_other_fields_is_refused(payload):
    """A record that says something else than it seems to say must not be read."""
    with pytest.raises(CorruptData, match="override log/5"):
        override_codec.decode(payload, key="log/5")


@pytest.mark.parametrize("accepted", [None, 3, 5, 9], ids=["none", "below", "above", "the-witness"])
def test_loss_is_accepted_only_by_the_sequence_at_which_the_log_ends(harness, accepted):
    """Whoever accepts a loss must know how much is lost; a flag left over from another loss must not."""
    replica = harness.replica("w2")
    before = dict(harness.objects)

    with pytest.raises(CorruptData, match="ends at epoch 1, sequence 4") as refusal:
        harness.run(replica.take_over(WITNESS, accept_data_loss=accepted))

    assert refusal.value.code == "behind_witness"
    assert harness.objects == before


def test_accepted_loss_stands_in_the_log_as_the_barrier(harness):
    """One object says both that older writers are shut out and that a loss was accepted: there is no moment between."""
    writer = harness.run(harness.replica("w2").take_over(WITNESS, accept_data_loss=Seq(4)))

    record = decode_unchained(harness.objects[LAYOUT.record(5)], key="log/5").record
    assert record.kind is Kind.OVERRIDE
    assert override_codec.decode(record.payload, key="log/5") == OVERRIDE
    assert harness.log_keys() == [1, 2, 3, 4, 5]
    assert writer.position.sequence == 5


def test_epoch_rises_above_the_lost_one(harness):
    """A writer of the lost part may still live: none of its records may fit into this log."""
    writer = harness.run(harness.replica("w2").take_over(WITNESS, accept_data_loss=Seq(4)))

    assert writer.epoch == 5
    assert writer.manifest.epoch == 5


def test_acceptance_without_a_loss_changes_nothing(harness):
    """A flag that stays set over restarts must not put overrides into a healthy log."""
    writer = harness.run(harness.replica("w2").take_over(Witness(Epoch(1), Seq(4)), accept_data_loss=Seq(4)))

    record = decode_unchained(harness.objects[LAYOUT.record(5)], key="log/5").record
    assert (record.kind, writer.epoch) == (Kind.BARRIER, 2)


def test_log_that_grew_while_the_loss_was_accepted_is_left_alone(harness):
    """Somebody else is at work: what was named is not what would be lost."""
    replica = harness.replica("w2")
    steps = replica.take_over(WITNESS, accept_data_loss=Seq(4))
    waiting = harness.run_until(steps, ops.Replace)
    harness.run(harness.replica("w3").take_over())

    with pytest.raises(Superseded):
        harness.finish(steps, waiting)

    assert decode_unchained(harness.objects[LAYOUT.record(5)], key="log/5").record.kind is Kind.BARRIER


def test_override_is_never_collected(harness):
    """It is a barrier: an older writer's next create must meet it for ever."""
    writer = harness.run(harness.replica("w2", keep_snapshots=1).take_over(WITNESS, accept_data_loss=Seq(4)))
    harness.run(writer.append(b"d"))
    harness.publish(writer, "00000001")
    harness.run(writer.collect())

    assert harness.log_keys() == [1, 5]


def test_follower_reads_over_an_override(harness):
    """It changes nothing in the state, like every barrier."""
    harness.run(harness.replica("w2").take_over(WITNESS, accept_data_loss=Seq(4)))
    harness.replica("w3")

    assert harness.state == [b"a", b"b", b"c"]
