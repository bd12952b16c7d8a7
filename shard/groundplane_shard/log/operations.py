"""What the log protocol asks for and what it is told: the vocabulary between the protocol and whoever drives it.

The protocol consists of generator functions that yield one `Operation`, are sent one `Result`, and return a value. The
driver in `stores` performs the operations on a real store; the simulation in the tests performs them on a simulated one.

Store operations and the results that may answer them:

    Get       Found | Absent | Unknown
    Create    Stored | PreconditionFailed (the key exists, HTTP 412) | Conflict (409) | Refused | Unknown
    Replace   Stored | PreconditionFailed (another version is stored, 412) | Conflict (409) | Refused | Unknown
    Upload    as Create
    Verify    Verified | Damaged (also: absent) | Unknown
    List      Listed | Unknown
    Delete    Deleted (also: was absent) | Unknown

Effects on the process's own state, `Pause`, and several dialogues at once:

    Restore   Restored | Damaged
    Apply     Applied
    Foresee   Foreseen
    Pause     Resumed
    Together  Joined | Failed

`Unknown` for a write means: it may have happened, or may still happen, however late. `Refused` means: it did not happen
and will not; a store that cannot be sure answers `Unknown`. `Conflict` means: not done, ask again.
"""

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from groundplane.errors import GroundplaneError
from groundplane_shard.log.manifest import Snapshot
from groundplane_shard.log.record import Position, Record


class LocalFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the table as it lies on the local disk, to be uploaded into a snapshot."""

    path: str  # relative to the table's directory; becomes the path inside the snapshot
    source: str  # where the bytes are now; only the driver opens it
    size: int  # bytes
    sha256: str  # hex


class Get(msgspec.Struct, frozen=True):
    """Read one object whole."""

    key: str


class Create(msgspec.Struct, frozen=True):
    """Store `data` under `key` only if the key does not exist (If-None-Match: *)."""

    key: str
    data: bytes


class Replace(msgspec.Struct, frozen=True):
    """Store `data` under `key` only if the stored version has this etag (If-Match)."""

    key: str
    data: bytes
    etag: str


class Upload(msgspec.Struct, frozen=True):
    """Store a local file under `key` only if the key does not exist; its bytes are checked against `file` on the way."""

    key: str
    file: LocalFile


class Verify(msgspec.Struct, frozen=True):
    """Check that the object stored under `key` has this size and SHA-256."""

    key: str
    size: int
    sha256: str


class List(msgspec.Struct, frozen=True):
    """List keys that begin with `prefix` and sort after `start_after`, ascending, one page."""

    prefix: str
    start_after: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Remove `key`; an absent key is no fault."""

    key: str


class Restore(msgspec.Struct, frozen=True):
    """Drop all local state and build it from this snapshot's verified files in a fresh directory; None: start empty."""

    snapshot: Snapshot | None


class Apply(msgspec.Struct, frozen=True):
    """Apply one committed record to the memtable. The state's position becomes `position`, for barriers too.

    A snapshot of the state is labelled with the position that the state itself had when it was frozen.
    """

    record: Record
    position: Position


class Foresee(msgspec.Struct, frozen=True):
    """Records that are read and will most likely be applied next: what that needs may be looked up for all of them at once."""

    records: tuple[Record, ...]


class Pause(msgspec.Struct, frozen=True):
    """Wait a little before the next try; `attempt` counts from 1. For pacing only: no rule rests on how long it takes."""

    attempt: int


class Together(msgspec.Struct, frozen=True):
    """Hold several dialogues at once, in any order; none of them rests on another.

    Where one raises, the others are cut off at the operation they are at, which may still be done.
    """

    parts: tuple["Steps[Any]", ...]


class Found(msgspec.Struct, frozen=True):
    """The object's bytes and the etag of this version."""

    data: bytes
    etag: str


class Absent(msgspec.Struct, frozen=True):
    """No object has this key."""


class Stored(msgspec.Struct, frozen=True):
    """The write is durable; `etag` names the version."""

    etag: str


class PreconditionFailed(msgspec.Struct, frozen=True):
    """HTTP 412: the key exists (Create), or another version is stored (Replace). It may be one's own earlier try."""


class Conflict(msgspec.Struct, frozen=True):
    """HTTP 409: nothing was done because another request was under way; ask again."""


class Refused(msgspec.Struct, frozen=True):
    """The write did not happen and will not."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """No usable answer. A read failed; a write may have happened or may still happen."""

    reason: str


class Verified(msgspec.Struct, frozen=True):
    """The stored bytes are the expected ones."""


class Damaged(msgspec.Struct, frozen=True):
    """The stored bytes are missing or not the expected ones."""

    reason: str


class Listed(msgspec.Struct, frozen=True):
    """One page of keys; `more` says that a further page exists."""

    keys: tuple[str, ...]
    more: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """The key is absent now."""


class Restored(msgspec.Struct, frozen=True):
    """The local state is that of the snapshot."""


class Applied(msgspec.Struct, frozen=True):
    """The record's effects are visible to queries of this process."""


class Foreseen(msgspec.Struct, frozen=True):
    """What applying the records needs is at hand, or will be looked up then."""


class Resumed(msgspec.Struct, frozen=True):
    """The pause is over."""


class Joined(msgspec.Struct, frozen=True):
    """All dialogues have ended: what each of them returned, in the order in which they were given."""

    values: tuple[Any, ...]


class Failed(msgspec.Struct, frozen=True):
    """One of the dialogues raised this."""

    error: GroundplaneError


StoreOperation: TypeAlias = Get | Create | Replace | Upload | Verify | List | Delete
Operation: TypeAlias = StoreOperation | Restore | Apply | Foresee | Pause | Together
Result: TypeAlias = (
    Found
    | Absent
    | Stored
    | PreconditionFailed
    | Conflict
    | Refused
    | Unknown
    | Verified
    | Damaged
    | Listed
    | Deleted
    | Restored
    | Applied
    | Foreseen
    | Resumed
    | Joined
    | Failed
)

Value = TypeVar("Value")
Steps: TypeAlias = Generator[Operation, Result, Value]
