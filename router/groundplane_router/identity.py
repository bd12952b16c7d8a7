"""Who is calling, and what they may reach: from one bearer token and nothing else.

Invariants (faults.md, I14): exactly one `Authorization` header is read and no other header, path, body or filter; "no token",
malformed, expired and foreign get one text; "no corpus" and "no such access" get another. Tokens never enter a log, a metric or
an error. Errors: Denied 401 (no valid token, or two), Denied 403 (a valid one that grants nothing here), Unavailable 503
(`identity_unavailable`: nobody can say now whose the token is, or there is no directory yet).

What a subject may reach is looked up in the directory at every request, so a withdrawn grant counts at once.
"""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.datastructures import Headers

from groundplane.errors import Denied
from groundplane.process.clock import Clock
from groundplane.tokens import MAX_TOKEN_CHARACTERS, CallerToken, verify_caller
from groundplane.wire.directory import Access
from groundplane_router.directory import Grants, LiveDirectory
from groundplane_router.token_checks import TokenChecks, identity_unavailable, unauthenticated

_FORBIDDEN: Final = "this subject may not do this here: declare it, with the access it needs, in a TenantCorpus"


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

    def __init__(self, checks: TokenChecks, directory: LiveDirectory) -> None:
        self._checks = checks
        self._directory = directory

    async def identify(self, headers: Headers, needed: Access) -> Grants:
        """Return what the caller may reach. Raises Denied (401, 403), Unavailable."""
        subject = await self._checks.subject_of(_bearer_token(headers))
        if not self._directory.is_loaded:
            raise identity_unavailable("directory_not_loaded")
        grants = self._directory.state.grants_of(subject)
        if grants is None or needed not in grants.access:
            raise Denied(_FORBIDDEN, code="forbidden", status=403)
        return grants


def _bearer_token(headers: Headers) -> str:
    """Return the token of the one `Authorization` header."""
    values = headers.getlist("authorization")
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token.isascii() or not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
        raise unauthenticated()
    return token
