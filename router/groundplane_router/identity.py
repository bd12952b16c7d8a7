"""Who is calling, and what they may reach: from one bearer token and nothing else.

Invariants (faults.md, I14): exactly one `Authorization` header is read and no other header, path, body or filter; "no token",
malformed, expired and foreign get one text; "no corpus" and "no such access" get another. Tokens never enter a log, a metric or
an error; the cache keeps their SHA-256. Errors: Denied 401 (no valid token, or two), Denied 403 (a valid one that grants
nothing here).

What is verified is cached, both ways, for at most a minute and never past the token's own end. What a subject may reach is
looked up in the directory at every request, so a withdrawn grant counts at once.
"""

import hashlib
from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.datastructures import Headers

from groundplane.errors import Denied
from groundplane.process.clock import Clock
from groundplane.tokens import MAX_TOKEN_CHARACTERS, CallerToken, verify_caller
from groundplane.wire.directory import Access
from groundplane_router.directory import DirectoryFile, Grants

CACHE_SECONDS: Final = 60.0
CACHED_TOKENS: Final = 4_096

_UNAUTHENTICATED: Final = (
    "token is not valid here: expected `Authorization: Bearer` with a current token for audience groundplane"
)
_FORBIDDEN: Final = "this subject may not do this here: declare it, with the access it needs, in a TenantCorpus"


ValueT = TypeVar("ValueT")


class Verifier(Protocol):
    """Turns a token into a subject; local keys here, the cluster's TokenReview elsewhere."""

    async def verify(self, token: str) -> CallerToken:
        """Return whom `token` names. Raises Denied (401), or Unavailable while that cannot be found out."""


class LocalVerifier:
    """Tokens of local mode, signed with the key of the data directory."""

    def __init__(self, key: Ed25519PublicKey, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    async def verify(self, token: str) -> CallerToken:
        """Return whom `token` names. Raises Denied (401)."""
        return verify_caller(token, self._key, now=self._clock.now())


class Authenticator:
    """Identifies callers."""

    def __init__(self, verifier: Verifier, directory: DirectoryFile, clock: Clock) -> None:
        self._verifier = verifier
        self._directory = directory
        self._clock = clock
        self._accepted: _Recent[CallerToken] = _Recent(CACHED_TOKENS)
        self._refused: _Recent[None] = _Recent(CACHED_TOKENS)

    async def identify(self, headers: Headers, needed: Access) -> Grants:
        """Return what the caller may reach. Raises Denied (401, 403) and what the verifier raises."""
        token = _bearer_token(headers)
        subject = await self._subject(token)
        grants = self._directory.state.grants_of(subject)
        if grants is None or needed not in grants.access:
            raise Denied(_FORBIDDEN, code="forbidden", status=403)
        return grants

    async def _subject(self, token: str) -> str:
        now = self._clock.now()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._accepted.get(digest, now)
        if known is not None:
            return known.value.subject
        if self._refused.get(digest, now) is not None:
            raise _denied()
        try:
            caller = await self._verifier.verify(token)
        except Denied as error:
            self._refused.put(digest, _Entry(None, now, now + CACHE_SECONDS))
            raise _denied() from error
        self._accepted.put(digest, _Entry(caller, now, min(now + CACHE_SECONDS, caller.expires_at)))
        return caller.subject


def _bearer_token(headers: Headers) -> str:
    """Return the token of the one `Authorization` header."""
    values = headers.getlist("authorization")
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token.isascii() or not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
        raise _denied()
    return token


def _denied() -> Denied:
    return Denied(_UNAUTHENTICATED, code="unauthenticated", status=401)


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
