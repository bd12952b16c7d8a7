"""Signed tokens: callers' tokens of local mode, and the capabilities that router and operator show to shards.

Both are JWTs (RFC 7519) signed with Ed25519 (RFC 8037); the algorithm is fixed here and never read from a token.
A capability lives at most 60 s, names one incarnation of one corpus as its audience and one right, and is bound by its
key id to the role whose key signed it: the router's keys grant `read` and `write`, the operator's `operate`.
"""

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NewType

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from groundplane.errors import Denied, InvalidInput
from groundplane.wire.names import CorpusKey, Incarnation

AUDIENCE = "groundplane"
LOCAL_ISSUER = "groundplane-local"
CAPABILITY_SECONDS = 60
CAPABILITY_RENEW_SECONDS = 30
MAX_TOKEN_CHARACTERS = 8_192
CLOCK_LEEWAY_SECONDS = 10

KeyId = NewType("KeyId", str)
Role = Literal["router", "operator"]
Right = Literal["read", "write", "operate"]

RIGHTS_OF_ROLE: Mapping[Role, frozenset[Right]] = {
    "router": frozenset({"read", "write"}),
    "operator": frozenset({"operate"}),
}

_ALGORITHM = "EdDSA"


class SigningKey:
    """An Ed25519 private key. Its bytes never leave it except into its own file or Secret."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.id = key_id(key.public_key())

    @classmethod
    def generate(cls) -> "SigningKey":
        """Return a new random key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Return the key of a PEM file. Raises InvalidInput if it cannot be read or is no Ed25519 private key."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"signing key {path} cannot be read: expected an Ed25519 private key in PEM") from error
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, place: str) -> "SigningKey":
        """Return the key of a PEM text that stands at `place`. Raises InvalidInput if it is no Ed25519 private key."""
        try:
            key = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InvalidInput(f"signing key {place} cannot be read: expected an Ed25519 private key in PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidInput(f"signing key {place} is of another kind: expected Ed25519")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> "SigningKey":
        """Return the key of `path`, made there (0600) if nothing exists. Raises InvalidInput as `load` does."""
        if path.exists():
            return cls.load(path)
        key = Ed25519PrivateKey.generate()
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(cls(key).private_pem())
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        return cls(key)

    def private_pem(self) -> bytes:
        """Return the key as PEM, for its own file or Secret and nothing else."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def public_pem(self) -> bytes:
        """Return the public half as PEM, for the verifiers' key directory."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign_caller(self, subject: str, *, now: float, seconds: int) -> str:
        """Return a caller's token of local mode for `subject`, valid from `now` for `seconds`."""
        claims = {"iss": LOCAL_ISSUER, "aud": AUDIENCE, "sub": subject, "iat": int(now), "exp": int(now) + seconds}
        return self._sign(claims)

    def sign_capability(self, audience: str, right: Right, *, now: float) -> str:
        """Return a capability for `audience` (see `capability_audience`), valid from `now` for 60 s."""
        return self._sign({"aud": audience, "right": right, "iat": int(now), "exp": int(now) + CAPABILITY_SECONDS})

    def _sign(self, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers={"kid": self.id})


class Capability(msgspec.Struct, frozen=True):
    """A verified capability; it may be cached until `expires_at` (seconds since 1970)."""

    right: Right
    key_id: KeyId
    expires_at: float


class CallerToken(msgspec.Struct, frozen=True):
    """A verified caller's token; it may be cached until `expires_at` (seconds since 1970)."""

    subject: str
    expires_at: float


def key_id(key: Ed25519PublicKey) -> KeyId:
    """Return the id of a key: 16 hexadecimal digits of the SHA-256 of its raw public bytes."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return KeyId(hashlib.sha256(raw).hexdigest()[:16])


def capability_audience(key: CorpusKey, incarnation: Incarnation) -> str:
    """Return the audience that names one life of one corpus."""
    return f"{key}/{incarnation}"


class VerifyingKeys:
    """The public keys of a verifier, each bound to the role that signs with it."""

    def __init__(self, keys: Mapping[KeyId, tuple[Role, Ed25519PublicKey]]) -> None:
        self._keys = dict(keys)

    @classmethod
    def load(cls, directory: Path) -> "VerifyingKeys":
        """Return the keys of `router-*.pem` and `operator-*.pem` in `directory`. Raises InvalidInput if there is none."""
        keys: dict[KeyId, tuple[Role, Ed25519PublicKey]] = {}
        roles: tuple[Role, ...] = ("router", "operator")
        for role in roles:
            for path in sorted(directory.glob(f"{role}-*.pem")):
                key = load_public_key(path)
                keys[key_id(key)] = (role, key)
        if not keys:
            raise InvalidInput(
                f"key directory {directory} holds no router-*.pem or operator-*.pem: expected the public keys; mount them"
            )
        return cls(keys)

    @property
    def ids(self) -> list[str]:
        """Return the key ids, sorted: what a shard reports during a rotation."""
        return sorted(self._keys)

    def verify_capability(self, token: str, audience: str, *, now: float) -> Capability:
        """Return the capability that `token` is for `audience`. Raises Denied (401), with one text for every cause."""
        denied = Denied("capability is not valid here", code="capability_denied")
        role, key = self._keys.get(_key_id_of(token, denied), (None, None))
        if role is None or key is None:
            raise denied
        claims = _decode(token, key, audience, denied, now=now)
        right, expires_at, issued_at = claims.get("right"), float(claims["exp"]), float(claims["iat"])
        if not isinstance(right, str) or right not in RIGHTS_OF_ROLE[role]:
            raise denied
        if expires_at - issued_at > CAPABILITY_SECONDS:
            raise denied
        return Capability(right=right, key_id=KeyId(key_id(key)), expires_at=expires_at)


def load_public_key(path: Path) -> Ed25519PublicKey:
    """Return the Ed25519 public key of a PEM file. Raises InvalidInput."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"public key {path} cannot be read: expected an Ed25519 public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"public key {path} is of another kind: expected Ed25519")
    return key


def verify_caller(token: str, key: Ed25519PublicKey, *, now: float) -> CallerToken:
    """Return the caller that a local-mode `token` names. Raises Denied (401), with one text for every cause."""
    denied = Denied("token is not valid here: expected one for audience groundplane, signed by this installation")
    if _key_id_of(token, denied) != key_id(key):
        raise denied
    claims = _decode(token, key, AUDIENCE, denied, now=now)
    subject = claims.get("sub")
    if claims.get("iss") != LOCAL_ISSUER or not isinstance(subject, str) or not subject:
        raise denied
    return CallerToken(subject=subject, expires_at=float(claims["exp"]))


def _key_id_of(token: str, denied: Denied) -> KeyId:
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise denied
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise denied from error
    return KeyId(str(header.get("kid", "")))


def _decode(token: str, key: Ed25519PublicKey, audience: str, denied: Denied, *, now: float) -> dict[str, Any]:
    """Return the claims after signature, audience and times were checked against `now`, not the ambient clock."""
    options: Any = {"require": ["exp", "iat", "aud"], "verify_exp": False, "verify_iat": False, "verify_nbf": False}
    try:
        claims: dict[str, Any] = jwt.decode(token, key, algorithms=[_ALGORITHM], audience=audience, options=options)
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError) as error:
        raise denied from error
    check_times(claims, denied, now=now)
    if claims["aud"] != audience:
        raise denied
    return claims


def check_times(claims: Mapping[str, Any], denied: Denied, *, now: float) -> float:
    """Return when `claims` end, in seconds since 1970. Raises `denied` unless they are valid at `now`."""
    try:
        expires_at, issued_at = float(claims["exp"]), float(claims["iat"])
        valid_from = max(issued_at, float(claims.get("nbf", issued_at)))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise denied from error
    if not (math.isfinite(expires_at) and math.isfinite(valid_from)):
        raise denied
    if now >= expires_at or valid_from > now + CLOCK_LEEWAY_SECONDS:
        raise denied
    return expires_at
