"""MANIFEST as a process opens, reads and changes it: never made twice, never believed if older or somebody else's."""

import msgspec
import pytest

from groundplane.errors import CorruptData
from groundplane_shard.log import Replica
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import operations as ops
from tests.shard.log.harness import LAYOUT, Harness, identity

BARRIER = 1  # a first writer's barrier takes the first sequence


@pytest.fixture
def harness():
    return Harness()


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


def test_manifest_versions_never_have_equal_bytes(harness):
    """Reading back settles an unknown change only if no two versions are equal."""
    versions = set()
    for name in ("w1", "w2", "w3"):
        harness.writer(name)
        versions.add(harness.objects[LAYOUT.manifest])

    counters = [manifest_codec.decode(data, key="m").counter for data in versions]
    assert sorted(counters) == [2, 3, 4]
    assert msgspec.structs.replace(manifest_codec.decode(versions.pop(), key="m")).epoch >= 1


def test_manifest_older_than_the_log_is_noticed(harness):
    """The same by a process that never saw the newer MANIFEST: the log's epoch tells."""
    harness.writer(payloads=[b"a"])
    old = harness.objects[LAYOUT.manifest]
    harness.writer("w2", payloads=[b"b"])
    harness.objects[LAYOUT.manifest] = old

    with pytest.raises(CorruptData, match="an old one was put back") as refusal:
        harness.replica("w3")
    assert refusal.value.code == "went_back"
