"""Keys are replaced without one refused request, and a crash between any two steps loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import CorruptData
from groundplane.tokens import SigningKey
from groundplane_operator.keys import (
    KEEP_PREVIOUS_SECONDS,
    KeyRing,
    new_ring,
    parse_secret,
    public_files,
    render_secret,
    try_next_step,
)

DAY = 86_400.0
NOW = 1_700_000_000.0


def _ids(ring):
    return frozenset(key.id for key in ring.published)


def test_a_ring_comes_back_from_its_secret_as_it_was():
    """The Secret is the whole state of a rotation."""
    signing, following = SigningKey.generate(), SigningKey.generate()
    ring = KeyRing(role="router", signing=signing, next=following, changed_at=NOW + 0.25)

    found = parse_secret("router", render_secret(ring, "groundplane-system"))

    assert found.signing.id == signing.id
    assert [key.id for key in found.published] == [signing.id, following.id]
    assert found.next is not None
    assert found.changed_at == NOW + 0.25


def test_a_damaged_secret_is_reported_and_not_replaced():
    """New keys would lock every router out: a person decides."""
    secret = render_secret(new_ring("operator", now=NOW), "groundplane-system")
    secret["data"]["signing.pem"] = "bm8ga2V5"

    with pytest.raises(CorruptData, match="groundplane-operator-key"):
        parse_secret("operator", secret)


def test_a_key_signs_only_once_every_shard_knows_it():
    """A shard that has not read the new key yet would refuse its router."""
    ring = new_ring("router", now=NOW)
    published = try_next_step(ring, [], rotate_seconds=DAY, now=NOW + DAY)
    assert published is not None
    assert published.next is not None

    behind = try_next_step(published, [_ids(published), _ids(ring)], rotate_seconds=DAY, now=NOW + DAY)
    assert behind is None

    switched = try_next_step(published, [_ids(published)] * 2, rotate_seconds=DAY, now=NOW + DAY)
    assert switched is not None
    assert switched.signing.id == published.next.id


def test_the_key_that_signed_before_stays_published_until_nobody_can_still_use_it():
    """A router may go on with the old key until its mounted Secret is renewed."""
    ring = KeyRing(role="router", signing=SigningKey.generate(), previous=SigningKey.generate(), changed_at=NOW)

    assert try_next_step(ring, [], rotate_seconds=DAY, now=NOW + KEEP_PREVIOUS_SECONDS - 1) is None
    after = try_next_step(ring, [], rotate_seconds=DAY, now=NOW + KEEP_PREVIOUS_SECONDS)
    assert after is not None
    assert after.previous is None


def test_a_young_key_is_left_alone():
    """Nothing is written in steady state."""
    assert try_next_step(new_ring("router", now=NOW), [], rotate_seconds=DAY, now=NOW + DAY - 1) is None


def test_no_text_of_a_ring_shows_a_key():
    """A ring may stand in a log or a traceback by mistake."""
    ring = new_ring("router", now=NOW)

    assert "PRIVATE" not in f"{ring!r} {ring}"
    assert all("PRIVATE" not in pem for pem in public_files([ring]).values())


# One event of a rotation's life: time passes, one shard reads its ConfigMap, or the operator takes a step.
_EVENT = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, KEEP_PREVIOUS_SECONDS, DAY])),
    st.tuples(st.just("read"), st.integers(0, 2)),
    st.tuples(st.just("step"), st.just(0)),
)


@given(st.lists(_EVENT, max_size=60))
def test_in_whatever_order_things_happen_every_shard_knows_the_key_that_signs(events):
    """Whenever the signer is switched, no shard that runs refuses the new key."""
    ring, now = new_ring("router", now=NOW), NOW
    shards = [_ids(ring)] * 3
    for kind, value in events:
        if kind == "wait":
            now += value
        elif kind == "read":
            shards[value] = _ids(ring)
        else:
            ring = try_next_step(ring, shards, rotate_seconds=DAY, now=now) or ring

        assert all(ring.signing.id in known for known in shards)
