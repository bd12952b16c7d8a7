"""The check at start that a store honours both conditions of a write (I10).

Some stores accept `If-None-Match` and `If-Match` and ignore them, or race with themselves. Without them two writers
would both commit, so a shard does not become writable on such a store.
"""

import asyncio

from groundplane.errors import GroundplaneError, Unavailable
from groundplane_shard.log.operations import PreconditionFailed, Stored
from groundplane_shard.stores.protocol import ObjectStore

PARALLEL_CREATES = 32


async def check_conditions(store: ObjectStore, prefix: str, *, token: str) -> None:
    """Return if, of 32 parallel creates of one key, exactly one wins, and a stale If-Match is refused.

    `prefix` ends in `/`; `token` is fresh random hex, since a probe's key must be new. The probe is removed again.
    Raises Unavailable with code `store_not_conditional` if the store fails the check, another Unavailable if it could
    not be asked.
    """
    key = f"{prefix}probes/{token}"
    try:
        await _check_creates(store, key)
        await _check_replaces(store, key)
    finally:
        await store.delete(key)


async def _check_creates(store: ObjectStore, key: str) -> None:
    calls = (store.create(key, f"create {number}".encode()) for number in range(PARALLEL_CREATES))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GroundplaneError):
            raise answer
    failures = [answer for answer in answers if isinstance(answer, GroundplaneError)]
    winners = sum(isinstance(answer, Stored) for answer in answers)
    if winners > 1:
        raise _not_conditional(f"{winners} of {PARALLEL_CREATES} parallel creates of one key won", "exactly one")
    if failures:
        raise failures[0]
    if winners == 0:
        raise _not_conditional(f"none of {PARALLEL_CREATES} parallel creates of a new key won", "exactly one")


async def _check_replaces(store: ObjectStore, key: str) -> None:
    found = await store.get(key)
    stale = getattr(found, "etag", "")
    first = await store.replace(key, b"replaced", stale)
    second = await store.replace(key, b"replaced from a stale version", stale)
    if not isinstance(first, Stored) or not isinstance(second, PreconditionFailed):
        answers = f"{type(first).__name__}, {type(second).__name__}"
        raise _not_conditional(f"a fresh and a stale If-Match were answered {answers}", "Stored, PreconditionFailed")


def _not_conditional(found: str, expected: str) -> Unavailable:
    return Unavailable(
        f"the store does not honour conditional writes: {found}, expected {expected}; use a store that does, this shard stays read-only",
        code="store_not_conditional",
    )
