"""Where a bucket is, and the settings of its client that are not part of the URL."""

import re
from typing import Annotated, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.settings import setting

DEFAULT_REGION = "us-east-1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(?!\.)[A-Za-z0-9_.=+@~-]{1,255}(/(?!\.)[A-Za-z0-9_.=+@~-]{1,255}){0,7}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_PARAMETERS = ("endpoint", "region", "addressing")
_EXPECTED = "s3://BUCKET[/PREFIX][?endpoint=https://HOST[:PORT]&region=REGION&addressing=path|virtual]"


class StoreLocation(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix of a bucket behind an S3 endpoint."""

    endpoint: str  # scheme://host[:port], nothing after it
    bucket: str
    prefix: str = ""  # without slashes at its ends; "" is the whole bucket
    region: str = DEFAULT_REGION
    is_virtual_hosted: bool = False  # the bucket is the first part of the host name, not of the path

    def object_key(self, key: str) -> str:
        """Return the key inside the bucket; `key` may be a prefix to list."""
        return f"{self.prefix}/{key}" if self.prefix else key


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the shard talks to its bucket. The bucket itself is named by a URL, see `parse_store_url`."""

    access_key: Annotated[
        str, setting("GROUNDPLANE_S3_ACCESS_KEY", "access key of the bucket, unless a directory is set", secret=True)
    ] = ""
    secret_key: Annotated[
        str, setting("GROUNDPLANE_S3_SECRET_KEY", "secret key that belongs to the access key", secret=True)
    ] = ""
    session_token: Annotated[
        str, setting("GROUNDPLANE_S3_SESSION_TOKEN", "token of temporary credentials, if they need one", secret=True)
    ] = ""
    credentials_directory: Annotated[
        str,
        setting(
            "GROUNDPLANE_S3_CREDENTIALS_DIRECTORY",
            "directory of a mounted Secret with files access-key, secret-key and, if needed, session-token; "
            "read again when they change",
        ),
    ] = ""
    identity: Annotated[
        Literal["", "cloud"],
        setting(
            "GROUNDPLANE_S3_IDENTITY",
            "cloud: the keys are those of the role that the cloud gives to this pod or machine, and no others may be set",
        ),
    ] = ""
    identity_endpoint: Annotated[
        str, setting("GROUNDPLANE_S3_IDENTITY_ENDPOINT", "token service to ask for them, unless it is the cloud's own")
    ] = ""
    ca_file: Annotated[
        str, setting("GROUNDPLANE_S3_CA_FILE", "PEM file of the only CAs to trust; unset: those of the system")
    ] = ""
    answer_seconds: Annotated[
        float,
        setting("GROUNDPLANE_S3_ANSWER_SECONDS", "seconds without a byte after which a call has failed", gt=0, le=60),
    ] = 5.0
    file_answer_seconds: Annotated[
        float,
        setting(
            "GROUNDPLANE_S3_FILE_ANSWER_SECONDS",
            "the same for files of snapshots, which a store may take long to confirm",
            gt=0,
            le=600,
        ),
    ] = 30.0


def parse_store_url(url: str) -> StoreLocation:
    """Return the location that `url` names. Raises InvalidInput; the URL is not quoted if it might hold a password.

    The form is `s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&addressing=path|virtual]`. Without an endpoint it is
    AWS in that region; addressing is `path` unless said otherwise, which every store understands.
    """
    parts = _split(url, url)
    if "@" in parts.netloc:
        raise InvalidInput(f"store URL has credentials in it: expected {_EXPECTED}, and the keys in the environment")
    if parts.scheme != "s3" or parts.fragment:
        raise _invalid(url, "the URL", "s3://")
    parameters = _parameters(url, parts)
    region = parameters.get("region", DEFAULT_REGION)
    prefix = parts.path.strip("/")
    addressing = parameters.get("addressing", "path")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _invalid(url, "the bucket", "3 to 63 lowercase letters, digits, dots and hyphens")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise _invalid(url, "the prefix", "up to 8 components of letters, digits and _.=+@~- joined by /")
    if not _REGION.fullmatch(region):
        raise _invalid(url, "the region", "lowercase letters, digits and hyphens")
    if addressing not in {"path", "virtual"}:
        raise _invalid(url, "addressing", "path or virtual")
    return StoreLocation(
        endpoint=_checked_endpoint(url, parameters.get("endpoint", f"https://s3.{region}.amazonaws.com")),
        bucket=parts.netloc,
        prefix=prefix,
        region=region,
        is_virtual_hosted=addressing == "virtual",
    )


def _split(url: str, part: str) -> SplitResult:
    try:
        return urlsplit(part)
    except ValueError as error:
        raise _invalid(url, "the URL", "one that can be taken apart") from error


def _parameters(url: str, parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    parameters = dict(pairs)
    if len(parameters) != len(pairs) or not parameters.keys() <= set(_PARAMETERS):
        raise _invalid(url, "the query", f"each of {', '.join(_PARAMETERS)} at most once")
    return parameters


def _checked_endpoint(url: str, endpoint: str) -> str:
    parts = _split(url, endpoint)
    if "@" in parts.netloc:
        raise InvalidInput(f"store URL has credentials in its endpoint: expected {_EXPECTED}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise _invalid(url, "the endpoint", "http or https, a host and perhaps a port")
    try:
        port = parts.port
    except ValueError as error:
        raise _invalid(url, "the endpoint's port", "1 to 65535") from error
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_default = port is None or (parts.scheme, port) in {("http", 80), ("https", 443)}
    return f"{parts.scheme}://{host}" if is_default else f"{parts.scheme}://{host}:{port}"


def _invalid(url: str, part: str, expected: str) -> InvalidInput:
    shown = url if "@" not in url else "(not shown)"
    return InvalidInput(f"store URL {shown[:256]!r}: {part} is not {expected}; write {_EXPECTED}")
