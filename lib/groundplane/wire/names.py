"""Names that cross components: tenants, corpus keys, incarnations, positions, scopes and reasons."""

import base64
import binascii
import hashlib
import re
from enum import StrEnum
from typing import NewType

from groundplane.errors import InvalidInput

TenantId = NewType("TenantId", str)
CorpusKey = NewType("CorpusKey", str)
Incarnation = NewType("Incarnation", str)
Sequence = NewType("Sequence", int)

PLATFORM_KEY = CorpusKey("platform")
MAX_TENANT_CHARACTERS = 1_024
LARGEST_SEQUENCE = 2**63 - 1
"""What an answer's integer can hold on every side; a log never gets there."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_CORPUS_KEY = re.compile(r"platform|t-[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?|h-[0-9a-f]{40}")
_INCARNATION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_MAX_LABEL_CHARACTERS = 40


class Scope(StrEnum):
    """Where a hit comes from."""

    TENANT = "tenant"
    PLATFORM = "platform"
    LOCAL = "local"


class Reason(StrEnum):
    """Why retrieval could not be done; never used for "searched, nothing to say"."""

    NO_CORPUS = "no_corpus"
    NO_EMBEDDER = "no_embedder"
    EMBED_ERROR = "embed_error"
    DIMENSION_MISMATCH = "dimension_mismatch"
    ZERO_VECTOR = "zero_vector"
    SEARCH_FAILED = "search_failed"


def corpus_key(tenant: str) -> CorpusKey:
    """Return the storage name of `tenant`; "" is the platform.

    `platform`, `t-<id>` for a lowercase DNS label of at most 40 characters, else `h-` and 40 hexadecimal digits of the
    id's SHA-256. The three spaces cannot collide, so an id that cannot be a path component never shares an index.
    Raises InvalidInput for an id of more than 1,024 characters or one that UTF-8 cannot carry.
    """
    if tenant == "":
        return PLATFORM_KEY
    if len(tenant) > MAX_TENANT_CHARACTERS:
        raise InvalidInput(
            f"tenant id has {len(tenant)} characters: expected at most {MAX_TENANT_CHARACTERS}", field="tenant"
        )
    if len(tenant) <= _MAX_LABEL_CHARACTERS and _DNS_LABEL.fullmatch(tenant):
        return CorpusKey(f"t-{tenant}")
    try:
        digest = hashlib.sha256(tenant.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "tenant id holds a lone surrogate: expected text that UTF-8 can carry", field="tenant"
        ) from error
    return CorpusKey(f"h-{digest[:40]}")


def parse_corpus_key(text: str) -> CorpusKey:
    """Return `text` as a corpus key. Raises InvalidInput for anything `corpus_key` cannot make."""
    if not _CORPUS_KEY.fullmatch(text):
        raise InvalidInput(
            f"corpus key {text[:64]!r}: expected platform, t-<dns label> or h-<40 hex digits>", field="corpus_key"
        )
    return CorpusKey(text)


def parse_incarnation(text: str) -> Incarnation:
    """Return `text` as an incarnation: a lowercase UUID, the uid of a TenantCorpus. Raises InvalidInput."""
    if not _INCARNATION.fullmatch(text):
        raise InvalidInput(f"incarnation {text[:64]!r}: expected a lowercase UUID", field="incarnation")
    return Incarnation(text)


def format_position(incarnation: Incarnation, sequence: int) -> str:
    """Return the opaque position of `sequence` in `incarnation`, as every write answers it."""
    return base64.urlsafe_b64encode(f"1:{incarnation}:{sequence}".encode()).decode().rstrip("=")


def parse_position(position: str) -> tuple[Incarnation, int]:
    """Return incarnation and sequence of a position. Raises InvalidInput for anything `format_position` cannot make."""
    try:
        decoded = base64.urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode("ascii")
        version, incarnation, sequence = decoded.split(":")
        parsed = parse_incarnation(incarnation), int(sequence)
    except (ValueError, binascii.Error, InvalidInput) as error:
        raise InvalidInput(
            "position cannot be read: expected one that a write returned", field="min_position"
        ) from error
    is_ours = version == "1" and 0 <= parsed[1] <= LARGEST_SEQUENCE and format_position(*parsed) == position
    if not is_ours:
        raise InvalidInput("position cannot be read: expected one that a write returned", field="min_position")
    return parsed
