"""Sixteen processes of one corpus at once: one of them writes in the end, and what any acknowledged is there."""

import asyncio
from contextlib import AsyncExitStack

from groundplane_shard.committer import CONFIRM_SECONDS
from tests.shard.shard_parts import (
    LAYOUT,
    doc_ids,
    document,
    make_shard,
    outcome,
    running,
    search_request,
    until,
    write_request,
)

PROCESSES = 16
WRITES = 5  # of each process


def is_settled(shard):
    """Whether the shard serves, or has found that it never will."""
    return shard.unready_detail in {None, "superseded"}


async def test_of_sixteen_processes_one_writes_and_nothing_acknowledged_is_lost(store, clock, tmp_path):
    """Whatever starts too many of them, an operator, a restart or a person, no two may both commit: I5."""
    shards = [make_shard(store, tmp_path / str(number), clock=clock) for number in range(PROCESSES)]
    acknowledged = []

    async def write_some(number, shard):
        await until(lambda: is_settled(shard))
        for turn in range(WRITES):
            doc_id = f"d{number}-{turn}"
            if not isinstance(await outcome(shard.write(write_request(document(doc_id)))), Exception):
                acknowledged.append(doc_id)

    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(running(shard, is_ready=False)) for shard in shards))
        await asyncio.gather(*(write_some(number, shard) for number, shard in enumerate(shards)))
        clock.advance(CONFIRM_SECONDS)
        await until(lambda: all(map(is_settled, shards)) and sum(shard.unready_detail is None for shard in shards) == 1)
        (writer,) = (shard for shard in shards if shard.unready_detail is None)
        await writer.write(write_request(document("last")))
        found = await doc_ids(writer)
        refused = [await outcome(shard.search(search_request())) for shard in shards if shard is not writer]

    assert acknowledged
    assert set(acknowledged) <= set(found)
    assert {error.detail for error in refused} == {"superseded"}
    assert all(key.startswith(LAYOUT.prefix) for key in store.store.objects)
