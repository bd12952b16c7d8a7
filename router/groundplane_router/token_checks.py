"""Whose a token is: each token is verified once, and what came of it is remembered, for a while and up to a number.

What is verified is cached, both ways, for at most a minute and never past the token's own end; the cache keeps SHA-256 digests,
never a token. Requests with one token share one check. Checks under way, requests that wait for them and the time of each are
bounded, so a token service that hangs cannot hold every place of the router. That nobody could find out whose a token is
(`Unavailable`, 503) is never cached and never becomes "not valid" (`Denied`, 401).
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from groundplane.errors import Denied, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.tokens import CallerToken
from groundplane_router.metrics import RouterMetrics

CACHE_SECONDS: Final = 60.0
CACHED_TOKENS: Final = 4_096
CHECK_SECONDS: Final = 3.0
CHECKS_AT_ONCE: Final = 16
UNAVAILABLE_CODE: Final = "identity_unavailable"

_UNAUTHENTICATED: Final = (
    "token is not valid here: expected `Authorization: Bearer` with a current token for audience groundplane"
)

ValueT = TypeVar("ValueT")
Outcome = CallerToken | Denied | Unavailable


class Verifier(Protocol):
    """Turns a token into a subject: by a local key, by the cluster's TokenReview, or by the cluster's public keys."""

    async def verify(self, token: str) -> CallerToken:
        """Return whom `token` names. Raises Denied (401), or Unavailable while that cannot be found out."""


def unauthenticated() -> Denied:
    """Return the one refusal that "no token", malformed, expired and foreign all get."""
    return Denied(_UNAUTHENTICATED, code="unauthenticated", status=401)


def identity_unavailable(detail: str | None, *, retry_after_seconds: int | None = None) -> Unavailable:
    """Return the failure to find out who is calling; 503, never a refusal."""
    return Unavailable(
        f"who is calling cannot be found out now ({detail}): try again",
        code=UNAVAILABLE_CODE,
        detail=detail,
        retry_after_seconds=retry_after_seconds,
    )


class TokenChecks:
    """Finds out whose tokens are, with as few questions to the verifier as possible."""

    def __init__(self, verifier: Verifier, clock: Clock, metrics: RouterMetrics, *, max_waiting: int) -> None:
        """max_waiting: requests that wait to be identified; the other places of the router stay for callers who are known."""
        self._max_waiting = max_waiting
        self._verifier = verifier
        self._clock = clock
        self._metrics = metrics
        self._accepted: _Recent[CallerToken] = _Recent(CACHED_TOKENS)
        self._refused: _Recent[None] = _Recent(CACHED_TOKENS)
        self._running: dict[bytes, asyncio.Task[Outcome]] = {}
        self._free = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._waiting = 0
        self._fault: str | None = None
        self._log = Log("router.identity")

    async def subject_of(self, token: str) -> str:
        """Return the subject that `token` names. Raises Denied (401), or Unavailable while that cannot be found out."""
        now = self._clock.now()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._accepted.get(digest, now)
        if known is not None:
            return known.value.subject
        if self._refused.get(digest, now) is not None:
            raise unauthenticated()
        match await self._outcome(token, digest):
            case CallerToken() as caller:
                return caller.subject
            case Denied():
                raise unauthenticated()
            case Unavailable() as failure:
                raise identity_unavailable(failure.detail, retry_after_seconds=failure.retry_after_seconds)

    async def _outcome(self, token: str, digest: bytes) -> Outcome:
        """Join the check of this token that is under way, or begin one; it goes on if this request is given up."""
        if self._waiting >= self._max_waiting:
            raise Unavailable(
                "too many callers are being identified: try again", code="overloaded", detail="overloaded"
            )
        task = self._running.get(digest)
        if task is None:
            task = asyncio.create_task(self._check(token, digest))
            self._running[digest] = task
            task.add_done_callback(lambda _: self._running.pop(digest, None))
        self._waiting += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1

    async def _check(self, token: str, digest: bytes) -> Outcome:
        """Ask the verifier and remember what it says."""
        now = self._clock.now()
        watch = self._metrics.stopwatch()
        outcome = await self._verify(token)
        match outcome:
            case CallerToken():
                self._metrics.token_checked("accepted", watch.seconds)
                self._accepted.put(digest, _Entry(outcome, now, min(now + CACHE_SECONDS, outcome.expires_at)))
            case Denied():
                self._metrics.token_checked("refused", watch.seconds)
                self._refused.put(digest, _Entry(None, now, now + CACHE_SECONDS))
            case Unavailable():
                self._metrics.token_checked("failed", watch.seconds)
        self._report(outcome)
        return outcome

    async def _verify(self, token: str) -> Outcome:
        try:
            async with asyncio.timeout(CHECK_SECONDS), self._free:
                return await self._verifier.verify(token)
        except (Denied, Unavailable) as error:
            return error
        except TimeoutError:
            return identity_unavailable("timeout")

    def _report(self, outcome: Outcome) -> None:
        """Log when callers can no longer be identified, and when they can again."""
        fault = outcome.detail if isinstance(outcome, Unavailable) else None
        if fault == self._fault:
            return
        self._fault = fault
        if isinstance(outcome, Unavailable):
            self._log.warning("identity_unavailable", fault=outcome.message, detail=fault)
        else:
            self._log.info("identity_available_again")


class _Entry(msgspec.Struct, Generic[ValueT], frozen=True):
    value: ValueT
    valid_from: float
    valid_until: float


class _Recent(Generic[ValueT]):
    """The most recently used entries, each between its two times: a clock that jumped back makes none immortal."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, _Entry[ValueT]] = OrderedDict()

    def get(self, digest: bytes, now: float) -> _Entry[ValueT] | None:
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if not entry.valid_from <= now < entry.valid_until:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return entry

    def put(self, digest: bytes, entry: _Entry[ValueT]) -> None:
        self._entries[digest] = entry
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
