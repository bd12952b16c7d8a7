"""Dialogues that the protocol holds at once are held at once, a few at a time, and none outlives the one that failed."""

import asyncio

import pytest

from groundplane.errors import CorruptData
from groundplane_shard.log import steps
from groundplane_shard.log.operations import Get, Restored
from groundplane_shard.stores import MemoryStore, run

PARALLEL = 8


class Nothing:
    """Effects that nobody asks for."""

    async def restore(self, _snapshot):
        return Restored()

    async def apply(self, _record, _position):
        return None

    async def foresee(self, _records):
        return None


class HeldStore(MemoryStore):
    """Answers reads only once it is released."""

    def __init__(self):
        super().__init__()
        self.released = asyncio.Event()
        self.under_way = self.most = 0

    async def get(self, key):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.released.wait()
            return await super().get(key)
        finally:
            self.under_way -= 1


def reading(number):
    yield Get(f"t/{number}")
    return number


def failing_after(key):
    yield Get(key)
    raise CorruptData("this one is broken")


async def start(store, parts):
    task = asyncio.create_task(run(steps.together(parts), store, Nothing()))
    for _ in range(20):
        await asyncio.sleep(0)
    return task


async def test_values_come_back_in_the_order_of_the_parts():
    """Who asked for files in order must not have to sort out which answer is whose."""
    store = HeldStore()
    store.released.set()

    assert await (await start(store, [reading(number) for number in range(20)])) == tuple(range(20))


async def test_a_few_are_under_way_at_once_and_no_more():
    """One after the other a snapshot takes a round trip a file; all at once it would take every connection."""
    store = HeldStore()
    task = await start(store, [reading(number) for number in range(3 * PARALLEL)])
    store.released.set()
    await task

    assert store.most == PARALLEL


async def test_one_failure_ends_them_all():
    """What goes on behind a failed publication would meet the next one."""
    store = HeldStore()
    parts = [reading(1), failing_after("t/2"), *map(reading, range(3, 30))]
    task = await start(store, parts)
    store.released.set()

    with pytest.raises(CorruptData, match="this one is broken"):
        await task
    assert store.under_way == 0
    assert len(asyncio.all_tasks()) == 1


async def test_the_failure_is_raised_where_the_parts_were_asked_for():
    """The protocol may know better what it means: damage found by a superseded writer is no damage."""

    def judged():
        try:
            yield from steps.together([failing_after("t/1")])
        except CorruptData:
            return "judged"

    assert await run(judged(), MemoryStore(), Nothing()) == "judged"


async def test_a_bug_in_a_part_is_no_answer():
    """Only the five kinds of errors are results; anything else must end the process."""

    def buggy():
        yield Get("t/1")
        raise ZeroDivisionError

    def shielded():
        try:
            yield from steps.together([buggy()])
        except CorruptData:
            return "judged"

    with pytest.raises(ZeroDivisionError):
        await run(shielded(), MemoryStore(), Nothing())


async def test_cancelling_ends_them_all():
    """A shard that stops leaves nothing running in its store."""
    store = HeldStore()
    task = await start(store, [reading(number) for number in range(20)])
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.under_way == 0
    assert len(asyncio.all_tasks()) == 1


async def test_nothing_to_do_asks_for_nothing():
    """A collection without news must not cost the store a request."""
    assert list(steps.together([])) == []
