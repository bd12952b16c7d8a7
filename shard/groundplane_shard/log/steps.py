"""Single requests made reliable: each function here is a bounded dialogue with the store about one key.

A read is repeated until it is answered. A create is settled by reading the key back (I4). Tries are bounded; when they
are used up the caller learns which of two things is true: `Unavailable` (certainly nothing was stored) or
`OutcomeUnknown` (it may have been, or may still be).
"""

from collections.abc import Iterable
from typing import TypeVar

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Create,
    Delete,
    Deleted,
    Failed,
    Found,
    Get,
    Joined,
    List,
    Listed,
    Operation,
    Pause,
    Refused,
    Result,
    Steps,
    Stored,
    Together,
    Unknown,
)

Value = TypeVar("Value")

MAX_TRIES = 6
MAX_READS = 3  # of an object whose bytes do not fit, in case only the answer was damaged


def unexpected(operation: Operation, result: Result) -> TypeError:
    """Return the error for an answer that does not belong to its question: a bug in the driver."""
    return TypeError(f"{type(operation).__name__} was answered by {type(result).__name__}")


def together(parts: Iterable[Steps[Value]]) -> Steps[tuple[Value, ...]]:
    """Hold all these dialogues at once and return their values in order. Raises what the first one that fails raises."""
    operation = Together(tuple(parts))
    if not operation.parts:
        return ()
    match (yield operation):
        case Joined(values):
            return values
        case Failed(error):
            raise error
        case other:
            raise unexpected(operation, other)


def get(key: str) -> Steps[Found | Absent]:
    """Return the object under `key`, or that there is none. Raises Unavailable when the store gives no answer."""
    operation = Get(key)
    reason = ""
    for attempt in range(MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield operation):
            case Found() | Absent() as answer:
                return answer
            case Unknown(reason) | Refused(reason):
                pass
            case other:
                raise unexpected(operation, other)
    raise Unavailable(f"object {key} could not be read: {reason[:256]}; try again", code="store_unavailable")


def list_page(prefix: str, start_after: str) -> Steps[Listed]:
    """Return one page of keys, checked: inside `prefix`, after `start_after`, ascending. Raises Unavailable."""
    operation = List(prefix, start_after)
    reason = ""
    for attempt in range(MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield operation):
            case Listed(keys) as page if _is_ordered(keys, prefix, start_after):
                return page
            case Listed():
                reason = "keys out of order or outside the prefix"
            case Unknown(reason) | Refused(reason):
                pass
            case other:
                raise unexpected(operation, other)
    raise Unavailable(
        f"objects under {prefix} could not be listed: {reason[:256]}; try again", code="store_unavailable"
    )


def list_all(prefix: str) -> Steps[tuple[str, ...]]:
    """Return every key under `prefix`, ascending. Raises Unavailable."""
    page = yield from list_page(prefix, "")
    keys = page.keys
    while page.more and keys:
        page = yield from list_page(prefix, keys[-1])
        keys += page.keys
    return keys


def delete(key: str) -> Steps[None]:
    """Remove `key`; absent is as good. Raises Unavailable when it is not known whether it is gone."""
    operation = Delete(key)
    reason = ""
    for attempt in range(MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield operation):
            case Deleted():
                return
            case Unknown(reason) | Refused(reason):
                pass
            case other:
                raise unexpected(operation, other)
    raise Unavailable(f"object {key} could not be deleted: {reason[:256]}; try again", code="store_unavailable")


def create(key: str, data: bytes) -> Steps[bytes | None]:
    """Create `key` and settle what came of it: None if `data` is stored there, else the foreign bytes that are.

    A 412 and a lost answer are both settled by reading the key: own bytes = stored, absent = the same bytes again.
    Raises Unavailable if certainly nothing was stored, OutcomeUnknown if that cannot be told.
    """
    operation = Create(key, data)
    is_uncertain = False
    reason = ""
    for attempt in range(MAX_TRIES):
        if attempt:
            yield Pause(attempt)
        match (yield operation):
            case Stored():
                return None
            case Conflict():
                reason = "another request for the key was under way"
                continue
            case Refused(reason) if not is_uncertain:
                raise Unavailable(f"object {key} was not stored: {reason[:256]}; try again", code="store_unavailable")
            case Unknown(reason) | Refused(reason):
                pass
            case _:  # 412: not yet proof of another writer
                reason = "the key exists"
        is_uncertain = True
        stored = yield from _read_back(key, data)
        if stored is not None:
            return None if stored == data else stored
    raise not_settled(key, reason, is_uncertain=is_uncertain)


def _read_back(key: str, data: bytes) -> Steps[bytes | None]:
    """Return what is stored under `key`; None: absent, or no answer that can be believed, so the same bytes again.

    Own bytes are believed at once, foreign ones when two reads agree: an answer damaged on the way is no other writer.
    """
    seen: bytes | None = None
    for _ in range(MAX_READS):
        match (yield Get(key)):
            case Found(found) if found in (data, seen):
                return found
            case Found(found):
                seen = found
            case _:
                return None
    return None


def not_settled(key: str, reason: str, *, is_uncertain: bool) -> Unavailable:
    """Return the error for a conditional write whose tries are used up."""
    if is_uncertain:
        return OutcomeUnknown(f"whether object {key} was stored could not be settled: {reason[:256]}; repeat the write")
    return Unavailable(f"object {key} was not stored: {reason[:256]}; try again", code="store_unavailable")


def _is_ordered(keys: tuple[str, ...], prefix: str, start_after: str) -> bool:
    previous = start_after
    for key in keys:
        if key <= previous or not key.startswith(prefix):
            return False
        previous = key
    return True
