"""Connections that cannot be held by a slow or endless peer, and what is said to one too many or one that speaks no HTTP.

uvicorn bounds neither the time nor the size of a request's head, and waits for ever for a peer that does not read. A head that
is not complete after 10 s or 32 KiB, and an answer that is not taken for 10 s, end the connection. Bodies are bounded where
they are read; between requests the keep-alive time holds. Its own refusals are plain text; here they are problem documents.
A head that two programs may read differently (`heads`) is refused, and the connection ended.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groundplane.errors import GroundplaneError, InvalidInput, Unavailable
from groundplane.process.heads import head_fault
from groundplane.process.http import problem_of, problem_response
from groundplane.process.logs import Log

MAX_HEAD_BYTES = 32 * 1024
HEAD_SECONDS = 10.0
WRITE_SECONDS = 10.0
INVALID_HTTP = "invalid_http"

_LOG = Log("connections")


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds on the peer."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._served = self.app
        self._max_connections, self.limit_concurrency = self.limit_concurrency, None
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        """Expect the first head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers: they hold the connection."""
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse a head that has grown too long."""
        super().data_received(data)
        if self._head_timer is None:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request head is too large.")

    def on_message_begin(self) -> None:
        """Expect the head of the next request on a connection that was kept alive."""
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is here: serve the request, unless nobody knows what it says, or there are too many."""
        self._stop_head_timer()
        failure = self._failure()
        if failure is not None:
            _LOG.warning("request_refused", code=failure.code, problem=failure.message)
        self.app = self._served if failure is None else Refusal(failure)
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and end the connection: nobody knows where its next request begins.

        Answers go out in the order of the requests, so while an earlier one is owed its own, that is the last word.
        """
        self._stop_head_timer()
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        if not self.pipeline:
            self.transport.write(_bare_refusal(msg.rstrip(".").lower()))
        self.transport.close()

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write: give it a while."""
        super().pause_writing()
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        self._stop_write_timer()
        super().resume_writing()

    def _failure(self) -> GroundplaneError | None:
        """Return why the request whose head is complete is not served, None if it is."""
        fault = head_fault(self.parser.get_http_version(), self.headers)
        if fault is not None:
            return InvalidInput(fault, code=INVALID_HTTP)
        if self._max_connections is None or len(self.connections) <= self._max_connections:
            return None
        message = "too many connections are open: close some, or try again"
        return Unavailable(message, code="overloaded", detail="overloaded")

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class Refusal:
    """An ASGI application that answers every request with one failure, and ends the connection."""

    def __init__(self, failure: GroundplaneError) -> None:
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the problem document."""
        problem, headers = problem_of(self._failure)
        await problem_response(problem, {**headers, "Connection": "close"})(scope, receive, send)


def _bare_refusal(message: str) -> bytes:
    """Return the bytes that refuse what is not even a request."""
    problem, _ = problem_of(InvalidInput(message, code=INVALID_HTTP))
    response = problem_response(problem, {"Connection": "close"})
    head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(response.body)
