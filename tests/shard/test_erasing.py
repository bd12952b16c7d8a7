"""A deleted corpus leaves nothing in its store, and nobody else loses anything."""

from contextlib import suppress

import msgspec
import pytest

from groundplane.errors import CorruptData, GroundplaneError, Superseded, Unavailable
from groundplane_shard.erasing import erase
from groundplane_shard.log import Layout
from groundplane_shard.log import operations as ops
from tests.shard.log.harness import LAYOUT, Harness, identity

OTHERS = ["t-acme/00000000-0000-4000-8000-00000000000b/MANIFEST", "t-acme/x", "t-other/MANIFEST", "platform/MANIFEST"]


@pytest.fixture
def harness():
    """Return a store with a corpus of a snapshot and two records behind it, and objects of others beside it."""
    found = Harness()
    writer = found.writer("w1", [b"a", b"b"], keep_snapshots=2)
    found.publish(writer, "00000001", b"a b", b"vectors")
    for payload in (b"c", b"d"):
        found.run(writer.append(payload))
    found.objects.update(dict.fromkeys(OTHERS, b"theirs"))
    return found


def left(harness):
    return sorted(key for key in harness.objects if key.startswith(LAYOUT.prefix))


def test_nothing_is_left_and_nobody_elses_is_touched(harness):
    """That is all that deletionPolicy Delete promises, and all that it may do."""
    before = len(left(harness))
    erased = harness.run(erase(identity("eraser")))

    assert left(harness) == []
    assert (erased.prefix, erased.objects) == (LAYOUT.prefix, before)
    assert set(harness.objects) == set(OTHERS)


def test_erasing_again_is_done_at_once(harness):
    """A Job is repeated when its pod is lost."""
    harness.run(erase(identity("eraser")))
    asked = len(harness.asked)

    assert harness.run(erase(identity("again"))).objects == 0
    assert {type(each) for each in harness.asked[asked:]} == {ops.Get, ops.List}


def test_a_writer_that_still_runs_commits_nothing_any_more(harness):
    """Else it would acknowledge what is deleted a moment later."""
    writer = harness.run(harness.replica("w2").take_over())
    steps = erase(identity("eraser"))
    waiting = harness.run_until(steps, ops.Delete)
    with pytest.raises(Superseded):
        harness.run(writer.append(b"late"))
    harness.finish(steps, waiting)

    assert left(harness) == []


def test_the_fence_stands_where_the_writer_goes_on_although_its_records_were_collected(harness):
    """Below the newest snapshot there is no record, and a fence in its place would stop nobody."""
    writer = harness.run(harness.replica("w2", keep_snapshots=1).take_over())
    harness.publish(writer, "00000002")
    harness.run(writer.collect())
    for key in [key for key in left(harness) if key.startswith(LAYOUT.log)]:
        del harness.objects[key]
    steps = erase(identity("eraser"))
    waiting = harness.run_until(steps, ops.Delete)
    with pytest.raises(Superseded):
        harness.run(writer.append(b"late"))
    harness.finish(steps, waiting)

    assert left(harness) == []


def test_a_writer_that_still_runs_publishes_nothing_any_more(harness):
    """A snapshot that it uploaded would stay for ever."""
    writer = harness.run(harness.replica("w2").take_over())
    steps = erase(identity("eraser"))
    waiting = harness.run_until(steps, ops.Delete)
    with pytest.raises(GroundplaneError):
        harness.publish(writer, "0000000e", b"x")
    harness.finish(steps, waiting)

    assert left(harness) == []


def test_what_is_written_while_it_is_deleted_goes_too(harness):
    """The listing at the end is the proof, not the list at the beginning."""
    late = iter([LAYOUT.object("snapshots/late"), LAYOUT.record(99)])

    def answer(operation):
        if isinstance(operation, ops.Delete) and (key := next(late, None)):
            harness.objects[key] = b"late"

    harness.answer = answer
    harness.run(erase(identity("eraser")))

    assert left(harness) == []


def test_a_prefix_that_is_written_to_for_ever_is_given_up_with_a_reason(harness):
    """The Job ends, and says what it saw."""

    def answer(operation):
        if isinstance(operation, ops.Delete):
            harness.objects[LAYOUT.object(f"snapshots/{len(harness.asked)}")] = b"more"

    harness.answer = answer
    with pytest.raises(Unavailable, match="still written to") as refusal:
        harness.run(erase(identity("eraser")))

    assert refusal.value.code == "still_written"


@pytest.mark.parametrize("cut", range(14))
def test_erasing_that_was_cut_off_anywhere_is_gone_on_with(harness, cut):
    """A pod may be killed after any of its deletes."""
    steps, done = erase(identity("eraser")), 0

    def answer(operation):
        nonlocal done
        if not isinstance(operation, (ops.Get, ops.List)):
            if done == cut:
                raise KeyboardInterrupt
            done += 1

    harness.answer = answer
    with suppress(KeyboardInterrupt):
        harness.run(steps)
    harness.answer = lambda operation: None
    harness.run(erase(identity("again")))

    assert left(harness) == []
    assert set(harness.objects) == set(OTHERS)


def test_a_manifest_of_another_owner_stops_it_before_any_delete(harness):
    """Whose objects they are is said by MANIFEST alone."""
    before = dict(harness.objects)
    with pytest.raises(CorruptData) as refusal:
        harness.run(erase(identity("eraser", owner="uid-b")))

    assert refusal.value.code == "foreign_owner"
    assert harness.objects == before


def test_a_damaged_manifest_stops_it_before_any_delete(harness):
    """Nobody can say whose they are."""
    harness.objects[LAYOUT.manifest] = b"rotten"
    before = dict(harness.objects)
    with pytest.raises(CorruptData):
        harness.run(erase(identity("eraser")))

    assert harness.objects == before


def test_an_incarnation_that_never_wrote_is_done_at_once():
    """Its bucket may never have been reached."""
    harness = Harness()
    nowhere = msgspec.structs.replace(identity(), layout=Layout("t-acme", "00000000-0000-4000-8000-00000000000c"))

    assert harness.run(erase(nowhere)).objects == 0


def test_a_store_that_does_not_answer_is_told(harness):
    """Nothing may be taken for gone."""
    harness.answer = lambda operation: ops.Unknown("lost") if isinstance(operation, ops.Delete) else None
    with pytest.raises(Unavailable):
        harness.run(erase(identity("eraser")))

    assert LAYOUT.manifest in harness.objects
