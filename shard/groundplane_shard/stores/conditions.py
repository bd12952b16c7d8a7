"""The check at start that a store honours both conditions of a write (I10).

Some stores accept `If-None-Match` and `If-Match` and ignore them, or race with themselves. Without them two writers
would both commit, so a shard does not become writable on such a store. What cannot be told by a first try, since the
store kept a call waiting for too long, is tried again under another key.
"""

import asyncio
from contextlib import suppress

from groundplane.errors import GroundplaneError, OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import PreconditionFailed, Stored
from groundplane_shard.stores.protocol import ObjectStore

PARALLEL_CREATES = 32
# Between the beginnings of two creates. All 32 are under way within 16 ms; on a store that answers sooner each still meets
# its neighbours. SeaweedFS lets creates that meet wait for a second again and again: all 32 at once took 0.02 to 9 s.
SPACING_SECONDS = 0.0005
TRIES = 3


async def check_conditions(store: ObjectStore, prefix: str, *, token: str) -> None:
    """Return if, of 32 parallel creates of one key, exactly one wins, and a stale If-Match is refused.

    `prefix` ends in `/`; `token` is fresh random hex, since a probe's key must be new. The probes are removed again.
    Raises Unavailable with code `store_not_conditional` if the store fails the check, another Unavailable if it could
    not be asked.
    """
    for number in range(1, TRIES):
        try:
            return await _check(store, f"{prefix}probes/{token}{number}")
        except OutcomeUnknown:
            continue
    return await _check(store, f"{prefix}probes/{token}{TRIES}")


async def _check(store: ObjectStore, key: str) -> None:
    try:
        etag = await _check_creates(store, key)
        await _check_replaces(store, key, etag)
    except GroundplaneError:
        with suppress(GroundplaneError):  # why the check failed says more
            await store.delete(key)
        raise
    await store.delete(key)


async def _check_creates(store: ObjectStore, key: str) -> str:
    """Return the etag that the one winner was told."""
    calls = (_create_later(store, key, number) for number in range(PARALLEL_CREATES))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GroundplaneError):
            raise answer
    failures = [answer for answer in answers if isinstance(answer, GroundplaneError)]
    etags = [answer.etag for answer in answers if isinstance(answer, Stored)]
    if len(etags) > 1:
        raise _not_conditional(f"{len(etags)} of {PARALLEL_CREATES} parallel creates of one key won", "exactly one")
    if failures:
        raise failures[0]
    if not etags:
        raise _not_conditional(f"none of {PARALLEL_CREATES} parallel creates of a new key won", "exactly one")
    return etags[0]


async def _create_later(store: ObjectStore, key: str, number: int) -> object:
    await asyncio.sleep(number * SPACING_SECONDS)
    return await store.create(key, f"create {number}".encode())


async def _check_replaces(store: ObjectStore, key: str, etag: str) -> None:
    first = await store.replace(key, b"replaced", etag)
    second = await store.replace(key, b"replaced from a stale version", etag)
    if not isinstance(first, Stored) or not isinstance(second, PreconditionFailed):
        answers = f"{type(first).__name__}, {type(second).__name__}"
        raise _not_conditional(f"a fresh and a stale If-Match were answered {answers}", "Stored, PreconditionFailed")


def _not_conditional(found: str, expected: str) -> Unavailable:
    return Unavailable(
        f"the store does not honour conditional writes: {found}, expected {expected}; use a store that does, this shard stays read-only",
        code="store_not_conditional",
    )
