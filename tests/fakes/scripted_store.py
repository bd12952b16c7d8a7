"""A server that reads requests whole and answers with prepared bytes: for answers that no sound store gives."""

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

POLL_SECONDS = 0.01


class Received(msgspec.Struct, frozen=True):
    """One request as it came in; names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Reply(msgspec.Struct, frozen=True):
    """Bytes to send, in pieces with pauses between them if asked for; afterwards the connection is closed."""

    raw: bytes
    head: bytes = b""  # sent at once, before it
    piece_bytes: int = 1 << 20
    pause_seconds: float = 0.0
    is_followed_by_silence: bool = False  # instead of closing, say nothing more


SILENCE = Reply(b"", is_followed_by_silence=True)
HANG_UP = Reply(b"")


def answer(status: int, body: bytes = b"", **headers: str) -> Reply:
    """Return a well-formed answer. Underscores in names of headers stand for hyphens."""
    shown = {
        "content-length": str(len(body)),
        "connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in shown.items())]
    return Reply("\r\n".join([*lines, "", ""]).encode() + body)


def found(body: bytes) -> Reply:
    """Return the answer of a store that has this object as it was written."""
    return answer(200, body, etag='"e1"', x_amz_meta_sha256=hashlib.sha256(body).hexdigest())


def failure(status: int, code: str) -> Reply:
    """Return an error document of S3."""
    return answer(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())


class ScriptedStore:
    """Answers the first request with the first reply, and so on; the last reply is repeated."""

    def __init__(self, replies: Sequence[Reply], tls: ssl.SSLContext | None, deaf_seconds: float) -> None:
        self.requests: list[Received] = []
        self._replies = list(replies)
        self._tls = tls
        self._deaf_seconds = deaf_seconds
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        """Return the URL of the server."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def wait_for(self, requests: int) -> None:
        """Block until so many have come in, 5 s at most."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.requests) >= requests, 5.0)

    def close(self) -> None:
        """End all connections."""
        self._stop.set()
        for thread in list(self._threads):
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        self._listener.settimeout(POLL_SECONDS)
        while not self._stop.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a client that hangs up is what many tests are about
            connection.settimeout(5.0)
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._stop.wait(self._deaf_seconds)
            request = _read_request(connection)
            with self._changed:
                self.requests.append(request)
                self._changed.notify_all()
                reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            connection.sendall(reply.head)
            for start in range(0, len(reply.raw), reply.piece_bytes):
                connection.sendall(reply.raw[start : start + reply.piece_bytes])
                self._stop.wait(reply.pause_seconds)
            if reply.is_followed_by_silence:
                self._stop.wait()
            connection.close()


@contextmanager
def scripted_store(
    *replies: Reply, tls: ssl.SSLContext | None = None, deaf_seconds: float = 0.0
) -> Iterator[ScriptedStore]:
    """Give a running server that begins to read each request after `deaf_seconds`."""
    store = ScriptedStore(replies, tls, deaf_seconds)
    try:
        yield store
    finally:
        store.close()


def _read_request(connection: socket.socket) -> Received:
    with connection.makefile("rb") as file:
        method, target, _ = file.readline().decode().split(" ", 2)
        headers = {}
        while (line := file.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Received(method, target, headers, file.read(int(headers.get("content-length", "0"))))
