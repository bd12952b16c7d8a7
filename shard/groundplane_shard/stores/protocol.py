"""The storage contract: seven verbs over whole objects, and what each failure means.

A key is one to twenty components joined by `/`, of letters, digits and `_.=+@~-`, none of them `.` or `..`, the first
not beginning with a dot. Writes are durable when they return. No method retries; the caller knows when that is right.

Errors: `Unavailable` from a write means that it did not happen and will not; `OutcomeUnknown`, which is a kind of
`Unavailable`, that it may have happened or may still. From a read both mean: no answer, try again. One suite in
`tests/contract` holds every implementation to this page.
"""

import re
from pathlib import Path
from typing import Protocol

from groundplane.errors import InvalidInput
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

_KEY = re.compile(r"(?!\.)[A-Za-z0-9_.=+@~-]{1,255}(/[A-Za-z0-9_.=+@~-]{1,255}){0,19}")


def checked_key(key: str) -> str:
    """Return `key` if every component is plain. Raises InvalidInput."""
    if not _KEY.fullmatch(key) or any(part in {".", ".."} for part in key.split("/")):
        raise InvalidInput(
            f"object key {key[:256]!r}: expected components of letters, digits and _.=+@~- joined by /", field="key"
        )
    return key


class ObjectStore(Protocol):
    """Conditional writes and whole reads under keys. Etags are opaque, without quotes."""

    async def get(self, key: str) -> Found | Absent:
        """Return the object's bytes and etag."""

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed | Conflict:
        """Store the object only if the key does not exist: of any number of callers exactly one is told `Stored`."""

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed | Conflict:
        """Store the object only over the version with this etag."""

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed | Conflict:
        """Store a local file as `create` does. Raises Unavailable if the file is not of the announced size and SHA-256."""

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        """Write the object to the new file `target`, 0600, making directories; `Damaged`: not these bytes, no file is left."""

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        """Say whether the stored bytes are these; an absent object is `Damaged`."""

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        """Return up to a thousand keys that begin with `prefix` and sort after `start_after`, in code point order."""

    async def delete(self, key: str) -> None:
        """Remove the object; an absent one is no fault."""
