"""ServiceAccount tokens as text: what they claim, and whom a verified one names. Nothing here verifies anything.

Source: Kubernetes "Managing Service Accounts", section on bound tokens (claims `aud`, `exp`; subject
`system:serviceaccount:<namespace>:<name>`).
"""

import base64
import binascii
import math
import re

import msgspec

from groundplane.errors import Denied
from groundplane.tokens import AUDIENCE

_SUBJECT = re.compile(r"system:serviceaccount:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PARTS = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]+", re.ASCII)


class Claims(msgspec.Struct, frozen=True):
    """What a token says of itself. `exp` is in seconds since 1970."""

    aud: str | list[str]
    exp: float = math.inf


def claims_of(token: str) -> Claims:
    """Return the claims of a token that is yet to be verified. Raises Denied if it cannot be one for us."""
    denied = Denied("token does not claim to be for audience groundplane")
    parts = _PARTS.fullmatch(token)
    if parts is None:
        raise denied
    payload = parts[1]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Claims)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise denied from error
    if AUDIENCE not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise denied
    return claims


def parse_subject(username: str) -> str:
    """Return the name of a ServiceAccount as a subject. Raises Denied for any other kind of user."""
    if not _SUBJECT.fullmatch(username):
        raise Denied("token names no ServiceAccount")
    return username
