"""A shard reads its corpus while its store is still being checked, and changes nothing before that has passed."""

import asyncio

import pytest

from groundplane.errors import Unavailable
from groundplane_shard.log.operations import LocalFile, Stored
from groundplane_shard.stores import MemoryStore, while_checking
from tests.support.failing_store import FailingStore, waiting

PREFIX = "t-acme/i/"
FILE = LocalFile(path="a", source="/nowhere", size=0, sha256="0" * 64)


class IgnoresIfMatch(MemoryStore):
    """Replaces whatever version is stored."""

    async def replace(self, key, data, etag):
        self.objects[key] = data
        return Stored("e")


async def check_beside(store, work):
    await while_checking(store, PREFIX, work, token="00c0ffee")


async def test_reading_does_not_wait_for_the_check():
    """The trial may take seconds, and a restore as well: one after the other would be twice as long."""
    held, store = asyncio.Event(), FailingStore(MemoryStore())
    store.rule = waiting(held, "create", key="probes/")

    async def work(checked):
        await checked.get("t-acme/i/MANIFEST")
        await checked.list_page(PREFIX, "")
        await checked.verify("t-acme/i/MANIFEST", size=0, sha256="")
        held.set()

    async with asyncio.timeout(5):
        await check_beside(store, work)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.create("t-acme/i/MANIFEST", b"1"), id="create"),
        pytest.param(lambda store: store.replace("t-acme/i/MANIFEST", b"2", "e"), id="replace"),
        pytest.param(lambda store: store.upload("t-acme/i/snapshots/a", FILE), id="upload"),
        pytest.param(lambda store: store.delete("t-acme/i/log/1"), id="delete"),
    ],
)
async def test_nothing_is_written_before_the_check_has_passed(write):
    """On a store without conditions the very first write, that of MANIFEST, could end another writer's corpus (I10)."""
    store = FailingStore(IgnoresIfMatch())

    with pytest.raises(Unavailable) as refusal:
        await check_beside(store, write)
    assert refusal.value.code == "store_not_conditional"
    assert {call.key for call in store.calls if call.is_write and "/probes/" not in call.key} == set()


async def test_writing_goes_on_after_the_check():
    """The first process of a corpus makes MANIFEST in the same breath."""
    store = MemoryStore()

    async def work(checked):
        await checked.create("t-acme/i/MANIFEST", b"1")

    await check_beside(store, work)
    assert store.objects == {"t-acme/i/MANIFEST": b"1"}


async def test_a_refused_store_ends_a_restore_under_way():
    """A large corpus would be fetched again and again from a store on which it can never be served."""
    begun, broken_off = asyncio.Event(), []
    store = FailingStore(IgnoresIfMatch())
    store.rule = waiting(begun, "replace", key="probes/")

    async def work(_checked):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            broken_off.append(True)

    with pytest.raises(Unavailable, match="conditional writes"):
        await check_beside(store, work)
    assert broken_off == [True]


async def test_a_restore_does_not_begin_on_a_store_that_is_refused_soon():
    """Mostly the trial is over in no time, and then nothing need be fetched to know that it is in vain."""

    async def work(_checked):
        pytest.fail("the restore began")

    with pytest.raises(Unavailable, match="conditional writes"):
        await check_beside(IgnoresIfMatch(), work)


async def test_a_failed_restore_ends_the_check():
    """What failed is what is told, and no probe goes on behind it."""
    store = FailingStore(MemoryStore())
    store.rule = waiting(asyncio.Event(), "create", key="probes/")

    async def work(_checked):
        raise Unavailable("no answer", code="store_io")

    with pytest.raises(Unavailable) as failure:
        await check_beside(store, work)
    assert failure.value.code == "store_io"
    assert len(asyncio.all_tasks()) == 1
