"""An HTTP/1.1 proxy that does wrong by rule and seed: put it before an object store and see who notices.

    with FaultProxy("127.0.0.1", 8333, seed=7) as proxy:
        proxy.rules = (Rule(DropAnswer(), methods=("PUT",), path="/log/", nth=3),)     # at any time, from any thread
        ...
        proxy.partition(5.0)
        proxy.injected["DropAnswer"], proxy.forwarded

Of the rules that match a request the first one that fires decides; a request that none decides is passed on. Requests
are read whole before anything is done with them, and passed on one a connection; what the client sent, `Host` included,
arrives as it was, since signatures cover it. The proxy's loop runs in its own thread.

Faults that leave the request undone: `AnswerStatus` (unless `is_applied`), `Reset`, `Silence`, a partition that began
before it. Done, but not said so: `DropAnswer`, `CutAnswer`, `FlipAnswer`. Done when nobody waits any more: `DeliverLate`.
Done twice: `RepeatLater`. Slow: `Delay`, `Throttle`.
"""

import asyncio
import http
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from tests.support.http_messages import Message, may_have_body, read_message

HEAD_BYTES = 64 * 1024
ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.01
_PIECES_PER_SECOND = 20


class Delay(msgspec.Struct, frozen=True):
    """Pass the request on after so many seconds."""

    seconds: float


class DropAnswer(msgspec.Struct, frozen=True):
    """Let the server do it, then close the connection without a word."""


class DeliverLate(msgspec.Struct, frozen=True):
    """Close the connection at once, and pass the request on after so many seconds."""

    seconds: float


class RepeatLater(msgspec.Struct, frozen=True):
    """Pass the request on and its answer back, and after so many seconds pass the same request on again."""

    seconds: float


class AnswerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Answer this instead of the server, which is asked, and its answer thrown away, only if `is_applied`."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    is_applied: bool = False


class Reset(msgspec.Struct, frozen=True):
    """Reset the connection (RST) instead of passing the request on."""


class Silence(msgspec.Struct, frozen=True):
    """Hold the connection open, pass nothing on and say nothing, until the client leaves."""


class CutAnswer(msgspec.Struct, frozen=True):
    """Send the answer's head and so many bytes of its body, then close the connection."""

    size_bytes: int


class FlipAnswer(msgspec.Struct, frozen=True):
    """Turn over one bit of the answer's body, chosen by the seed; an empty one stays."""


class Throttle(msgspec.Struct, frozen=True):
    """Take and give bodies no faster than this."""

    bytes_per_second: float


Fault: TypeAlias = (
    Delay | DropAnswer | DeliverLate | RepeatLater | AnswerStatus | Reset | Silence | CutAnswer | FlipAnswer | Throttle
)


class Rule(msgspec.Struct, frozen=True):
    """When a fault happens: to requests of `methods` (empty: all) in whose path, unescaped, `path` is found.

    path: a regular expression, applied to the path and the query. nth: which match it begins with, counted from when the
    rules were set; times: how many matches from there on (None: all); probability: of each of those.
    """

    fault: Fault
    methods: tuple[str, ...] = ()
    path: str = ""
    nth: int = 1
    times: int | None = None
    probability: float = 1.0

    def matches(self, method: str, target: str) -> bool:
        """Whether this rule is about such a request."""
        return (not self.methods or method in self.methods) and re.search(self.path, unquote(target)) is not None


class FaultProxy:
    """A proxy on a free port of 127.0.0.1. `injected` counts faults by name, `forwarded` the requests that were passed on."""

    def __init__(self, host: str, port: int, *, seed: int) -> None:
        self.injected: Counter[str] = Counter()
        self.forwarded = 0
        self._server_address = (host, port)
        self._random = random.Random(seed)
        self._rules: tuple[Rule, ...] = ()
        self._matches: Counter[int] = Counter()
        self._partition_ends = 0.0
        self._late: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_exc: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Where clients go instead of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force. Set them at any time; counting matches begins anew with that."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[Rule]) -> None:
        self._call(self._set_rules(tuple(rules)))

    def partition(self, seconds: float) -> None:
        """From now on, for so many seconds, pass nothing through in either direction; what was under way loses its answer."""
        self._call(self._begin_partition(seconds))

    def await_late(self, timeout_seconds: float = 30.0) -> None:
        """Return when every late request was passed on. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while self._late:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._late)} late requests were not passed on in {timeout_seconds} s")
            time.sleep(POLL_SECONDS)

    # -- the proxy's own thread

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = [*self._connections, *self._late]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set_rules(self, rules: tuple[Rule, ...]) -> None:
        self._rules, self._matches = rules, Counter()

    async def _begin_partition(self, seconds: float) -> None:
        self._partition_ends = self._loop.time() + seconds
        self.injected["partition"] += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection, request after request, until a fault or the client ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await read_message(reader, is_answer_to=None)) is not None:
                if not await self._answer(request, reader, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client left, or the server did: the client's connection is closed
        except asyncio.CancelledError:
            pass  # the proxy stops; a task of asyncio's server that ends cancelled would be reported
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Do with one request what the rules say; return whether the connection goes on."""
        if self._is_partitioned():
            await self._sit_out_partition(reader)
            return False
        fault = self._fault_for(request)
        if fault is not None:
            self.injected[type(fault).__name__] += 1
        answer = await self._perform(fault, request, reader, writer)
        if answer is None:
            return False
        if self._is_partitioned():
            await self._sit_out_partition(reader)
            return False
        encoded = answer.encoded(connection="keep-alive", has_length=may_have_body(request.method, answer.status))
        pace = fault.bytes_per_second if isinstance(fault, Throttle) else None
        cut = len(encoded) - len(answer.body) + fault.size_bytes if isinstance(fault, CutAnswer) else None
        await _send(writer, encoded[:cut], pace)
        return cut is None

    async def _perform(
        self, fault: Fault | None, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Message | None:
        """Return the answer to give; None: none, close the connection."""
        match fault:
            case AnswerStatus():
                if fault.is_applied:
                    await self._forward(request)
                first_line = f"HTTP/1.1 {fault.status} {http.HTTPStatus(fault.status).phrase}"
                return Message(first_line, fault.headers, fault.body)
            case DropAnswer():
                await self._forward(request)
                return None
            case DeliverLate(seconds):
                self._forward_later(request, seconds)
                return None
            case Reset():
                _reset(writer)
                return None
            case Silence():
                await reader.read()  # until the client leaves
                return None
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Throttle(bytes_per_second):
                await asyncio.sleep(len(request.body) / bytes_per_second)
            case RepeatLater(seconds):
                self._forward_later(request, seconds)
        answer = await self._forward(request)
        return self._flipped(answer) if isinstance(fault, FlipAnswer) else answer

    def _fault_for(self, request: Message) -> Fault | None:
        for number, rule in enumerate(self._rules):
            if not rule.matches(request.method, request.target):
                continue
            self._matches[number] += 1
            turn = self._matches[number] - rule.nth
            is_due = turn >= 0 and (rule.times is None or turn < rule.times)
            if is_due and (rule.probability >= 1 or self._random.random() < rule.probability):
                return rule.fault
        return None

    def _is_partitioned(self) -> bool:
        return self._loop.time() < self._partition_ends

    async def _sit_out_partition(self, reader: asyncio.StreamReader) -> None:
        """Return when the client has left or the partition ends."""
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(), self._partition_ends - self._loop.time())

    async def _forward(self, request: Message) -> Message:
        """Pass the request on and return the whole answer. Raises OSError, IncompleteReadError, TimeoutError."""
        self.forwarded += 1
        reader, writer = await asyncio.open_connection(*self._server_address, limit=HEAD_BYTES)
        try:
            has_length = bool(request.body) or request.method in {"PUT", "POST"}
            writer.write(request.encoded(connection="close", has_length=has_length))
            await writer.drain()
            answer = await asyncio.wait_for(read_message(reader, is_answer_to=request.method), ANSWER_SECONDS)
        finally:
            writer.close()
        if answer is None:
            raise ConnectionResetError("the server closed the connection without an answer")
        return answer

    def _forward_later(self, request: Message, seconds: float) -> None:
        task = self._loop.create_task(self._forward_after(request, seconds))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _forward_after(self, request: Message, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):  # nobody waits for it
            await self._forward(request)

    def _flipped(self, answer: Message) -> Message:
        if not answer.body:
            return answer
        body = bytearray(answer.body)
        body[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
        return msgspec.structs.replace(answer, body=bytes(body))


async def _send(writer: asyncio.StreamWriter, encoded: bytes, bytes_per_second: float | None) -> None:
    piece_bytes = len(encoded) if bytes_per_second is None else max(1, int(bytes_per_second / _PIECES_PER_SECOND))
    for start in range(0, len(encoded), piece_bytes or 1):
        writer.write(encoded[start : start + piece_bytes])
        await writer.drain()
        if bytes_per_second is not None:
            await asyncio.sleep(piece_bytes / bytes_per_second)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let closing the connection send RST instead of FIN."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
