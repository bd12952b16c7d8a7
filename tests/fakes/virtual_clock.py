"""A clock that stands still until a test moves it; whoever sleeps is woken in order."""

import asyncio
import heapq
from itertools import count


class VirtualClock:
    """`sleep` waits for `advance`; with `runs=True` time jumps to the next waker as soon as somebody sleeps."""

    def __init__(self, now: float = 1_700_000_000.0, *, runs: bool = False) -> None:
        self._started = now
        self._steady = 1_000.0
        self._numbers = count()
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._runs = runs

    def now(self) -> float:
        return self._started + self._steady - 1_000.0

    def monotonic(self) -> float:
        return self._steady

    async def sleep(self, seconds: float) -> None:
        if self._runs:
            self._steady += seconds
            await asyncio.sleep(0)
            return
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self._steady + seconds, next(self._numbers), waker))
        await waker

    @property
    def sleeping(self) -> int:
        """How many sleep."""
        return sum(not waker.done() for _, _, waker in self._sleeping)

    def advance(self, seconds: float) -> None:
        """Move the time and wake all whose time has come."""
        self._steady += seconds
        while self._sleeping and self._sleeping[0][0] <= self._steady:
            _, _, waker = heapq.heappop(self._sleeping)
            if not waker.done():
                waker.set_result(None)
