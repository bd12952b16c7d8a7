"""Small requests on connections of the event loop itself, without a thread in between.

A thread costs a small write on a fast store a fifth of its time: two changes of thread, and the interpreter's lock at each.
What is sent, what an answer is, and how a request ends are as in `requests`: nothing is repeated, no redirect is followed,
`Unavailable` (`store_unreachable`) means that nothing was sent, `OutcomeUnknown` that there is no whole answer.
"""

import asyncio
from typing import cast

import httptools

from groundplane_shard.stores.s3.connections import CONNECT_SECONDS, NotConnected, innermost, tls_context
from groundplane_shard.stores.s3.credentials import Credentials
from groundplane_shard.stores.s3.requests import (
    SLOWEST_BYTES_PER_SECOND,
    Answer,
    Endpoint,
    Request,
    unanswered,
    unreachable,
)

MAX_BODY_BYTES = 256 * 1024  # sent: hashing so much takes 0.2 ms, and the kernel takes it at once
MAX_ANSWER_BYTES = 256 * 1024
MAX_CONNECTIONS = 8


class DirectConnections:
    """Up to eight connections of one event loop to an endpoint; made when they are needed, and kept."""

    def __init__(self, endpoint: Endpoint, *, ca_file: str) -> None:
        """Raise InvalidInput if the CA file cannot be used."""
        self._endpoint = endpoint
        self._tls = tls_context(ca_file) if endpoint.base.scheme == "https" else None
        self._idle: list[_Connection] = []
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)

    def close(self) -> None:
        """Close the connections that are idle."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def send(self, request: Request, credentials: Credentials) -> Answer:
        """Send a request with a body of at most `MAX_BODY_BYTES` once, and return its answer."""
        async with self._turns:
            return await self._send(request, credentials)

    async def _send(self, request: Request, credentials: Credentials) -> Answer:
        message = self._message(request, credentials)
        connection = self._kept() or await self._connect()
        size = request.body.size if request.body else 0
        try:
            async with asyncio.timeout(request.wait_seconds + size / SLOWEST_BYTES_PER_SECOND):
                answer = await connection.ask(message)
        except NotConnected as error:
            raise unreachable(self._endpoint.base, error.reason) from error
        except (OSError, TimeoutError, httptools.HttpParserError) as error:
            raise unanswered(request, error) from error
        finally:
            if connection.is_reusable:
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    def _message(self, request: Request, credentials: Credentials) -> bytes:
        url, headers = self._endpoint.signed(request, credentials)
        target = f"{url.path}?{url.query}" if url.query else url.path
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        body = b"".join(request.body.chunks()) if request.body else b""
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    def _kept(self) -> "_Connection | None":
        """Return a connection that the store has not closed meanwhile, and that belongs to the loop that runs now."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.loop is asyncio.get_running_loop():
                return connection
            connection.close()
        return None

    async def _connect(self) -> "_Connection":
        base = self._endpoint.base
        port = base.port or (443 if self._tls else 80)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop), base.hostname or "", port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise unreachable(base, innermost(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection, at most one request at a time. It is reusable only between whole answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_reusable = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    async def ask(self, message: bytes) -> Answer:
        """Send `message` and return the whole answer to it. Raises OSError when the connection ends before.

        Raises NotConnected, having sent nothing, where it has ended already.
        """
        if self._transport is None or self._transport.is_closing():
            raise NotConnected(ConnectionResetError("the store hung up"))
        self.is_reusable = False
        self._parser, self._headers, self._body = httptools.HttpResponseParser(self), {}, bytearray()
        self._answer = self.loop.create_future()
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        """Close the connection at once. Any thread may call."""
        self.is_reusable = False
        if self._transport is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._transport.abort)

    # -- what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the other side."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none of its subclasses

    def data_received(self, data: bytes) -> None:
        """Read on in the answer; what comes without a question, or is no answer, ends the connection."""
        if self._answer is None or self._answer.done():
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let whoever waits know that no answer will come."""
        self._fail(exc or ConnectionResetError("the store hung up"))

    # -- what the parser tells

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._body += body
        if len(self._body) > MAX_ANSWER_BYTES:
            self._fail(ConnectionAbortedError(f"the answer has more than {MAX_ANSWER_BYTES} bytes"))

    def on_message_complete(self) -> None:
        """Give the answer to whoever waits, unless it is only an interim one."""
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        if self._answer is None or self._answer.done():
            self.close()  # a second answer to one question
            return
        self.is_reusable = self._parser.should_keep_alive()
        self._answer.set_result(Answer(status=status, headers=self._headers, body=bytes(self._body)))
        self._headers = {}

    def _fail(self, error: Exception) -> None:
        self.is_reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
