"""Appending: what each answer of the store means for the write and for the writer."""

import pytest

from groundplane.errors import CorruptData, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import operations as ops
from groundplane_shard.log.steps import MAX_TRIES
from tests.shard.log.harness import LAYOUT, Harness

FIRST = LAYOUT.record(2)  # the first batch, behind the barrier


@pytest.fixture
def harness():
    return Harness()


@pytest.fixture
def writer(harness):
    return harness.writer()


def answers(harness, kind, *script):
    """Let the first operations of one kind be answered by the script: results, or functions of the operation."""
    left = list(script)

    def answer(operation):
        if not isinstance(operation, kind) or not left:
            return None
        result = left.pop(0)
        return result(operation) if callable(result) else result

    harness.answer = answer


def stored_but_unknown(harness):
    """Return an answer: the store does it, the caller does not learn of it."""

    def lose(operation):
        harness.store(operation)
        return ops.Unknown("lost")

    return lose


def test_append_is_in_the_log_before_it_is_applied_and_committed_after(harness, writer):
    """Nothing becomes visible that is not durable, nothing is acknowledged that is not visible."""
    harness.asked.clear()
    done = harness.run(writer.append(b"a"))

    assert [type(operation) for operation in harness.asked] == [ops.Create, ops.Apply]
    assert (done.sequence, done.digest) == (2, writer.position.digest)
    assert harness.state == [b"a"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([ops.Unknown("lost")], id="lost-request"),
        pytest.param([ops.Conflict()], id="409"),
        pytest.param([ops.Conflict(), ops.Unknown("lost"), ops.Conflict()], id="409-and-lost"),
        pytest.param(["stored"], id="lost-answer"),
        pytest.param(["stored", ops.PreconditionFailed()], id="412-on-own-retry"),
    ],
)
def test_write_is_settled_whatever_became_of_the_first_try(harness, writer, script):
    """The caller gets a plain acknowledgement as long as the store can be asked."""
    answers(harness, ops.Create, *(stored_but_unknown(harness) if item == "stored" else item for item in script))

    assert harness.run(writer.append(b"a")).sequence == 2
    assert harness.state == [b"a"]
    assert harness.log_keys() == [1, 2]


def test_retry_sends_the_same_bytes(harness, writer):
    """A first try that arrives late must be indistinguishable from the second."""
    answers(harness, ops.Create, ops.Unknown("lost"), ops.Unknown("lost"))
    harness.run(writer.append(b"a"))

    sent = {
        operation.data for operation in harness.asked if isinstance(operation, ops.Create) and operation.key == FIRST
    }
    assert len(sent) == 1


def test_foreign_record_supersedes_the_writer_for_good(harness, writer):
    """Another writer owns the sequence: going on would be a second history."""
    harness.objects[FIRST] = harness.objects[LAYOUT.record(1)]

    with pytest.raises(Superseded):
        harness.run(writer.append(b"a"))
    harness.objects.pop(FIRST)
    with pytest.raises(Superseded):
        harness.run(writer.append(b"a"))


def test_own_record_read_back_damaged_is_not_taken_for_another_writers(harness, writer):
    """The answer to the write is lost and the one to the read is cut: the write is stored all the same."""
    script = iter(["lost", "cut"])

    def answer(operation):
        if isinstance(operation, ops.Create) and next(script, "") == "lost":
            harness.store(operation)
            return ops.Unknown("lost")
        if isinstance(operation, ops.Get) and next(script, "") == "cut":
            return ops.Found(harness.objects[operation.key][:50], "cut")
        return None

    harness.answer = answer
    done = harness.run(writer.append(b"a"))

    assert (done.sequence, writer.stopped) == (2, None)


def test_damaged_bytes_at_the_next_sequence_are_corruption(harness, writer):
    """Bytes that are no record come from no writer, so the repair is a restore."""
    harness.objects[FIRST] = b"rotten"

    with pytest.raises(CorruptData):
        harness.run(writer.append(b"a"))


def test_refusal_before_any_doubt_leaves_the_writer_working(harness, writer):
    """A full disk fails the write, not the process."""
    answers(harness, ops.Create, ops.Refused("disk full"))
    with pytest.raises(Unavailable) as refusal:
        harness.run(writer.append(b"a"))

    assert not isinstance(refusal.value, OutcomeUnknown)
    assert harness.run(writer.append(b"b")).sequence == 2


def test_endless_409_certainly_stored_nothing(harness, writer):
    """The caller may be told "failed", since no try was accepted."""
    answers(harness, ops.Create, *[ops.Conflict()] * MAX_TRIES)
    with pytest.raises(Unavailable) as refusal:
        harness.run(writer.append(b"a"))

    assert not isinstance(refusal.value, OutcomeUnknown)
    assert writer.stopped is None


@pytest.mark.parametrize(
    "then", [ops.Unknown("lost"), ops.Refused("disk full"), ops.Conflict()], ids=["lost", "refused", "409"]
)
def test_doubt_that_cannot_be_settled_is_told_and_stops_the_writer(harness, writer, then):
    """One try may still arrive: neither success nor failure may be claimed, nor the sequence used again."""
    answers(harness, ops.Create, ops.Unknown("lost"), *[then] * MAX_TRIES)

    with pytest.raises(OutcomeUnknown):
        harness.run(writer.append(b"a"))
    with pytest.raises(Unavailable):
        harness.run(writer.append(b"b"))
    assert harness.state == []


def test_restart_after_doubt_finds_what_was_stored(harness):
    """The log decides what happened; the caller repeats the idempotent write."""
    replica = harness.replica()
    writer = harness.run(replica.take_over())
    answers(harness, ops.Create | ops.Get, stored_but_unknown(harness), *[ops.Unknown("lost")] * 2 * MAX_TRIES)
    with pytest.raises(OutcomeUnknown):
        harness.run(writer.append(b"a"))
    harness.answer = lambda operation: None

    harness.run(replica.open())
    harness.run(replica.take_over())
    assert harness.state == [b"a"]


def test_second_append_is_refused_while_one_is_in_flight(harness, writer):
    """The log has no gaps because record n+1 is not sent before n is known to be stored."""
    first = writer.append(b"a")
    next(first)

    with pytest.raises(Unavailable) as refusal:
        next(writer.append(b"b"))
    assert refusal.value.code == "append_in_flight"
    assert writer.stopped is None


def test_append_that_was_cut_off_stops_the_writer(harness, writer):
    """After a cancelled append nobody knows what is in the log or in the memtable."""
    append = writer.append(b"a")
    next(append)
    append.close()

    with pytest.raises(Unavailable) as refusal:
        harness.run(writer.append(b"b"))
    assert refusal.value.code == "append_unfinished"


@pytest.mark.parametrize("register", ["embedding", "analyser"])
def test_identity_is_fixed_by_the_first_write(harness, writer, register):
    """Vectors of two models, or terms of two analysers, are never mixed in one corpus."""
    call = {
        "embedding": lambda name: writer.register_embedding({"id": name, "dimension": 3}),
        "analyser": writer.register_analyser,
    }[register]
    harness.run(call("one"))
    stored = harness.objects[LAYOUT.manifest]
    harness.run(call("one"))

    assert harness.objects[LAYOUT.manifest] == stored
    with pytest.raises(InvalidInput, match="'one'"):
        harness.run(call("two"))


def test_registered_identities_are_kept_as_they_are(harness, writer):
    """The protocol gives the identity no meaning of its own."""
    harness.run(writer.register_embedding({"id": "e1", "probes": [[0.25, -1.5]], "format": {"name": "e5"}}))

    assert harness.replica("w2").manifest.embeddings == (
        {"id": "e1", "probes": [[0.25, -1.5]], "format": {"name": "e5"}},
    )


def test_superseded_writer_cannot_change_manifest(harness, writer):
    """Its epoch is over, whatever it still believes."""
    harness.writer("w2")

    with pytest.raises(Superseded):
        harness.run(writer.register_analyser("snowball-english"))


def test_supersession_found_beside_an_append_outlasts_it(harness, writer):
    """The append that was under way is committed, being in the log before the barrier; it must not revive the writer."""
    append = writer.append(b"a")
    pending = harness.run_until(append, ops.Apply)
    harness.writer("w2")
    with pytest.raises(Superseded):
        harness.run(writer.register_analyser("snowball-english"))
    harness.finish(append, pending)

    assert isinstance(writer.stopped, Superseded)
    with pytest.raises(Superseded):
        harness.run(writer.append(b"b"))


def test_change_that_was_overtaken_is_decided_again_on_the_new_version(harness, writer):
    """Two changes by one writer may run side by side; neither may undo the other."""
    first = writer.register_analyser("snowball-english")
    pending = harness.run_until(first, ops.Replace)
    harness.run(writer.register_embedding({"id": "e1"}))

    harness.finish(first, pending)

    assert (writer.manifest.analyser_id, writer.manifest.embeddings) == ("snowball-english", ({"id": "e1"},))


def test_change_whose_outcome_cannot_be_read_back_is_told_as_unknown(harness, writer):
    """The store takes the change and is gone: "certainly not changed" would be a lie."""

    def answer(operation):
        if isinstance(operation, ops.Replace):
            harness.store(operation)
            harness.answer = lambda operation: ops.Unknown("down")
            return ops.Unknown("lost")
        return None

    harness.answer = answer

    with pytest.raises(OutcomeUnknown):
        harness.run(writer.register_analyser("words"))
