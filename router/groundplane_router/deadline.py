"""The moment by which one request must be answered, handed down through every stage of it."""

from groundplane.process.clock import Clock

LEAST_SECONDS = 0.001


class Deadline:
    """A point in monotonic time; each stage asks what is left of it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """seconds: from now."""
        self._clock = clock
        self._ends_at = clock.monotonic() + seconds

    @property
    def remaining_seconds(self) -> float:
        """Return the seconds left, never less than a millisecond: as a timeout it then fires at once, and 0 would mean none."""
        return max(LEAST_SECONDS, self._ends_at - self._clock.monotonic())

    def part(self, share: float) -> "Deadline":
        """Return an earlier deadline: `share` of the time left, so that a slow stage leaves some for the next."""
        return Deadline(self._clock, self.remaining_seconds * share)


class Stopwatch:
    """Time since it was made, until it is stopped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._stopped: float | None = None

    def stop(self) -> None:
        """Hold the time; idempotent."""
        if self._stopped is None:
            self._stopped = self._clock.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds passed."""
        return (self._clock.monotonic() if self._stopped is None else self._stopped) - self._started

    @property
    def ms(self) -> float:
        """Return the milliseconds passed, to a hundredth."""
        return round(self.seconds * 1_000, 2)
