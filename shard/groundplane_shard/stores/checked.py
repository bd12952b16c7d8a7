"""Reading from a store while its conditions are still being checked; writing waits for the check (I10)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores.conditions import check_conditions
from groundplane_shard.stores.protocol import ObjectStore

HEAD_START_SECONDS = 0.25  # what a trial takes on most stores, and undisturbed it takes no longer


async def while_checking(
    store: ObjectStore, prefix: str, work: Callable[[ObjectStore], Awaitable[None]], *, token: str
) -> None:
    """Do `work` while the conditions of `store` are checked, mostly before; return when both are done.

    `work` begins when the check has passed, or has taken longer than usual. It gets a store of which every write waits until the check has passed. If one of the two fails the other is broken
    off, and its failure is raised: of the check as `check_conditions` does.
    """
    check = asyncio.ensure_future(check_conditions(store, prefix, token=token))
    tasks = [check]
    try:
        await asyncio.wait(tasks, timeout=HEAD_START_SECONDS)
        if check.done():
            check.result()
        tasks.append(asyncio.ensure_future(work(CheckedStore(store, check))))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


class CheckedStore:
    """An `ObjectStore` that is read from at once, and written to only once `check` is done without an error."""

    def __init__(self, store: ObjectStore, check: asyncio.Future[None]) -> None:
        self._store = store
        self._check = check

    async def get(self, key: str) -> Found | Absent:
        """Return the object's bytes and etag."""
        return await self._store.get(key)

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed | Conflict:
        """Store the object only if the key does not exist."""
        await asyncio.shield(self._check)
        return await self._store.create(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed | Conflict:
        """Store the object only over the version with this etag."""
        await asyncio.shield(self._check)
        return await self._store.replace(key, data, etag)

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed | Conflict:
        """Store a local file as `create` does."""
        await asyncio.shield(self._check)
        return await self._store.upload(key, file)

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        """Write the object to the new file `target`."""
        return await self._store.download(key, target, size=size, sha256=sha256)

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        """Say whether the stored bytes are these."""
        return await self._store.verify(key, size=size, sha256=sha256)

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        """Return one page of keys."""
        return await self._store.list_page(prefix, start_after)

    async def delete(self, key: str) -> None:
        """Remove the object."""
        await asyncio.shield(self._check)
        await self._store.delete(key)
