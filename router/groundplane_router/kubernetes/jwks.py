"""Callers by the keys that the cluster publishes: for installations that may not create TokenReviews.

The API server tells its issuer (`/.well-known/openid-configuration`) and its keys (`/openid/v1/jwks`); both are read with the
router's own token, and no other address that a document or a token names is ever asked. A key is bound to one algorithm, RS256
or ES256, whatever a token's header says. What this cannot see is an account or a pod that was deleted: a token of it is good
until it ends.

Keys are read again every 5 minutes, and for a token with a key id that is not known, at most every 10 s. While the API server
is away the last keys are good for an hour. Errors: Denied (401); Unavailable while it cannot be told whether a key is good.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import jwt
import msgspec

from groundplane.errors import Denied, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.tokens import AUDIENCE, CallerToken, check_times
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.failures import timed_out
from groundplane_router.kubernetes.objects import Discovery, Jwk, JwkSet
from groundplane_router.kubernetes.service_accounts import claims_of, parse_subject

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"
REFRESH_SECONDS: Final = 300.0
KEEP_SECONDS: Final = 3_600.0
"""Tokens live for an hour unless asked for otherwise, so after one nobody has a token that the API server did not see renewed."""

LEAST_PAUSE_SECONDS: Final = 10.0
FETCH_SECONDS: Final = 2.0
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2_048

_OPTIONS: Final[Any] = {
    "require": ["exp", "iat", "iss", "aud", "sub"],
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
}


class ClusterKeys(msgspec.Struct, frozen=True):
    """Who signs the cluster's tokens and with which keys, by key id."""

    issuer: str
    keys: Mapping[str, jwt.PyJWK]


class JwksVerifier:
    """Verifies tokens with the cluster's keys."""

    def __init__(self, api: ApiServer, clock: Clock) -> None:
        self._source = KeySource(api, clock)
        self._clock = clock

    async def verify(self, token: str) -> CallerToken:
        """Return the ServiceAccount that `token` names. Raises Denied, Unavailable."""
        claims_of(token)
        denied = Denied("token is not signed by this cluster for audience groundplane")
        key_id = _key_id_of(token, denied)
        known = await self._source.keys_for(key_id)
        key = known.keys.get(key_id)
        if key is None:
            raise denied
        try:
            claims = jwt.decode(
                token, key, algorithms=[key.algorithm_name], audience=AUDIENCE, issuer=known.issuer, options=_OPTIONS
            )
        except (jwt.PyJWTError, TypeError, ValueError, OverflowError) as error:
            raise denied from error
        expires_at = check_times(claims, denied, now=self._clock.now())
        return CallerToken(subject=parse_subject(str(claims["sub"])), expires_at=expires_at)


class KeySource:
    """Reads the keys when they are due, one reading at a time."""

    def __init__(self, api: ApiServer, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: ClusterKeys | None = None
        self._read_at = 0.0
        self._tried_at: float | None = None
        self._failure: Unavailable | None = None
        self._log = Log("router.identity")

    async def keys_for(self, key_id: str) -> ClusterKeys:
        """Return the keys; `key_id` is not among them if the cluster has none of that id. Raises Unavailable."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._is_due(key_id, now):
                await self._read(now)
            is_old = now - self._read_at >= KEEP_SECONDS
            known = None if is_old else self._known
            if known is None or (key_id not in known.keys and self._failure is not None):
                raise self._failure or Unavailable("the cluster's keys are not known yet", detail="no_keys")
            return known

    def _is_due(self, key_id: str, now: float) -> bool:
        if self._tried_at is not None and now - self._tried_at < LEAST_PAUSE_SECONDS:
            return False
        return self._known is None or key_id not in self._known.keys or now - self._read_at >= REFRESH_SECONDS

    async def _read(self, now: float) -> None:
        self._tried_at = now
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                discovery = await self._api.get(DISCOVERY_PATH, Discovery)
                published = await self._api.get(KEYS_PATH, JwkSet)
        except TimeoutError:
            self._failure = timed_out()
        except Unavailable as error:
            self._failure = error
        else:
            self._known, self._read_at, self._failure = _usable(discovery.issuer, published), now, None
            return
        self._log.warning("cluster_keys_not_read", fault=self._failure.message, kept=self._known is not None)


def _usable(issuer: str, published: JwkSet) -> ClusterKeys:
    keys = {jwk.kid: key for jwk in published.keys[:MAX_KEYS] if jwk.kid and (key := _try_key(jwk)) is not None}
    return ClusterKeys(issuer=issuer, keys=keys)


def _try_key(jwk: Jwk) -> jwt.PyJWK | None:
    """Return a key to verify with, bound to its algorithm; None for other kinds of keys and weak ones."""
    algorithm = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256"}.get((jwk.kty, jwk.crv))
    if algorithm is None or jwk.alg not in {"", algorithm} or jwk.use not in {"", "sig"}:
        return None
    try:
        key = jwt.PyJWK({name: value for name, value in msgspec.structs.asdict(jwk).items() if value}, algorithm)
    except (jwt.PyJWTError, ValueError):
        return None
    is_weak = algorithm == "RS256" and key.key.key_size < MIN_RSA_BITS
    return None if is_weak else key


def _key_id_of(token: str, denied: Denied) -> str:
    try:
        return str(jwt.get_unverified_header(token).get("kid", ""))
    except jwt.PyJWTError as error:
        raise denied from error
