"""Becoming the writer, one situation a test; mixtures of situations are the simulation's."""

import pytest

from groundplane.errors import CorruptData, Superseded, Unavailable
from groundplane_shard.log import Epoch, Kind, Record, Seq, Witness
from groundplane_shard.log import operations as ops
from groundplane_shard.log.record import encode
from tests.shard.log.harness import LAYOUT, Harness, damage

BARRIER = 1  # a first writer's barrier takes the first sequence


@pytest.fixture
def harness():
    return Harness()


def test_missing_record_in_the_middle_is_refused_at_take_over(harness):
    """Writing a barrier into a hole would bury every acknowledged write behind it."""
    harness.writer(payloads=[b"a", b"b", b"c"])
    del harness.objects[LAYOUT.record(BARRIER + 2)]

    with pytest.raises(CorruptData, match="missing although") as refusal:
        harness.run(harness.replica("w2").take_over())
    assert refusal.value.code == "log_gap"


def test_log_that_ends_below_the_newest_snapshot_is_refused(harness):
    """With the newest snapshot rotten and its log tail gone, the older state would silently lose writes."""
    writer = harness.writer(payloads=[b"a"])
    harness.publish(writer, "00000001")
    harness.run(writer.append(b"b"))
    damage(harness, harness.publish(writer, "00000002"))
    del harness.objects[LAYOUT.record(writer.position.sequence)]

    with pytest.raises(CorruptData, match="reach the newest snapshot"):
        harness.run(harness.replica("w2").take_over())


@pytest.mark.parametrize("witness", [Witness(Epoch(2), Seq(3)), Witness(Epoch(1), Seq(4))], ids=["epoch", "sequence"])
def test_store_that_holds_less_than_the_witness_is_refused(harness, witness):
    """A bucket that lost its last objects looks sound from inside; only a record outside it tells."""
    harness.writer(payloads=[b"a", b"b"])

    with pytest.raises(CorruptData) as refusal:
        harness.run(harness.replica("w2").take_over(witness))
    assert refusal.value.code == "behind_witness"


def test_witness_that_is_reached_lets_the_take_over_pass(harness):
    """The check must not stop a sound start."""
    harness.writer(payloads=[b"a", b"b"])

    writer = harness.run(harness.replica("w2").take_over(Witness(Epoch(1), Seq(3))))
    assert writer.epoch == 2


def test_take_over_shuts_the_old_writer_out(harness):
    """From the barrier on the old writer's next create meets a key that exists."""
    old = harness.writer(payloads=[b"a"])
    harness.writer("w2")

    with pytest.raises(Superseded):
        harness.run(old.append(b"b"))
    with pytest.raises(Superseded):
        harness.run(old.append(b"c"))
    assert b"b" not in [record for key, record in harness.objects.items() if key.startswith(LAYOUT.log)]


def test_barrier_goes_behind_records_that_the_old_writer_still_made(harness):
    """What the old writer acknowledged before the barrier counts."""
    old = harness.writer(payloads=[b"a"])
    replica = harness.replica("w2")
    is_late = iter([True])

    def let_the_old_writer_go_on(operation):
        if isinstance(operation, ops.Create) and next(is_late, False):
            asked, harness.answer = harness.answer, lambda operation: None
            harness.run(old.append(b"late"))
            harness.answer = asked
            harness.state = [b"a"]
        return

    harness.answer = let_the_old_writer_go_on
    writer = harness.run(replica.take_over())

    assert harness.state == [b"a", b"late"]
    assert writer.position.sequence == old.position.sequence + 1


def test_take_over_stops_when_another_process_raised_the_epoch(harness):
    """Two processes that are restarted together must not duel for ever."""
    first, second = harness.replica("w1"), harness.replica("w2")

    def let_the_other_win(operation):
        if isinstance(operation, ops.Replace):
            harness.answer = lambda operation: None
            harness.run(second.take_over())
        return

    harness.answer = let_the_other_win
    with pytest.raises(Superseded):
        harness.run(first.take_over())


def test_barrier_is_worth_nothing_if_the_epoch_was_raised_meanwhile(harness):
    """A take-over that slept may find its place free only because a newer writer collected it."""
    harness.writer("w1", payloads=[b"a"])
    sleeper = harness.replica("w2")

    def overtake(operation):
        if isinstance(operation, ops.Create):
            harness.answer = lambda operation: None
            harness.writer("w3", payloads=[b"b"])
            harness.objects.pop(operation.key)
        return

    harness.answer = overtake
    with pytest.raises(Superseded):
        harness.run(sleeper.take_over())


def test_older_take_over_places_no_barrier_behind_a_newer_one(harness):
    """Epochs never fall along the log, not even by a take-over that is about to find out that it lost."""
    harness.writer("w1", payloads=[b"a"])
    late = harness.replica("w2")

    def let_the_newer_one_win(operation):
        if isinstance(operation, ops.Create):
            harness.answer = lambda operation: None
            harness.writer("w3")
        return

    harness.answer = let_the_newer_one_win
    with pytest.raises(Superseded):
        harness.run(late.take_over())
    assert harness.log_keys() == [1, 2, 3]


def test_writer_that_lost_its_corpus_does_not_contend_again(harness):
    """After an unknown outcome a process may restart from the log, but not if it was replaced meanwhile."""
    replica = harness.replica("w1")
    harness.run(replica.take_over())
    harness.writer("w2")
    harness.run(replica.open())

    with pytest.raises(Superseded):
        harness.run(replica.take_over())
    assert replica.manifest.epoch == 2


def test_writer_takes_its_own_corpus_over_again(harness):
    """A lost answer must not need a person or another process."""
    replica = harness.replica("w1")
    harness.run(replica.take_over())
    harness.run(replica.open())

    writer = harness.run(replica.take_over())
    assert writer.epoch == 2


def test_lost_answer_to_the_raised_epoch_is_settled_by_reading_back(harness):
    """The own bytes in the store are success, whatever the network said."""
    replica = harness.replica("w1")

    def lose_the_answer(operation):
        if isinstance(operation, ops.Replace):
            harness.answer = lambda operation: None
            harness.store(operation)
            return ops.Unknown("lost")
        return None

    harness.answer = lose_the_answer
    assert harness.run(replica.take_over()).epoch == 1


def test_process_whose_raised_epoch_was_uncertain_does_not_contend_again(harness):
    """It may have been the writer for a moment; two processes that raise the epoch in turn would never stop."""
    replica = harness.replica("w1")

    def answer_nothing_after_the_raise(operation):
        if isinstance(operation, ops.Replace):
            harness.store(operation)
            harness.answer = lambda operation: ops.Unknown("lost")
            return ops.Unknown("lost")
        return None

    harness.answer = answer_nothing_after_the_raise
    with pytest.raises(Unavailable):
        harness.run(replica.take_over())
    harness.answer = lambda operation: None
    harness.writer("w2")

    with pytest.raises(Superseded):
        harness.run(replica.take_over())


def test_process_that_certainly_raised_nothing_may_try_again(harness):
    """A refused request is no defeat."""
    replica = harness.replica("w1")
    harness.answer = lambda operation: ops.Refused("503") if isinstance(operation, ops.Replace) else None
    with pytest.raises(Unavailable):
        harness.run(replica.take_over())
    harness.answer = lambda operation: None
    harness.writer("w2")

    assert harness.run(replica.take_over()).epoch == 2


def test_leftover_of_a_superseded_take_over_is_not_followed_for_long(harness):
    """A stale barrier where a record was collected must not be mistaken for damage, nor for the log."""
    writer = harness.writer(payloads=[b"a"], keep_snapshots=1)
    follower = harness.replica("w2")
    stale = encode(
        Record(
            kind=Kind.BARRIER,
            epoch=Epoch(1),
            sequence=follower.position.next_sequence,
            incarnation=follower._incarnation,
            previous=follower.position.digest,
        )
    )
    harness.run(writer.append(b"b"))
    harness.publish(writer, "00000001")
    harness.run(writer.collect())
    harness.run(writer.append(b"c"))
    harness.objects[LAYOUT.record(stale.record.sequence)] = stale.data
    harness.state = [b"a"]

    harness.run(follower.follow())
    assert harness.state == [b"a", b"b", b"c"]
    assert follower.position == writer.position
