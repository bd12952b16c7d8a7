"""A store in this process's memory, for tests and for trying things out. It loses everything when the process ends."""

import asyncio
import hashlib
from bisect import bisect_right
from pathlib import Path

from groundplane.errors import Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores.protocol import checked_key

PAGE_KEYS = 1000


class MemoryStore:
    """An `ObjectStore` whose objects live in a dict. Every method gives other tasks a turn before it acts."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def get(self, key: str) -> Found | Absent:
        """Return the object's bytes and etag."""
        await asyncio.sleep(0)
        data = self.objects.get(checked_key(key))
        return Absent() if data is None else Found(data, _etag(data))

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed:
        """Store the object only if the key does not exist."""
        await asyncio.sleep(0)
        if checked_key(key) in self.objects:
            return PreconditionFailed()
        self.objects[key] = bytes(data)
        return Stored(_etag(data))

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed:
        """Store the object only over the version with this etag."""
        await asyncio.sleep(0)
        current = self.objects.get(checked_key(key))
        if current is None or _etag(current) != etag:
            return PreconditionFailed()
        self.objects[key] = bytes(data)
        return Stored(_etag(data))

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed:
        """Store a local file as `create` does."""
        data = await asyncio.to_thread(Path(file.source).read_bytes)
        if len(data) != file.size or _etag(data) != file.sha256:
            raise Unavailable(
                f"local file {file.path} changed: expected {file.size} bytes with sha256 {file.sha256}; make the snapshot again"
            )
        return await self.create(key, data)

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        """Write the object to the new file `target`, making directories."""
        answer = await self.verify(key, size=size, sha256=sha256)
        if isinstance(answer, Verified):
            await asyncio.to_thread(_write_new, target, self.objects[key])
        return answer

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        """Say whether the stored bytes are these."""
        match await self.get(key):
            case Found(data) if len(data) == size and _etag(data) == sha256:
                return Verified()
            case Found(data):
                return Damaged(f"object {key} has {len(data)} bytes, sha256 {_etag(data)}: expected {size}, {sha256}")
            case _:
                return Damaged(f"object {key} is missing: expected {size} bytes")

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        """Return one page of keys in code point order."""
        await asyncio.sleep(0)
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        first = bisect_right(keys, start_after)
        return Listed(tuple(keys[first : first + PAGE_KEYS]), more=len(keys) > first + PAGE_KEYS)

    async def delete(self, key: str) -> None:
        """Remove the object; an absent one is no fault."""
        await asyncio.sleep(0)
        self.objects.pop(checked_key(key), None)


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_new(target: Path, data: bytes) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with target.open("xb") as file:
        target.chmod(0o600)
        file.write(data)
