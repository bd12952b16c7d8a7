"""How much the router takes on at once: past its bound a request is refused early, with when to come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from groundplane.errors import Unavailable

RETRY_AFTER_SECONDS: Final = 1


class Admission:
    """Counts requests under way and refuses one too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.running = 0

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Hold a place while inside. Raises Unavailable (`overloaded`) where all are taken."""
        if self.running >= self._most:
            raise Unavailable(
                f"{self.running} such requests are under way: expected fewer than {self._most}; try again",
                code="overloaded",
                detail="overloaded",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
