"""A simulated object store without faults: conditional writes over a dict, and what else a test wants to know of it.

Etags are functions of the bytes, as in real stores, so equal bytes get an equal etag again. For each key the version
before the present one is remembered, for answers that come from a stale cache.
"""

import hashlib
from bisect import bisect_right, insort

from groundplane_shard.log import LocalFile
from groundplane_shard.log import operations as ops

ANY_VERSION = "*"  # etag of a MANIFEST change without condition: only a planted fault sends it


class SimulatedStore:
    """Objects by key. Nothing here fails; `faults` decides what a process is told."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.keys: list[str] = []  # ascending
        self.before: dict[str, bytes | None] = {}  # what each key held before it was last changed
        self._digests: dict[bytes, str] = {}

    def digest(self, data: bytes) -> str:
        """Return the SHA-256 in hex, which is also the etag."""
        known = self._digests.get(data)
        if known is None:
            known = self._digests[data] = hashlib.sha256(data).hexdigest()
        return known

    def bytes_of(self, key: str) -> bytes | None:
        """Return what is stored under `key`."""
        return self.objects.get(key)

    def get(self, key: str) -> ops.Result:
        """Read one object."""
        return self.found(self.objects.get(key))

    def found(self, data: bytes | None) -> ops.Result:
        """Return the answer to a read that meets these bytes."""
        return ops.Absent() if data is None else ops.Found(data, self.digest(data))

    def can_replace(self, key: str, etag: str) -> bool:
        """Return whether the condition of a change holds."""
        current = self.objects.get(key)
        return current is not None and etag in (ANY_VERSION, self.digest(current))

    def put(self, key: str, data: bytes) -> ops.Result:
        """Store an object, whatever was there."""
        self.before[key] = self.objects.get(key)
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = data
        return ops.Stored(self.digest(data))

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        if key in self.objects:
            self.before[key] = self.objects.pop(key)
            self.keys.remove(key)

    def list_keys(self, prefix: str, start_after: str) -> tuple[str, ...]:
        """Return every key that begins with `prefix` and sorts after `start_after`, ascending."""
        start = bisect_right(self.keys, max(start_after, prefix))
        end = bisect_right(self.keys, prefix + "\uffff", start)
        return tuple(self.keys[start:end])

    def verify(self, operation: ops.Verify) -> ops.Result:
        """Compare an object with a size and a digest."""
        data = self.objects.get(operation.key)
        if data is not None and (len(data), self.digest(data)) == (operation.size, operation.sha256):
            return ops.Verified()
        return ops.Damaged("other bytes")

    def local_file(self, path: str, source: str, data: bytes) -> LocalFile:
        """Return the description of a local file with these bytes."""
        return LocalFile(path=path, source=source, size=len(data), sha256=self.digest(data))
