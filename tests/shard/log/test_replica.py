"""Following a log and taking it over, one situation a test; mixtures of situations are the simulation's."""

import msgspec
import pytest

from groundplane.errors import CorruptData, Superseded, Unavailable
from groundplane_shard.log import Epoch, Kind, Position, Record, Replica, Seq, Witness
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import operations as ops
from groundplane_shard.log.record import encode
from tests.shard.log.harness import LAYOUT, Harness, identity

BARRIER = 1  # a first writer's barrier takes the first sequence


@pytest.fixture
def harness():
    return Harness()


def damage(harness, snapshot):
    """Damage the first file of a snapshot."""
    harness.objects[LAYOUT.object(snapshot.files[0].key)] += b"!"


def test_empty_prefix_gets_its_first_manifest(harness):
    """A new corpus starts without anybody preparing the store."""
    replica = harness.replica()

    assert (replica.manifest.counter, replica.manifest.epoch, replica.manifest.owner) == (1, 0, "uid-a")


@pytest.mark.parametrize("key", [LAYOUT.record(1), LAYOUT.object("snapshots/00000000000000000001-00c0ffee/part-0")])
def test_prefix_with_objects_is_never_initialised_again(harness, key):
    """A lost MANIFEST beside a log must not look like a new, empty corpus."""
    harness.objects[key] = b"x"

    with pytest.raises(CorruptData, match="never initialised again"):
        harness.replica()
    assert LAYOUT.manifest not in harness.objects


def test_prefix_whose_listing_hides_its_objects_is_not_initialised_again(harness):
    """A listing may be incomplete; the first record, a barrier that is never deleted, is asked for by name."""
    harness.writer("w1")
    del harness.objects[LAYOUT.manifest]
    harness.answer = lambda operation: ops.Listed(()) if isinstance(operation, ops.List) else None

    with pytest.raises(CorruptData, match="never initialised again"):
        harness.replica("w2")


def test_manifest_that_vanishes_is_not_made_again(harness):
    """What this process has seen once must not begin anew while it lives."""
    replica = harness.replica()
    del harness.objects[LAYOUT.manifest]

    with pytest.raises(CorruptData, match="never initialised again"):
        harness.run(replica.open())


def test_foreign_owner_marker_is_refused_and_nothing_is_written(harness):
    """A shard pointed at another corpus's prefix must neither read nor wipe it."""
    harness.writer(payloads=[b"a"])
    before = dict(harness.objects)

    with pytest.raises(CorruptData, match="belongs to") as refusal:
        harness.run(Replica(identity("w2", owner="uid-b")).open())
    assert refusal.value.code == "foreign_owner"
    assert harness.objects == before


def test_older_manifest_put_back_is_noticed(harness):
    """A restored old MANIFEST would let an old epoch write again."""
    harness.writer(payloads=[b"a"])
    old = harness.objects[LAYOUT.manifest]
    follower = harness.replica("w2")
    harness.run(follower.take_over())
    harness.objects[LAYOUT.manifest] = old

    with pytest.raises(CorruptData) as refusal:
        harness.run(follower.follow())
    assert refusal.value.code == "went_back"


def test_older_manifest_of_the_same_epoch_is_noticed(harness):
    """An old snapshot list put back would have the log below it collected or missing."""
    writer = harness.writer(payloads=[b"a"])
    old = harness.objects[LAYOUT.manifest]
    harness.run(writer.register_analyser("snowball-english"))
    harness.objects[LAYOUT.manifest] = old

    with pytest.raises(CorruptData, match="counter 2 and epoch 1") as refusal:
        harness.run(writer.register_analyser("snowball-english"))
    assert refusal.value.code == "went_back"


def test_manifest_older_than_the_log_is_noticed(harness):
    """The same by a process that never saw the newer MANIFEST: the log's epoch tells."""
    harness.writer(payloads=[b"a"])
    old = harness.objects[LAYOUT.manifest]
    harness.writer("w2", payloads=[b"b"])
    harness.objects[LAYOUT.manifest] = old

    with pytest.raises(CorruptData, match="an old one was put back") as refusal:
        harness.replica("w3")
    assert refusal.value.code == "went_back"


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


def test_manifest_answer_damaged_on_the_way_is_asked_again(harness):
    """A cut body is a failed request, not a damaged corpus."""
    harness.writer("w1")
    cut = iter([True])

    def answer(operation):
        if operation == ops.Get(LAYOUT.manifest) and next(cut, False):
            return ops.Found(harness.objects[LAYOUT.manifest][:40], "cut")
        return None

    harness.answer = answer
    assert harness.replica("w2").manifest.epoch == 1


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


def test_position_of_the_beginning_is_zero(harness):
    """Sequence 0 means: nothing yet; the first record is 1."""
    assert harness.replica().position == Position(Seq(0), Epoch(0), bytes(32))


def test_manifest_versions_never_have_equal_bytes(harness):
    """Reading back settles an unknown change only if no two versions are equal."""
    versions = set()
    for name in ("w1", "w2", "w3"):
        harness.writer(name)
        versions.add(harness.objects[LAYOUT.manifest])

    counters = [manifest_codec.decode(data, key="m").counter for data in versions]
    assert sorted(counters) == [2, 3, 4]
    assert msgspec.structs.replace(manifest_codec.decode(versions.pop(), key="m")).epoch >= 1
