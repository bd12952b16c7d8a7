"""Pauses between attempts: they double, with jitter, so that routers that lost the same server do not come back in step."""

import random
from typing import Final

MOST_DOUBLINGS: Final = 30


class Backoff:
    """The next pause is drawn from the upper half of `first_seconds`, doubled after each, up to `longest_seconds`."""

    def __init__(self, rng: random.Random, *, first_seconds: float, longest_seconds: float) -> None:
        self._rng = rng
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._drawn = 0

    def reset(self) -> None:
        """Begin with the shortest pause again: something has worked."""
        self._drawn = 0

    def next_seconds(self, *, at_least: float = 0.0) -> float:
        """Return the next pause; never less than `at_least`, which a server's Retry-After asks for."""
        longest = min(self._first_seconds * 2.0**self._drawn, self._longest_seconds)
        self._drawn = min(self._drawn + 1, MOST_DOUBLINGS)
        return max(at_least, longest * self._rng.uniform(0.5, 1.0))
