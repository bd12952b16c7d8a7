"""One signed request to an S3 endpoint and its answer: the only importer of `minio`.

`minio` signs (AWS Signature Version 4), `urllib3` sends. The client class of `minio` is not used: its `put_object` has
no way to say `If-None-Match`, and it repeats requests by itself. Signing by its function covers the condition, so a
proxy that dropped the header would be refused instead of overwriting, and the SHA-256 of the body.

Nothing is repeated here and no redirect is followed. A request ends in an `Answer`, whatever its status, or in

    Unavailable     code `store_unreachable`: no connection, or the body was withheld; nothing was done
    OutcomeUnknown  the request was sent, at least in part, and there is no whole answer
"""

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
import urllib3
from minio.credentials.credentials import Credentials as SigningKeys
from minio.signer import sign_v4_s3
from urllib3.exceptions import HTTPError

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.stores.s3.bodies import CHUNK_BYTES, Body
from groundplane_shard.stores.s3.connections import NotConnected, open_pool
from groundplane_shard.stores.s3.credentials import Credentials
from groundplane_shard.stores.s3.settings import StoreLocation

SLOWEST_BYTES_PER_SECOND = 32 * 1024  # a body that comes or goes slower than this has stalled
MAX_BODY_BYTES = 64 * 1024 * 1024  # far more than a log record, a MANIFEST or a page of keys has
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
OK_STATUSES = frozenset({200, 204})
_SAFE_IN_PATH = "/~"
_USER_AGENT = "groundplane"

Sink: TypeAlias = Callable[[bytes], None]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the store. `key` is that inside the bucket, "" for the bucket itself."""

    method: str
    key: str = ""
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # signed as they are; names in lower case
    body: Body | None = None
    wait_seconds: float  # without a byte, in either direction


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. `body` is empty if it went into a sink; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """Connections to one bucket's endpoint. All methods block and may be called from several threads."""

    def __init__(self, location: StoreLocation, *, ca_file: str, connections: int) -> None:
        """Raise InvalidInput if the CA file cannot be used."""
        self.base = base_url(location)
        self._location = location
        self._pool = open_pool(self.base, ca_file, connections)

    def close(self) -> None:
        """Close the connections that are idle; those in use close after it."""
        self._pool.close()

    def send(self, request: Request, credentials: Credentials, sink: Sink | None = None) -> Answer:
        """Send the request once. The body of an answer with status 200 goes into `sink` if there is one."""
        url, headers = self.signed(request, credentials)
        try:
            with closing(_paced(request)) as chunks:
                response = self._pool.urlopen(
                    request.method,
                    f"{url.path}?{url.query}" if url.query else url.path,
                    body=chunks if request.body else None,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=request.wait_seconds, read=request.wait_seconds),
                    retries=False,  # no redirects either
                    preload_content=False,
                    decode_content=False,
                )
            return _read_answer(request, response, sink)
        except NotConnected as error:
            raise unreachable(self.base, error.reason) from error
        except (HTTPError, OSError) as error:
            raise unanswered(request, error) from error

    def url(self, request: Request) -> SplitResult:
        """Return where the request goes, escaped as it is sent and signed."""
        query = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(request.query))
        return self.base._replace(path=self.base.path + quote(request.key, safe=_SAFE_IN_PATH), query=query)

    def signed(self, request: Request, credentials: Credentials) -> tuple[SplitResult, dict[str, str]]:
        """Return URL and headers as they are sent. What a proxy may rightly change, such as the encodings accepted, is not signed."""
        url, body = self.url(request), request.body
        unsigned = {"accept-encoding": "identity", "user-agent": _USER_AGENT}
        if body:
            unsigned |= {"content-length": str(body.size), "content-type": "application/octet-stream"}
        return url, sign(request, url, self._location.region, credentials, datetime.now(UTC)) | unsigned


def unreachable(base: SplitResult, reason: str) -> Unavailable:
    """Return the error of a request that was not sent."""
    return Unavailable(
        f"no connection to the store at {base.netloc}: {reason}; try again later", code="store_unreachable"
    )


def unanswered(request: Request, cause: Exception) -> OutcomeUnknown:
    """Return the error of a request that was sent, at least in part, and has no whole answer."""
    return OutcomeUnknown(
        f"{request.method} {request.key or 'bucket'}: no whole answer from the store: {type(cause).__name__}; "
        "expected one, try again"
    )


def sign(
    request: Request, url: SplitResult, region: str, credentials: Credentials, signed_at: datetime
) -> dict[str, str]:
    """Return the headers of `request` with those that sign them, the URL and the body's digest. `signed_at` is in UTC.

    Source: AWS Signature Version 4 for S3; a test holds the result to an example of its documentation.
    """
    sha256 = request.body.sha256 if request.body else EMPTY_SHA256
    headers: dict[str, str | list[str] | tuple[str]] = {
        **dict(request.headers),
        "host": url.netloc,
        "x-amz-content-sha256": sha256,
        "x-amz-date": signed_at.strftime("%Y%m%dT%H%M%SZ"),
    }
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    signed = sign_v4_s3(
        method=request.method,
        url=url,
        region=region,
        headers=headers,
        credentials=SigningKeys(credentials.access_key, credentials.secret_key),
        content_sha256=sha256,
        date=signed_at,
    )
    return {name: str(value) for name, value in signed.items()}


# -- reading


class _Incomplete(HTTPError):
    """A body has no certain end."""


def _read_answer(request: Request, response: urllib3.BaseHTTPResponse, sink: Sink | None) -> Answer:
    """Read the whole answer; its connection is used again only if that succeeds."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    is_whole = False
    try:
        chunks = _chunks(request, response, headers)
        if sink is not None and response.status in OK_STATUSES:
            for chunk in chunks:
                sink(chunk)
            body = b""
        else:
            body = _joined(chunks)
        is_whole = True
    finally:
        if is_whole:
            response.release_conn()
        else:
            response.close()
    return Answer(status=response.status, headers=headers, body=body)


def _chunks(request: Request, response: urllib3.BaseHTTPResponse, headers: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the body as it comes in. One that is shorter than announced is refused by urllib3, one without end by us."""
    announced = headers.get("content-length", "")
    is_framed = announced.isdecimal() or headers.get("transfer-encoding") == "chunked" or response.status in {204, 304}
    if not is_framed:
        raise _Incomplete("its length is not announced")
    deadline = _Deadline(request.wait_seconds, int(announced) if announced.isdecimal() else MAX_BODY_BYTES)
    while chunk := response.read1(CHUNK_BYTES):
        deadline.check()
        yield chunk


def _joined(chunks: Iterator[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _Incomplete(f"it has more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


# -- sending


class _Deadline:
    """The time a body may take as a whole, so that no peer holds a thread for ever by a byte now and then."""

    def __init__(self, wait_seconds: float, size_bytes: int) -> None:
        self._end = time.monotonic() + 2 * wait_seconds + size_bytes / SLOWEST_BYTES_PER_SECOND

    def check(self) -> None:
        """Raise _Incomplete when the time is over."""
        if time.monotonic() > self._end:
            raise _Incomplete(f"it is slower than {SLOWEST_BYTES_PER_SECOND} bytes a second")


def _paced(request: Request) -> Generator[bytes, None, None]:
    """Yield the body while there is time; cut short, it is less than was announced, and no store stores that."""
    if request.body:
        deadline = _Deadline(request.wait_seconds, request.body.size)
        for chunk in request.body.chunks():
            deadline.check()
            yield chunk


def base_url(location: StoreLocation) -> SplitResult:
    """Return the URL of the bucket, to which a key is appended."""
    host = urlsplit(location.endpoint)
    if location.is_virtual_hosted:
        return host._replace(netloc=f"{location.bucket}.{host.netloc}", path="/")
    return host._replace(path=f"/{location.bucket}/")
