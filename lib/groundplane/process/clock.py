"""Time as a parameter: everything that waits or measures takes a `Clock`, so tests can hand in a virtual one."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. No safety rule may rest on it: it may jump by an hour in either direction."""

    def now(self) -> float:
        """Return wall-clock seconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards, from an arbitrary origin."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; cancellable."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return wall-clock seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never run backwards, from an arbitrary origin."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; cancellable."""
        await asyncio.sleep(seconds)
