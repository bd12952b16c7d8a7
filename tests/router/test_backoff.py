"""Pauses double, within bounds, and no two routers keep step."""

import random

from hypothesis import given
from hypothesis import strategies as st

from groundplane_router.backoff import Backoff


def backoff(seed=1):
    return Backoff(random.Random(seed), first_seconds=0.2, longest_seconds=5.0)


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_each_pause_lies_in_the_upper_half_of_its_doubling(seed, count):
    """Long enough to help a server that is down, never longer than its limit, after any number of failures."""
    pauses = backoff(seed)
    for number in range(count):
        longest = min(0.2 * 2.0**number, 5.0)
        assert longest / 2 <= pauses.next_seconds() <= longest


def test_two_routers_do_not_keep_step():
    """They lost the same server at the same moment."""
    assert backoff(1).next_seconds() != backoff(2).next_seconds()


def test_success_begins_again_with_the_shortest():
    """A change after an outage is followed at once."""
    pauses = backoff()
    for _ in range(10):
        pauses.next_seconds()
    pauses.reset()

    assert pauses.next_seconds() <= 0.2


def test_a_server_that_asks_for_longer_gets_it():
    """Retry-After is an order."""
    assert backoff().next_seconds(at_least=7.0) == 7.0
