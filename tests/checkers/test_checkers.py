"""Checkers pass what a working system may do, and find every anomaly planted into it."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkers.checkers import (
    CHECKERS,
    acknowledged_seen,
    check,
    documents_whole,
    nothing_unattempted,
    sequences_monotonic,
)
from tests.checkers.generating import Recorder
from tests.checkers.history import Event, OperationId, operations_of
from tests.checkers.linearizable import Undecided, linearizable

STEPS = st.integers(0, 60)
SEEDS = st.integers(0, 2**32)


def recorder(seed, steps):
    """Return a recorder that has seen `steps` things happen."""
    found = Recorder(random.Random(seed))
    found.run(steps)
    return found


def names(history):
    """Return the checkers that find something."""
    return {anomaly.checker for anomaly in check(history)}


def line(number, kind, action, document=None, **fields):
    """Return one event on the one document of the small histories."""
    options = {"observer": f"o{number}", "key": "k", **fields}
    return Event(operation=OperationId(number), type=kind, action=action, document=document, **options)


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS, steps=st.integers(0, 120))
def test_history_of_a_working_system_passes(seed, steps):
    """A checker that cries wolf is switched off."""
    assert check(recorder(seed, steps).history) == []


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_lost_document_is_found(seed, before, after):
    """An acknowledged write that is not there any more is the worst that can happen."""
    found = recorder(seed, before)
    found.call("put", "lost", found.fresh_document())
    found.run(after)
    found.call("read", "lost", answer=None)

    assert names(found.history) == {"acknowledged_seen", "linearizable"}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_document_that_nobody_put_is_found(seed, before, after):
    """Nothing may be invented."""
    found = recorder(seed, before)
    found.call("read", "a", answer=("out of thin air",))
    found.run(after)

    assert names(found.history) == {"nothing_unattempted", "documents_whole", "linearizable"}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_document_put_together_from_two_is_found(seed, before, after):
    """A batch, and a document in it, is visible whole or not at all."""
    found = recorder(seed, before)
    found.call("put", "torn", ("old-1", "old-2"))
    found.run(after)
    found.call("put", "torn", ("new-1", "new-2"))
    found.call("read", "torn", answer=("new-1", "old-2"))

    assert names(found.history) == {"documents_whole", "linearizable"}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_document_out_of_date_is_found(seed, before, after):
    """What was replaced, and acknowledged as replaced, must not come back."""
    found = recorder(seed, before)
    found.call("put", "stale", ("old",))
    found.run(after)
    found.call("put", "stale", ("new",))
    found.call("read", "stale", answer=("old",))

    assert names(found.history) == {"linearizable"}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_deleted_document_that_returns_is_found(seed, before, after):
    """Whoever deleted a document relies on its being gone."""
    found = recorder(seed, before)
    found.call("put", "gone", ("old",))
    found.run(after)
    found.call("delete", "gone")
    found.call("read", "gone", answer=("old",))

    assert names(found.history) == {"linearizable"}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, before=STEPS, after=STEPS)
def test_sequence_that_falls_is_found(seed, before, after):
    """A caller that saw sequence s must never be shown less."""
    found = recorder(seed, before)
    found.call("put", "s", ("one",))
    found.run(after)
    found.call("read", "s", answer=("one",))
    found.history[-1] = msgspec.structs.replace(found.history[-1], sequence=0)

    assert names(found.history) == {"sequences_monotonic"}


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, steps=st.integers(20, 120), choice=st.integers(0, 2**16))
def test_any_read_altered_to_another_keys_document_is_found(seed, steps, choice):
    """A mix-up of documents anywhere in the history, under whatever concurrency, is an anomaly."""
    history = recorder(seed, steps).history
    reads = [at for at, event in enumerate(history) if event.type == "ok" and event.action == "read"]
    if not reads:
        return
    at = reads[choice % len(reads)]
    history[at] = msgspec.structs.replace(history[at], document=("of another key",))

    assert {"nothing_unattempted", "documents_whole", "linearizable"} <= names(history)


def test_failed_write_that_is_seen_is_found():
    """Who was told "not done" may do it again; then it would be there twice."""
    history = [
        line(1, "invoke", "put", ("x",)),
        line(1, "fail", "put"),
        line(2, "invoke", "read"),
        line(2, "ok", "read", ("x",)),
    ]

    assert {anomaly.checker for anomaly in nothing_unattempted(operations_of(history))} == {"nothing_unattempted"}
    assert len(documents_whole(operations_of(history))) == 1


def test_write_that_began_after_the_read_is_not_its_source():
    """An effect before its cause."""
    history = [
        line(1, "invoke", "read"),
        line(1, "ok", "read", ("x",)),
        line(2, "invoke", "put", ("x",)),
        line(2, "ok", "put"),
    ]

    assert names(history) == {"nothing_unattempted", "documents_whole", "linearizable"}


@pytest.mark.parametrize("end", ["unknown", None], ids=["unknown", "never-ended"])
@pytest.mark.parametrize("seen", [None, ("x",)], ids=["not-seen", "seen"])
def test_write_of_unknown_outcome_may_be_seen_or_not(end, seen):
    """Both are what the caller was told to expect."""
    ends = [line(1, end, "put")] if end else []
    history = [line(1, "invoke", "put", ("x",)), *ends, line(2, "invoke", "read"), line(2, "ok", "read", seen)]

    assert check(history) == []


def test_write_of_unknown_outcome_does_not_come_and_go():
    """Once it was seen it has happened; without a deletion it stays."""
    history = [
        line(1, "invoke", "put", ("x",)),
        line(1, "unknown", "put"),
        line(2, "invoke", "read"),
        line(2, "ok", "read", ("x",)),
        line(3, "invoke", "read"),
        line(3, "ok", "read", None),
    ]

    assert names(history) == {"linearizable"}


def test_delete_of_unknown_outcome_excuses_a_missing_document():
    """It may have happened, at any time since it was asked for."""
    history = [
        line(1, "invoke", "delete"),
        line(1, "unknown", "delete"),
        line(2, "invoke", "put", ("x",)),
        line(2, "ok", "put"),
        line(3, "invoke", "read"),
        line(3, "ok", "read", None),
    ]

    assert acknowledged_seen(operations_of(history)) == []
    assert check(history) == []


def test_failed_delete_excuses_nothing():
    """The caller was told that the document is still there."""
    history = [
        line(1, "invoke", "put", ("x",)),
        line(1, "ok", "put"),
        line(2, "invoke", "delete"),
        line(2, "fail", "delete"),
        line(3, "invoke", "read"),
        line(3, "ok", "read", None),
    ]

    assert names(history) == {"acknowledged_seen", "linearizable"}


def test_two_readers_must_agree_on_the_order_of_concurrent_writes():
    """Each order alone would be right; both together are not one register."""
    history = [
        line(1, "invoke", "put", ("x",)),
        line(2, "invoke", "put", ("y",)),
        *(line(3, kind, "read", ("x",) if kind == "ok" else None) for kind in ("invoke", "ok")),
        *(line(4, kind, "read", ("y",) if kind == "ok" else None) for kind in ("invoke", "ok")),
        *(line(5, kind, "read", ("x",) if kind == "ok" else None) for kind in ("invoke", "ok")),
        line(1, "ok", "put"),
        line(2, "ok", "put"),
    ]

    assert names(history) == {"linearizable"}


def test_write_with_a_lower_sequence_than_one_acknowledged_before_is_found():
    """The log is the order of acknowledgements."""
    history = [
        line(1, "invoke", "put", ("x",)),
        line(1, "ok", "put", sequence=7),
        line(2, "invoke", "put", ("y",)),
        line(2, "ok", "put", sequence=6),
    ]

    assert [anomaly.position for anomaly in sequences_monotonic(operations_of(history))] == [3]


def test_search_that_is_too_large_is_given_up_loudly():
    """A bound that is silently reached would pass everything."""
    history = [line(number, "invoke", "delete") for number in range(12)]
    history += [line(50, "invoke", "put", ("x",)), line(50, "ok", "put"), line(51, "invoke", "read")]
    history += [line(51, "ok", "read", ("nobody put this",))]

    with pytest.raises(Undecided):
        linearizable(operations_of(history), max_states=100)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([line(1, "ok", "put")], id="end-without-invoke"),
        pytest.param([line(1, "invoke", "read"), line(1, "invoke", "read")], id="two-invokes"),
        pytest.param([line(1, "invoke", "read"), line(1, "ok", "read"), line(1, "fail", "read")], id="two-ends"),
    ],
)
def test_record_that_is_not_well_formed_is_refused(history):
    """A recorder that mixes operations up would make every verdict worthless."""
    with pytest.raises(ValueError, match="expected one invoke"):
        operations_of(history)


def test_every_checker_is_asked():
    """A checker that is not in the list protects nobody."""
    assert [checker.__name__ for checker in CHECKERS] == [
        "acknowledged_seen",
        "nothing_unattempted",
        "documents_whole",
        "sequences_monotonic",
        "linearizable",
    ]
