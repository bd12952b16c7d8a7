"""Every corpus gets its pass in time, never two at once, and one that fails disturbs no other."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from groundplane.errors import Unavailable
from groundplane_operator.queue import MAX_BACKOFF_SECONDS, Key, WorkQueue
from tests.fakes.virtual_clock import VirtualClock

ACME, GLOBEX = Key("agents", "acme"), Key("agents", "globex")


class Passes:
    """Records passes; each ends when the test says so, or at once."""

    def __init__(self) -> None:
        self.begun: list[Key] = []
        self.running: list[Key] = []
        self.gates: dict[Key, asyncio.Event] = {}
        self.answers: dict[Key, Callable[[], float | None]] = {}

    async def __call__(self, key: Key) -> float | None:
        assert key not in self.running
        self.begun.append(key)
        self.running.append(key)
        try:
            if key in self.gates:
                await self.gates[key].wait()
            return self.answers.get(key, lambda: None)()
        finally:
            self.running.remove(key)


@asynccontextmanager
async def _running(queue: WorkQueue, perform: Callable[[Key], Awaitable[float | None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(perform))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _settle() -> None:
    """Let everything run that can run at this time."""
    for _ in range(50):
        await asyncio.sleep(0)


def _queue(clock: VirtualClock, max_passes: int = 4) -> WorkQueue:
    return WorkQueue(clock, random.Random(1), max_passes=max_passes)


def _fail() -> float | None:
    raise Unavailable("the API server is away")


async def test_a_key_added_many_times_gets_one_pass():
    """A burst of events about one corpus costs one pass."""
    passes, queue = Passes(), _queue(VirtualClock())
    for _ in range(100):
        queue.add(ACME)
    async with _running(queue, passes):
        await _settle()

    assert passes.begun == [ACME]


async def test_a_key_added_during_its_pass_gets_another_one():
    """What changed after the pass had looked is not lost."""
    passes, queue = Passes(), _queue(VirtualClock())
    passes.gates[ACME] = asyncio.Event()
    queue.add(ACME)
    async with _running(queue, passes):
        await _settle()
        queue.add(ACME)
        await _settle()
        assert passes.begun == [ACME]
        passes.gates[ACME].set()
        await _settle()

    assert passes.begun == [ACME, ACME]


async def test_no_more_passes_run_than_allowed():
    """A thousand corpora at once do not become a thousand requests at once."""
    passes, queue = Passes(), _queue(VirtualClock(), max_passes=3)
    keys = [Key("agents", f"c{number}") for number in range(10)]
    for key in keys:
        passes.gates[key] = asyncio.Event()
        queue.add(key)
    async with _running(queue, passes):
        await _settle()
        assert len(passes.running) == 3
        for key in keys:
            passes.gates[key].set()
        await _settle()

    assert sorted(passes.begun) == sorted(keys)


async def test_a_slow_corpus_does_not_hold_up_another():
    """Passes of different corpora are independent."""
    passes, queue = Passes(), _queue(VirtualClock())
    passes.gates[ACME] = asyncio.Event()
    queue.add(ACME)
    queue.add(GLOBEX)
    async with _running(queue, passes):
        await _settle()

        assert passes.begun == [ACME, GLOBEX]
        assert passes.running == [ACME]


async def test_a_pass_that_asks_for_another_look_gets_it_when_it_is_due():
    """A requeue is a time, and nothing happens before it."""
    clock = VirtualClock()
    passes, queue = Passes(), _queue(clock)
    passes.answers[ACME] = lambda: 30.0
    queue.add(ACME)
    async with _running(queue, passes):
        await _settle()
        clock.advance(29)
        await _settle()
        assert len(passes.begun) == 1
        clock.advance(2)
        await _settle()

    assert len(passes.begun) == 2


async def test_an_event_is_served_before_a_requeue_that_is_due_later():
    """Of two times the earlier one stands."""
    clock = VirtualClock()
    passes, queue = Passes(), _queue(clock)
    passes.answers[ACME] = lambda: 600.0
    queue.add(ACME)
    async with _running(queue, passes):
        await _settle()
        queue.add(ACME)
        await _settle()

    assert len(passes.begun) == 2


async def test_failures_in_a_row_are_tried_ever_more_rarely_and_never_given_up():
    """A server in trouble is not hammered, and a corpus heals alone when it is back."""
    clock = VirtualClock()
    passes, queue = Passes(), _queue(clock)
    passes.answers[ACME] = _fail
    queue.add(ACME)
    tries_in_minute = []
    async with _running(queue, passes):
        for _ in range(5):
            before = len(passes.begun)
            for _ in range(60):
                clock.advance(1)
                await _settle()
            tries_in_minute.append(len(passes.begun) - before)

    assert tries_in_minute[0] >= 4
    assert all(1 <= tries <= 2 for tries in tries_in_minute[2:])


async def test_a_retry_is_not_earlier_than_the_server_allows():
    """Retry-After is the server's word about its own load."""
    clock = VirtualClock()
    passes, queue = Passes(), _queue(clock)

    def limited() -> float | None:
        raise Unavailable("too many requests", retry_after_seconds=20)

    passes.answers[ACME] = limited
    queue.add(ACME)
    async with _running(queue, passes):
        await _settle()
        clock.advance(20)
        await _settle()
        assert len(passes.begun) == 1
        clock.advance(MAX_BACKOFF_SECONDS)
        await _settle()

    assert len(passes.begun) == 2


@pytest.mark.parametrize("error", [Unavailable("away"), KeyError("a bug")], ids=["failure", "bug"])
async def test_a_pass_that_fails_disturbs_no_other(error):
    """One broken resource must not stop the operator."""
    passes, queue = Passes(), _queue(VirtualClock())

    def fail() -> float | None:
        raise error

    passes.answers[ACME] = fail
    queue.add(ACME)
    async with _running(queue, passes):
        await _settle()
        queue.add(GLOBEX)
        await _settle()

    assert passes.begun == [ACME, GLOBEX]


async def test_age_and_depth_tell_of_keys_that_wait_and_not_of_those_that_are_planned():
    """A queue that does not move is seen before users notice."""
    clock = VirtualClock()
    queue = _queue(clock)
    queue.add(ACME, after_seconds=100)
    clock.advance(5)
    assert (queue.depth, queue.oldest_age_seconds) == (0, 0)

    queue.add(GLOBEX)
    clock.advance(7)

    assert (queue.depth, queue.oldest_age_seconds) == (1, 7)
