"""A tenant and a subject belong to one resource, in whatever order things happen."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.wire.names import corpus_key
from groundplane_operator.claims import Claimant, kept_claims, key_holder, subject_holder, try_refuse
from groundplane_operator.reasons import Reason

KEYS = st.sampled_from([corpus_key("a"), corpus_key("b"), corpus_key("")])
SUBJECTS = st.frozensets(st.sampled_from(["s1", "s2", "s3"]), max_size=2)


def claimant(uid, *, created="2026-01-01", wants="a", subjects=(), holds=None, holds_subjects=()):
    return Claimant(
        name=f"agents/{uid}",
        uid=uid,
        created=created,
        wants_key=corpus_key(wants),
        wants_subjects=frozenset(subjects),
        holds_key=None if holds is None else corpus_key(holds),
        holds_subjects=frozenset(holds_subjects),
    )


@st.composite
def installations(draw):
    """Return resources that want things and have been granted nothing yet."""
    size = draw(st.integers(1, 6))
    return [
        Claimant(
            name=f"agents/{uid}",
            uid=str(uid),
            created=draw(st.sampled_from(["2026-01-01", "2026-01-02"])),
            wants_key=draw(KEYS),
            wants_subjects=draw(SUBJECTS),
        )
        for uid in range(size)
    ]


def reason_of(one, other):
    """Return why `one` is refused beside `other`."""
    refusal = try_refuse(one, [one, other])
    return refusal.reason if refusal is not None else None


def grant(one):
    return msgspec.structs.replace(one, holds_key=one.wants_key, holds_subjects=one.wants_subjects)


def settle(claimants, order):
    """Let each resource have its pass, in `order`, as often as it is named there."""
    state = {each.uid: each for each in claimants}
    for uid in order:
        one = state[uid]
        if try_refuse(one, list(state.values())) is None:
            state[uid] = grant(one)
    return state


@given(installations(), st.data())
@settings(deadline=None)
def test_nothing_is_ever_held_by_two_whatever_the_order_of_passes(claimants, data):
    """Two corpora of one tenant would be two truths; a subject of two corpora would see both."""
    uids = [each.uid for each in claimants]
    state = settle(claimants, data.draw(st.lists(st.sampled_from(uids), max_size=20)))
    held = [each for each in state.values() if each.holds_key is not None]

    assert len({each.holds_key for each in held}) == len(held)
    subjects = [subject for each in held for subject in each.holds_subjects]
    assert len(set(subjects)) == len(subjects)


@given(installations(), st.data())
@settings(deadline=None)
def test_every_claim_has_exactly_one_holder_and_only_that_one_is_not_refused(claimants, data):
    """Nobody waits for nobody: as long as somebody wants a tenant, one resource can have it."""
    uids = [each.uid for each in claimants]
    state = list(settle(claimants, data.draw(st.lists(st.sampled_from(uids), max_size=20))).values())
    for key in {each.wants_key for each in state}:
        wanting = [each for each in state if each.wants_key == key]
        refused = [
            each for each in wanting if (found := try_refuse(each, state)) and found.reason == Reason.CORPUS_CLAIMED
        ]
        assert len(wanting) - len(refused) == 1
        assert key_holder(key, state) not in refused


@given(installations(), st.permutations(range(6)))
@settings(deadline=None)
def test_the_order_of_a_list_does_not_decide(claimants, order):
    """Caches give lists in any order."""
    shuffled = [claimants[place] for place in order if place < len(claimants)]

    for each in claimants:
        assert try_refuse(each, claimants) == try_refuse(each, shuffled)


def test_the_older_of_two_that_hold_nothing_gets_it():
    """Whoever comes later must not be able to take a tenant over."""
    older, younger = claimant("z", created="2026-01-01"), claimant("a", created="2026-01-02")

    assert try_refuse(older, [younger, older]) is None
    assert reason_of(younger, older) == Reason.CORPUS_CLAIMED


def test_of_two_made_in_one_second_the_uid_decides():
    """Times have whole seconds."""
    first = claimant("a")

    assert key_holder(corpus_key("a"), [claimant("b"), first]) == first


def test_a_holder_keeps_what_it_has_against_an_older_one():
    """An edit of another resource must not take away a tenant that is served."""
    holder = claimant("b", created="2026-01-02", holds="a")
    older = claimant("a", created="2026-01-01")

    assert try_refuse(holder, [older, holder]) is None
    refusal = try_refuse(older, [older, holder])
    assert refusal is not None
    assert refusal.reason == Reason.CORPUS_CLAIMED
    assert "agents/b" in refusal.message


def test_a_subject_that_an_edit_gave_up_is_held_until_the_status_says_so():
    """The router still lets it in until then."""
    holder = claimant("b", holds="a", holds_subjects=["s1"])
    other = claimant("a", wants="b", subjects=["s1"])

    assert subject_holder("s1", [holder, other]) == holder
    assert reason_of(other, holder) == Reason.SUBJECT_CLAIMED


def test_what_no_one_wants_has_no_holder():
    """A free tenant is not held by accident."""
    assert key_holder(corpus_key("z"), [claimant("a")]) is None
    assert subject_holder("s9", [claimant("a")]) is None


@pytest.mark.parametrize("uid", ["a", "b"])
def test_of_two_that_both_hold_one_thing_the_older_keeps_it(uid):
    """It cannot happen; were it to, the router's directory must not have both."""
    both = [
        claimant("a", created="2026-01-01", holds="a", holds_subjects=["s1"]),
        claimant("b", created="2026-01-02", holds="a", holds_subjects=["s1", "s2"]),
    ]
    key, subjects = kept_claims(next(each for each in both if each.uid == uid), both)

    assert key == (corpus_key("a") if uid == "a" else None)
    assert subjects == ({"s1"} if uid == "a" else {"s2"})
