"""One deadline for the whole request, whoever spends it."""

from hypothesis import given
from hypothesis import strategies as st

from groundplane_router.deadline import LEAST_SECONDS, Deadline, Stopwatch
from tests.fakes.clock import ManualClock


def test_what_one_stage_spends_the_next_has_not():
    """Else three stages would take three deadlines."""
    clock = ManualClock()
    deadline = Deadline(clock, 5.0)
    clock.advance(3.0)

    assert deadline.remaining_seconds == 2.0


def test_a_wall_clock_that_jumps_changes_nothing():
    """An hour forwards must not end every request, nor an hour back keep them for ever."""
    clock = ManualClock()
    deadline = Deadline(clock, 5.0)
    clock.wall += 3_600

    assert deadline.remaining_seconds == 5.0


@given(st.floats(0.01, 60), st.floats(0, 120), st.floats(0.01, 1))
def test_a_part_never_outlasts_the_whole_and_no_timeout_is_zero(seconds, spent, share):
    """Zero means "no timeout" to many a library."""
    clock = ManualClock()
    deadline = Deadline(clock, seconds)
    part = deadline.part(share)
    clock.advance(spent)

    assert LEAST_SECONDS <= part.remaining_seconds <= max(deadline.remaining_seconds, LEAST_SECONDS)


def test_a_stopwatch_holds_once_it_is_stopped():
    """What is reported is the stage, not the time until somebody reads it."""
    clock = ManualClock()
    watch = Stopwatch(clock)
    clock.advance(0.25)
    watch.stop()
    clock.advance(9)
    watch.stop()

    assert (watch.seconds, watch.ms) == (0.25, 250.0)
