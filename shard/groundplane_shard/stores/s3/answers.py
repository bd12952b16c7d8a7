"""What an answer of the store means: pure functions from status, code and body to results of the storage contract.

2xx  done, if the answer is one that a store gives; else as 5xx
3xx  not done: the endpoint or region is wrong
401, 403, and 400 with a code about tokens: not done, code `store_denied`
404  `NoSuchKey` is absence. Anything else, such as a proxy's page, is not: an absence that is none ends a log early
409  not done, ask again
412  the condition does not hold
429, other 4xx: not done
5xx  a write's outcome is unknown: a proxy may say so after the store has done it, and stores say so after half of it
"""

import hashlib
import re
from typing import NoReturn
from xml.etree import ElementTree as ET

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import Absent, Conflict, Found, Listed, PreconditionFailed, Stored
from groundplane_shard.stores.s3.requests import OK_STATUSES, Answer

SHA256_HEADER = "x-amz-meta-sha256"
_DENIED_CODES = frozenset(
    {
        "AccessDenied",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_ABSENT_CODE = "NoSuchKey"
_CODE = re.compile(r"[A-Za-z0-9]{1,64}")
_MAX_ERROR_BYTES = 64 * 1024


def error_code(answer: Answer) -> str:
    """Return the store's own code of an error, "" if the answer is no error document of S3."""
    if len(answer.body) > _MAX_ERROR_BYTES:
        return ""
    root = _try_parse(answer.body)
    if root is None or _name(root) != "Error":
        return ""
    code = next((child.text or "" for child in root if _name(child) == "Code"), "")
    return code if _CODE.fullmatch(code) else ""


def is_denied(answer: Answer) -> bool:
    """Whether the store refused the credentials, so that others might help."""
    return answer.status in {401, 403} or (answer.status == 400 and error_code(answer) in _DENIED_CODES)


def try_parse_found(answer: Answer, what: str) -> Found | Absent | None:
    """Return the object; None if its bytes are not those that were stored.

    Raises Unavailable for everything that is not certainly an object or its absence.
    """
    if is_absence(answer):
        return Absent()
    etag = checked_etag(answer, what)
    announced = answer.headers.get(SHA256_HEADER)
    if announced is None and answer.body.lstrip()[:1] == b"<":  # no object of ours begins like that
        raise _unusable(what, "a page instead of the object")
    if announced is not None and announced != hashlib.sha256(answer.body).hexdigest():
        return None
    return Found(answer.body, etag)


def parse_written(answer: Answer, what: str) -> Stored | PreconditionFailed | Conflict:
    """Return what became of a conditional PUT. Raises OutcomeUnknown or Unavailable (certainly not done)."""
    if answer.status == 412 or is_absence(answer):  # an absent key has no version to replace
        return PreconditionFailed()
    if answer.status == 409:
        return Conflict()
    if answer.status not in OK_STATUSES:
        raise_failed(answer, what, is_write=True)
    etag = _etag(answer)
    if not etag or answer.body.strip():
        raise OutcomeUnknown(f"{what}: store answered {answer.status} in a way that no store does; read it back")
    return Stored(etag)


def check_deleted(answer: Answer, what: str) -> None:
    """Return if the object is gone. Raises Unavailable or OutcomeUnknown."""
    is_done = answer.status in OK_STATUSES and not answer.body.strip()
    if not is_done and not is_absence(answer):
        raise_failed(answer, what, is_write=True)


def is_absence(answer: Answer) -> bool:
    """Whether the store says that there is no such object."""
    return answer.status == 404 and error_code(answer) == _ABSENT_CODE


def checked_etag(answer: Answer, what: str) -> str:
    """Return the etag of an object that was read. Raises Unavailable if the answer is none about an object."""
    if answer.status != 200:
        raise_failed(answer, what, is_write=False)
    etag = _etag(answer)
    if not etag:
        raise _unusable(what, "an answer without etag")
    return etag


def parse_listed(answer: Answer, prefix: str, start_after: str) -> Listed:
    """Return one page of keys in code point order. Raises Unavailable for a page that is not whole and in order."""
    what = f"list of {prefix or 'the bucket'}"
    if answer.status != 200:
        raise_failed(answer, what, is_write=False)
    root = _try_parse(answer.body)
    if root is None or _name(root) != "ListBucketResult":
        raise _unusable(what, "no list")
    keys = tuple(_child_text(child, "Key") for child in root if _name(child) == "Contents")
    truncated, count = _child_text(root, "IsTruncated"), _child_text(root, "KeyCount")
    if truncated not in {"true", "false"} or (truncated == "true" and not keys):
        raise _unusable(what, "a page that does not say how it goes on")
    if count and count != str(len(keys)):
        raise _unusable(what, f"{len(keys)} keys instead of {count}")
    is_ordered = all(left < right for left, right in zip((start_after, *keys), keys, strict=False))
    if not is_ordered or not all(key.startswith(prefix) for key in keys):
        raise _unusable(what, "keys that are out of order or of elsewhere")
    return Listed(keys, more=truncated == "true")


def raise_failed(answer: Answer, what: str, *, is_write: bool) -> NoReturn:
    """Raise the error that an answer without success means."""
    said = f"{answer.status} {error_code(answer)}".strip()
    if is_denied(answer):
        raise Unavailable(
            f"{what}: store refused the credentials with {said}: expected access to read, write, delete and list; "
            "repair the credentials or the bucket's policy",
            code="store_denied",
        )
    if is_write and (answer.status < 300 or answer.status >= 500):
        raise OutcomeUnknown(f"{what}: store answered {said}: it may or may not have been done, read it back")
    raise Unavailable(f"{what}: store answered {said}: expected 200; try again later", code="store_io")


def _unusable(what: str, found: str) -> Unavailable:
    return Unavailable(f"{what}: store answered 200 with {found}; try again", code="store_io")


def _etag(answer: Answer) -> str:
    return answer.headers.get("etag", "").removeprefix("W/").strip('"')


def _try_parse(body: bytes) -> ET.Element | None:
    try:
        return ET.fromstring(body)  # noqa: S314  # bounded, and expat expands no entities without limit
    except (ET.ParseError, LookupError, ValueError):  # the latter two: it declares an encoding that cannot be read
        return None


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _child_text(element: ET.Element, name: str) -> str:
    return next((child.text or "" for child in element if _name(child) == name), "")
