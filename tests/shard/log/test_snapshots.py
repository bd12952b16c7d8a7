"""Publishing and collecting: what is reused, what is listed, what is deleted, and what never is."""

import pytest

from groundplane.errors import CorruptData, InvalidInput, Superseded, Unavailable
from groundplane_shard.log import operations as ops
from tests.shard.log.harness import LAYOUT, Harness, in_turn


@pytest.fixture
def harness():
    return Harness()


def uploads(harness):
    """Return the paths uploaded so far, in order."""
    return [operation.file.path for operation in harness.asked if isinstance(operation, ops.Upload)]


def test_snapshot_is_labelled_with_what_was_frozen_not_with_the_head(harness):
    """Records written while a snapshot is made are not in it; a label that says so would lose them."""
    writer = harness.writer(payloads=[b"a"])
    files, frozen = harness.files(), harness.position
    harness.run(writer.append(b"b"))
    snapshot = harness.run(writer.publish_snapshot(files, frozen, token="00000001"))

    assert (snapshot.sequence, snapshot.position) == (frozen.sequence, frozen)
    harness.replica("w2")
    assert harness.state == [b"a", b"b"]


def test_only_listed_equal_files_are_reused(harness):
    """Most files of a table do not change between snapshots; they are not sent again."""
    writer = harness.writer(payloads=[b"a"])
    first = harness.publish(writer, "00000001", b"same", b"old")
    harness.run(writer.append(b"b"))
    harness.asked.clear()
    second = harness.publish(writer, "00000002", b"same", b"new")

    assert uploads(harness) == ["part-1"]
    assert second.files[0].key == first.files[0].key
    assert second.files[1].key != first.files[1].key


def test_file_that_merely_exists_is_not_reused(harness):
    """Two flushes of one copy can give different bytes one name, and an orphan may be deleted any moment."""
    writer = harness.writer(payloads=[b"a"])
    orphan = f"{LAYOUT.snapshots}00000000000000000000-00c0ffee/part-0"
    harness.objects[orphan] = b"a"
    snapshot = harness.publish(writer, "00000001")

    assert LAYOUT.object(snapshot.files[0].key) != orphan


def test_listed_file_that_rotted_is_uploaded_afresh(harness):
    """Reusing it would make the new snapshot as useless as the old one."""
    writer = harness.writer(payloads=[b"a"])
    first = harness.publish(writer, "00000001", b"same")
    harness.objects[LAYOUT.object(first.files[0].key)] = b"rotten"
    harness.run(writer.append(b"b"))
    second = harness.publish(writer, "00000002", b"same")

    assert second.files[0].key != first.files[0].key


def test_upload_that_does_not_verify_is_not_published(harness):
    """A snapshot is trusted later without being looked at again."""
    writer = harness.writer(payloads=[b"a"])
    before = harness.objects[LAYOUT.manifest]
    harness.answer = lambda operation: ops.Damaged("other bytes") if isinstance(operation, ops.Verify) else None

    with pytest.raises(CorruptData):
        harness.publish(writer, "00000001")
    assert harness.objects[LAYOUT.manifest] == before


def test_lost_answer_to_an_upload_is_settled_by_verifying(harness):
    """A retry meets its own file, which is no fault."""
    writer = harness.writer(payloads=[b"a"])
    lost = iter([True])

    def lose_first_answer(operation):
        if isinstance(operation, ops.Upload) and next(lost, False):
            harness.store(operation)
            return ops.Unknown("lost")
        return None

    harness.answer = lose_first_answer
    assert harness.publish(writer, "00000001").sequence == 2


def test_refused_upload_publishes_nothing(harness):
    """A full store must not lead to a snapshot with holes."""
    writer = harness.writer(payloads=[b"a"])
    harness.answer = lambda operation: ops.Refused("disk full") if isinstance(operation, ops.Upload) else None

    with pytest.raises(Unavailable, match="disk full"):
        harness.publish(writer, "00000001")
    assert writer.manifest.snapshots == ()


def test_snapshot_that_is_not_newer_is_refused(harness):
    """There is nothing in it that the newest does not hold."""
    writer = harness.writer(payloads=[b"a"])
    harness.publish(writer, "00000001")

    with pytest.raises(InvalidInput) as refusal:
        harness.publish(writer, "00000002")
    assert refusal.value.code == "snapshot_not_newer"


def test_superseded_writer_publishes_nothing(harness):
    """Its state may lack records that others acknowledged."""
    old = harness.writer(payloads=[b"a"])
    files, frozen = harness.files(), harness.position
    harness.writer("w2")

    with pytest.raises(Superseded):
        harness.run(old.publish_snapshot(files, frozen, token="00000001"))


def test_superseded_writer_uploads_nothing(harness):
    """Files that can never be listed need not travel."""
    old = harness.writer(payloads=[b"a"])
    files, frozen = harness.files(), harness.position
    harness.writer("w2")

    with pytest.raises(Superseded):
        harness.run(old.publish_snapshot(files, frozen, token="00000001"))
    assert uploads(harness) == []


def test_writer_superseded_while_it_uploads_publishes_nothing(harness):
    """The epoch counts at the moment of the change, not when the upload began."""
    old = harness.writer(payloads=[b"a"])

    def take_over(operation):
        if isinstance(operation, ops.Verify):
            harness.answer = lambda operation: None
            harness.writer("w2")
        return

    harness.answer = take_over
    with pytest.raises(Superseded):
        harness.publish(old, "00000001")
    assert harness.replica("w3").manifest.snapshots == ()


def test_file_that_was_dropped_meanwhile_is_not_listed(harness):
    """Another publication may have dropped the snapshot whose file this one wanted to reuse: it may be deleted any moment."""
    writer = harness.writer(payloads=[b"a"], keep_snapshots=1)
    harness.publish(writer, "00000001", b"same")
    harness.run(writer.append(b"b"))
    between = harness.position
    harness.run(writer.append(b"c"))
    publication = writer.publish_snapshot(harness.files(b"same"), harness.position, token="00000002")
    pending = harness.run_until(publication, ops.Replace)
    harness.run(writer.publish_snapshot(harness.files(b"other"), between, token="00000003"))

    with pytest.raises(Unavailable) as refusal:
        harness.finish(publication, pending)
    assert refusal.value.code == "base_moved"


def test_publication_overtaken_by_a_newer_one_is_refused(harness):
    """Snapshots in MANIFEST ascend; the later one holds all that this one does."""
    writer = harness.writer(payloads=[b"a"])
    publication = writer.publish_snapshot(harness.files(), harness.position, token="00000001")
    pending = harness.run_until(publication, ops.Replace)
    harness.run(writer.append(b"b"))
    harness.publish(writer, "00000002")

    with pytest.raises(InvalidInput) as refusal:
        harness.finish(publication, pending)
    assert refusal.value.code == "snapshot_not_newer"


def test_lost_answer_to_the_publication_is_settled_by_reading_back(harness):
    """The snapshot is published once, whatever the network said."""
    writer = harness.writer(payloads=[b"a"])
    lost = iter([True])

    def lose_first_answer(operation):
        if isinstance(operation, ops.Replace) and next(lost, False):
            harness.store(operation)
            return ops.Unknown("lost")
        return None

    harness.answer = lose_first_answer
    snapshot = harness.publish(writer, "00000001")
    assert writer.manifest.snapshots == (snapshot,)


def test_upload_collected_by_a_newer_writer_is_supersession_not_corruption(harness):
    """The operator must not be sent to look for damage that is none."""
    old = harness.writer(payloads=[b"a"])

    def take_over_and_collect(operation):
        if isinstance(operation, ops.Verify):
            harness.answer = lambda operation: None
            harness.run(harness.writer("w2").collect())
        return

    harness.answer = take_over_and_collect
    with pytest.raises(Superseded):
        harness.publish(old, "00000001")


def publish_each(harness, writer, count):
    """Append and publish so many times; return the snapshots."""
    snapshots = []
    for number in range(count):
        harness.run(writer.append(b"p%d" % number))
        snapshots.append(harness.publish(writer, f"{number:08x}"))
    return snapshots


def test_as_many_snapshots_are_kept_as_asked_for(harness):
    """The newest ones, newest last."""
    writer = harness.writer(keep_snapshots=2)
    snapshots = publish_each(harness, writer, 4)

    assert writer.manifest.snapshots == tuple(snapshots[-2:])


def test_log_is_whole_until_enough_snapshots_are_kept(harness):
    """A single snapshot that rots must not be the only copy."""
    writer = harness.writer(keep_snapshots=3)
    publish_each(harness, writer, 2)
    harness.run(writer.collect())

    assert harness.log_keys() == list(range(1, writer.position.sequence + 1))


def test_records_above_the_oldest_kept_snapshot_stay(harness):
    """The fallback to an older snapshot needs the longer log."""
    writer = harness.writer(keep_snapshots=2)
    snapshots = publish_each(harness, writer, 4)
    harness.run(writer.collect())

    assert [sequence for sequence in harness.log_keys() if sequence > 1] == list(
        range(snapshots[-2].sequence + 1, writer.position.sequence + 1)
    )


def test_barriers_are_never_deleted(harness):
    """A writer that slept through everything must still meet the barrier at its next sequence."""
    sleeper = harness.writer("w1", payloads=[b"a"], keep_snapshots=1)
    middle = harness.writer("w2", payloads=[b"b"], keep_snapshots=1)
    last = harness.writer("w3", keep_snapshots=1)
    publish_each(harness, last, 3)
    harness.run(last.collect())

    assert harness.log_keys() == [1, 3, 5]
    for superseded in (sleeper, middle):
        with pytest.raises(Superseded):
            harness.run(superseded.append(b"late"))


def test_barriers_survive_a_writer_that_never_read_them(harness):
    """A writer that starts from a snapshot learns of the barriers before it from MANIFEST alone."""
    first = harness.writer("w1", keep_snapshots=1)
    publish_each(harness, first, 1)
    harness.run(first.collect())
    second = harness.writer("w2", keep_snapshots=1)
    harness.run(second.append(b"x"))
    harness.publish(second, "0000000a")
    harness.run(second.collect())

    assert harness.log_keys()[:2] == [1, 3]


def test_unlisted_files_are_deleted_and_listed_ones_stay(harness):
    """Old snapshots must not fill the store, and no kept one may lose a file it shares with them."""
    writer = harness.writer(keep_snapshots=1)
    harness.run(writer.append(b"a"))
    harness.publish(writer, "00000001", b"same", b"old")
    harness.run(writer.append(b"b"))
    harness.publish(writer, "00000002", b"same", b"new")
    harness.run(writer.collect())

    stored = {key.removeprefix(LAYOUT.prefix) for key in harness.objects if key.startswith(LAYOUT.snapshots)}
    assert stored == writer.manifest.listed_names()


def test_orphans_of_older_epochs_are_deleted(harness):
    """A crash between upload and publication leaves files that no MANIFEST can ever list."""
    crashed = harness.writer("w1", payloads=[b"a"])
    publication = crashed.publish_snapshot(harness.files(), harness.position, token="00000001")
    harness.run_until(publication, ops.Replace)
    publication.close()
    harness.run(harness.writer("w2").collect())

    assert not any(key.startswith(LAYOUT.snapshots) for key in harness.objects)


def test_unpublished_upload_of_the_own_epoch_stays(harness):
    """Its MANIFEST change may still be on its way and would list files that are gone."""
    writer = harness.writer(payloads=[b"a"])
    publication = writer.publish_snapshot(harness.files(), harness.position, token="00000001")
    harness.run_until(publication, ops.Replace)
    harness.run(writer.collect())

    assert any(key.startswith(LAYOUT.snapshots) for key in harness.objects)


def test_names_that_no_writer_makes_are_left_alone(harness):
    """What somebody else put there is not ours to judge."""
    writer = harness.writer(keep_snapshots=1)
    foreign = [f"{LAYOUT.log}notes.txt", f"{LAYOUT.snapshots}mine/part-0"]
    harness.objects |= dict.fromkeys(foreign, b"x")
    publish_each(harness, writer, 2)
    harness.run(writer.collect())

    assert set(foreign) <= set(harness.objects)


def test_late_deletes_of_a_superseded_writer_are_harmless(harness):
    """A process that froze in the middle of collecting may wake at any time."""
    old = harness.writer("w1", keep_snapshots=1)
    publish_each(harness, old, 2)
    collection = in_turn(old.collect())
    pending = harness.run_until(collection, ops.Delete)
    new = harness.writer("w2", keep_snapshots=1)
    harness.run(new.append(b"z"))
    harness.publish(new, "0000000a")
    harness.finish(collection, pending)

    state = list(harness.state)
    harness.replica("w3")
    assert harness.state == state


def test_snapshot_that_did_not_verify_is_dropped_by_the_next_publication(harness):
    """The floor rests on snapshots that are sound."""
    writer = harness.writer(payloads=[b"a"])
    rotten = harness.publish(writer, "00000001")
    harness.objects[LAYOUT.object(rotten.files[0].key)] = b"rotten"
    successor = harness.writer("w2", payloads=[b"b"])
    sound = harness.publish(successor, "00000002")

    assert successor.manifest.snapshots == (sound,)
