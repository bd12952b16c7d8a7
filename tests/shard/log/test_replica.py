"""Following a log, one situation a test; mixtures of situations are the simulation's."""

import pytest

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.log import Epoch, Position, Seq
from groundplane_shard.log import operations as ops
from tests.shard.log.harness import LAYOUT, Harness, damage

BARRIER = 1  # a first writer's barrier takes the first sequence


@pytest.fixture
def harness():
    return Harness()


def test_follower_applies_what_is_new(harness):
    """A standby pod must not need a restart to keep up."""
    writer = harness.writer(payloads=[b"a"])
    follower = harness.replica("w2")
    harness.run(writer.append(b"b"))
    harness.run(writer.append(b"c"))
    harness.state = [b"a"]

    assert harness.run(follower.follow()) == 2
    assert harness.state == [b"a", b"b", b"c"]


def test_newest_snapshot_and_the_log_after_it_are_restored(harness):
    """Start is the same path every time: snapshot, then tail."""
    writer = harness.writer(payloads=[b"a", b"b"])
    snapshot = harness.publish(writer, "00000001")
    harness.run(writer.append(b"c"))

    replica = harness.replica("w2")
    assert harness.restored[-1] == snapshot.sequence
    assert harness.state == [b"a", b"b", b"c"]
    assert replica.position == writer.position


def test_damaged_newest_snapshot_falls_back_to_the_one_before(harness):
    """One rotten file must not cost the corpus while an older copy and the log exist."""
    writer = harness.writer(payloads=[b"a"])
    older = harness.publish(writer, "00000001")
    harness.run(writer.append(b"b"))
    damage(harness, harness.publish(writer, "00000002"))

    harness.replica("w2")
    assert harness.restored[-1] == older.sequence
    assert harness.state == [b"a", b"b"]


def test_only_snapshot_damaged_falls_back_to_the_whole_log(harness):
    """Until enough snapshots are kept the log is not cut, so the first snapshot may rot without loss."""
    writer = harness.writer(payloads=[b"a"])
    damage(harness, harness.publish(writer, "00000001"))
    harness.run(writer.collect())

    harness.replica("w2")
    assert harness.state == [b"a"]


def test_no_snapshot_that_verifies_is_refused(harness):
    """With the log cut, starting empty would read as a corpus with nothing in it."""
    writer = harness.writer(payloads=[b"a"], keep_snapshots=1)
    damage(harness, harness.publish(writer, "00000001"))
    harness.run(writer.collect())

    with pytest.raises(CorruptData) as refusal:
        harness.replica("w2")
    assert refusal.value.code == "no_snapshot"


def test_follower_whose_next_record_was_collected_starts_again_from_the_snapshot(harness):
    """An absent record is the end of the log only if it was not deleted meanwhile."""
    writer = harness.writer(payloads=[b"a"], keep_snapshots=1)
    follower = harness.replica("w2")
    for payload in (b"b", b"c"):
        harness.run(writer.append(payload))
    newest = harness.publish(writer, "00000001")
    harness.run(writer.collect())
    harness.state = [b"a"]

    harness.run(follower.follow())
    assert harness.restored[-1] == newest.sequence
    assert harness.state == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [0, 60, 150], ids=["magic", "header", "payload"])
def test_damaged_record_stops_the_replica_and_is_named(harness, offset):
    """A record that fails is never skipped and never read as the end of the log."""
    writer = harness.writer(payloads=[b"a" * 30, b"b"])
    key = LAYOUT.record(BARRIER + 1)
    data = bytearray(harness.objects[key])
    data[offset] ^= 1
    harness.objects[key] = bytes(data)

    with pytest.raises(CorruptData, match=key):
        harness.replica("w2")
    assert writer.position.sequence == BARRIER + 2


def test_answer_damaged_on_the_way_is_asked_again(harness):
    """A cut answer is the network's fault, not the store's: no restore for that."""
    harness.writer(payloads=[b"a"])
    key = LAYOUT.record(BARRIER + 1)
    cut = iter([ops.Found(harness.objects[key][:50], "x")])
    harness.answer = lambda operation: next(cut, None) if operation == ops.Get(key) else None

    harness.replica("w2")
    assert harness.state == [b"a"]


def test_store_that_never_answers_is_unavailable_not_empty(harness):
    """Could-not-read must never look like nothing-there."""
    harness.answer = lambda operation: ops.Unknown("down") if isinstance(operation, ops.Get) else None

    with pytest.raises(Unavailable):
        harness.replica()
    assert harness.objects == {}


def test_incomplete_or_unordered_list_is_not_believed(harness):
    """Some stores lose order under load; an overlooked record would be a lost write."""
    harness.writer(payloads=[b"a", b"b"])
    replica = harness.replica("w2")
    wrong = (LAYOUT.record(9), LAYOUT.record(8))
    harness.answer = lambda operation: ops.Listed(wrong) if isinstance(operation, ops.List) else None

    with pytest.raises(Unavailable, match="out of order"):
        harness.run(replica.take_over())


def test_position_of_the_beginning_is_zero(harness):
    """Sequence 0 means: nothing yet; the first record is 1."""
    assert harness.replica().position == Position(Seq(0), Epoch(0), bytes(32))


def test_a_long_tail_is_read_several_records_at_a_time(harness):
    """One round trip a record is twenty seconds for a thousand of them, on a store that is far away."""
    harness.writer("w1", [b"p%d" % number for number in range(80)])
    state = list(harness.state)
    harness.asked.clear()
    harness.replica("w2")

    rounds = [operation for operation in harness.asked if isinstance(operation, ops.Together)]
    assert harness.state == state
    assert max(len(operation.parts) for operation in rounds) >= 16
    assert len(rounds) < 8


def test_what_is_read_ahead_is_announced_and_applied_once(harness):
    """What a replay needs of the table is looked up in one query for all records, if they are known before."""
    harness.writer("w1", [b"p%d" % number for number in range(80)])
    state = list(harness.state)
    harness.foreseen.clear()
    harness.replica("w2")

    assert harness.foreseen == sorted(set(harness.foreseen))
    assert harness.foreseen[-1] == 81
    assert harness.state == state


def test_a_record_damaged_in_what_was_read_ahead_is_read_again(harness):
    """A line that garbles one answer of many must not make a sound log look damaged."""
    harness.writer("w1", [b"p%d" % number for number in range(30)])
    state, key = list(harness.state), LAYOUT.record(22)
    garbled = iter([True])

    def answer(operation):
        if operation == ops.Get(key) and next(garbled, False):
            return ops.Found(harness.objects[key][:-1] + b"?", "e")
        return None

    harness.answer = answer
    harness.replica("w2")

    assert harness.state == state


def test_nothing_behind_a_hole_is_applied(harness):
    """What was read ahead beyond an absent record is no part of the log yet."""
    harness.writer("w1", [b"p%d" % number for number in range(30)])
    del harness.objects[LAYOUT.record(22)]
    replica = harness.replica("w2")

    assert replica.position.sequence == 21
