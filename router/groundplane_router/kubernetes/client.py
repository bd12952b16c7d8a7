"""The client of the API server: one call, one decoded answer, and a watch as batches of lines.

What a caller may rely on: an answer is whole, decoded, of bounded size and in time; no redirect is followed and nothing is
decompressed; anything else raises `Unavailable`, never an empty answer. Its `detail` is one of

    api_credentials  api_unreachable  api_timeout  api_status_<code>  api_bad_answer

and `retry_after_seconds` is what a 429 or 503 asked for. `ResourceExpired` (410) alone is told apart: list again.
Nothing is repeated here; who calls knows whether that makes sense. Tokens enter no error text.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Self, TypeVar

import aiohttp
import msgspec

from groundplane.errors import Unavailable
from groundplane.process.clock import Clock
from groundplane.retry_after import try_retry_after
from groundplane_router.kubernetes.access import ApiAccess, Credentials
from groundplane_router.kubernetes.failures import ResourceExpired, bad_answer, refused, timed_out, unreachable
from groundplane_router.kubernetes.lines import LineSplitter
from groundplane_router.kubernetes.objects import Status

CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 15.0
"""Of one page of a list; other calls are bounded by their callers too."""

GRACE_SECONDS: Final = 10.0
"""A watch that the server has not ended so long after its time is dead."""

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
MAX_RETRY_AFTER_SECONDS: Final = 999
"""Nobody is asked to wait for longer."""

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""etcd takes objects of 1.5 MiB; with what the server adds, no event comes near."""

ERROR_BODY_BYTES: Final = 4_096
ACCEPTED: Final = "application/json, application/jwk-set+json"
"""The published keys have a media type of their own, and are not given as any other."""

AnswerT = TypeVar("AnswerT")


class ApiServer:
    """Talks to the API server over one pool of connections. An asynchronous context manager."""

    def __init__(self, access: ApiAccess, clock: Clock) -> None:
        self._url = access.url
        self._credentials = Credentials(access.directory, clock)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=5),  # who calls is bounded: watches, token checks
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept": ACCEPTED, "Accept-Encoding": "identity", "User-Agent": "groundplane-router"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, kind: type[AnswerT], query: Mapping[str, str] | None = None) -> AnswerT:
        """Return what stands at `path`. Raises Unavailable, ResourceExpired."""
        return await self._exchange("GET", path, kind, query=query)

    async def create(self, path: str, body: msgspec.Struct, kind: type[AnswerT]) -> AnswerT:
        """Return the answer to `body`, which is posted once. Raises Unavailable."""
        return await self._exchange("POST", path, kind, body=msgspec.json.encode(body))

    async def watch(self, path: str, version: str, seconds: int) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch from `version` as they come, those of one read at once, until the server ends it.

        The first batch is empty: the server has taken the watch. Raises Unavailable, ResourceExpired; also when the server
        neither sends anything nor ends the watch after `seconds`. Close it to end it earlier.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        splitter = LineSplitter(MAX_LINE_BYTES)
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=seconds + GRACE_SECONDS)
        try:
            async with self._request("GET", path, query=query, timeout=timeout) as response:
                await self._check(response)
                yield []
                async for piece in response.content.iter_any():
                    if lines := splitter.feed(piece):
                        yield lines
        except TimeoutError as error:
            raise timed_out() from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable() from error

    async def _exchange(
        self,
        method: str,
        path: str,
        kind: type[AnswerT],
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AnswerT:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with self._request(method, path, query=query, body=body, timeout=timeout) as response:
                await self._check(response)
                content = await _read_bounded(response, MAX_ANSWER_BYTES)
        except TimeoutError as error:
            raise timed_out() from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable() from error
        return decode(content, kind)

    def _request(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise Unavailable("the router is not started yet", detail="starting")
        headers = {"Authorization": self._credentials.authorization()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return self._session.request(
            method,
            self._url + path,
            params=query,
            data=body,
            headers=headers,
            timeout=timeout,
            ssl=self._credentials.tls(),
            allow_redirects=False,
        )

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        """Raise what a status other than 200 and 201 means."""
        if response.status in {200, 201}:
            return
        if response.status == 401:
            self._credentials.forget_token()
        if response.status == 410:
            raise ResourceExpired
        reason = _reason_of(await response.content.read(ERROR_BODY_BYTES))
        raise refused(
            response.status,
            reason,
            retry_after_seconds=try_retry_after(
                response.headers.get("Retry-After", ""), most_seconds=MAX_RETRY_AFTER_SECONDS
            ),
        )


def decode(content: bytes | msgspec.Raw, kind: type[AnswerT]) -> AnswerT:
    """Return `content` as `kind`. Raises Unavailable."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_answer("something that cannot be used") from error


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the body. Raises Unavailable past `max_bytes`, before more of it is in memory."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > max_bytes:
            raise bad_answer("something that cannot be used")
    return bytes(content)


def _reason_of(content: bytes) -> str:
    """Return the machine-readable reason of a Status; its message may quote what was sent, so that is left out."""
    try:
        reason = msgspec.json.decode(content, type=Status).reason
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "no reason given"
    return reason if re.fullmatch("[A-Za-z]{1,64}", reason) else "no reason given"
