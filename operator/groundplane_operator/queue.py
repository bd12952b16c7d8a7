"""Which corpora are to be looked at, and when: a key stands here at most once, and has at most one pass at a time.

    add(key) ─► due at once ─► a pass, while fewer than `max_passes` run ─► due again when the pass says so
                    ▲                                │ fails
                    └──── backoff with jitter ◄──────┘

An event carries no content: what woke a pass is no argument of it, so lost, repeated and late events change nothing. A
key that is added during its own pass is due again after it. Of two times the earlier one stands.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from groundplane.errors import GroundplaneError, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import MAX_FIELD_CHARACTERS, Log, describe_traceback

FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 60.0


class Key(msgspec.Struct, frozen=True, order=True):
    """One TenantCorpus."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


Pass = Callable[[Key], Awaitable[float | None]]
"""Brings one corpus a step nearer to its spec; returns the seconds until it wants to look again, None for never."""


class WorkQueue:
    """Keys with the time at which each is due. Finding the first is a scan: a thousand corpora take 0.1 ms."""

    def __init__(self, clock: Clock, rng: random.Random, *, max_passes: int) -> None:
        """max_passes: passes at the same time, at least 1; rng: spreads the retries of keys that failed together."""
        self._clock = clock
        self._rng = rng
        self._max_passes = max_passes
        self._log = Log("operator.queue")
        self._due: dict[Key, float] = {}
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after_seconds: float = 0.0) -> None:
        """Have `key` looked at after `after_seconds`, or when it is due already if that is earlier."""
        due = self._clock.monotonic() + after_seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    @property
    def depth(self) -> int:
        """Return how many keys are due and wait for a pass."""
        now = self._clock.monotonic()
        return sum(due <= now for due in self._due.values())

    @property
    def oldest_age_seconds(self) -> float:
        """Return for how long the key that waits longest has been due; 0 if none waits."""
        return max(0.0, self._clock.monotonic() - min(self._due.values(), default=float("inf")))

    async def run(self, perform: Pass) -> None:
        """Perform passes for ever; cancelled, it cancels those under way. One corpus's failure disturbs no other."""
        async with asyncio.TaskGroup() as passes:
            while True:
                key = await self._next()
                del self._due[key]
                self._running.add(key)
                passes.create_task(self._perform(key, perform))

    async def _next(self) -> Key:
        """Return the key that is due first, of those without a pass, once its time has come and there is room for a pass."""
        while True:
            self._changed.clear()
            waiting = [(due, key) for key, due in self._due.items() if key not in self._running]
            if not waiting or len(self._running) >= self._max_passes:
                await self._changed.wait()
                continue
            due, key = min(waiting)
            remaining_seconds = due - self._clock.monotonic()
            if remaining_seconds <= 0:
                return key
            await self._wait(remaining_seconds)

    async def _wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a key is added or a pass ends."""
        waiters = {asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._clock.sleep(seconds))}
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)

    async def _perform(self, key: Key, perform: Pass) -> None:
        """Run one pass and put its key back. An outermost loop: whatever a pass raises, the operator goes on."""
        try:
            after_seconds = await perform(key)
            self._failures.pop(key, None)
        except Exception as error:  # noqa: BLE001 - a bug in one corpus's pass must not stop the others'
            after_seconds = self._backoff_seconds(key, error)
            self._report(key, error, after_seconds)
        finally:
            self._running.discard(key)
            self._changed.set()
        if after_seconds is not None:
            self.add(key, after_seconds)

    def _backoff_seconds(self, key: Key, error: Exception) -> float:
        """Return the time to the next try: doubled at each failure in a row, spread, and not before the server allows it."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16))
        wanted = error.retry_after_seconds if isinstance(error, Unavailable) else None
        return (wanted or 0.0) + longest * self._rng.uniform(0.5, 1.0)

    def _report(self, key: Key, error: Exception, after_seconds: float) -> None:
        fields = {"corpus": str(key), "retry_seconds": round(after_seconds, 1)}
        if isinstance(error, GroundplaneError):
            self._log.warning("pass_failed", code=error.code, message=error.message, **fields)
        else:
            traceback = describe_traceback(error)[-MAX_FIELD_CHARACTERS:]
            self._log.error("pass_failed", bug=type(error).__name__, traceback=traceback, **fields)
