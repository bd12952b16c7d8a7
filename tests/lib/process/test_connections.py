"""Raw sockets against the server: slow, endless and two-faced peers are let go."""

import asyncio
import json
from contextlib import suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from groundplane.process import connections
from groundplane.process.connections import MAX_HEAD_BYTES, BoundedHttpProtocol

LARGE = 32 * 1024 * 1024


async def small(request: Request) -> Response:
    return Response(await request.body() or b"ok")


async def large(_request: Request) -> Response:
    return Response(b"x" * LARGE)


MAX_CONNECTIONS = 3


@pytest.fixture
async def port(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.2)
    app = Starlette(routes=[Route("/", small, methods=["GET", "POST"]), Route("/large", large)])
    config = uvicorn.Config(
        app, port=0, http=BoundedHttpProtocol, log_config=None, access_log=False, lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers nothing to wait for
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


class Peer:
    """A client that sends bytes as it likes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port, **options):
        return cls(*await asyncio.open_connection("127.0.0.1", port, **options))

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self, seconds=5.0):
        """Return all that comes until the server ends the connection."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""
            finally:
                self.writer.close()
                with suppress(ConnectionError):
                    await self.writer.wait_closed()


async def test_a_head_that_never_ends_is_let_go(port):
    """A thousand such peers would hold every connection there is."""
    peer = await Peer.connect(port)
    await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n")

    assert await peer.rest() == b""


async def test_a_peer_that_says_nothing_is_let_go(port):
    """As above, cheaper."""
    assert await (await Peer.connect(port)).rest() == b""


async def test_a_second_head_that_never_ends_is_let_go(port):
    """One good request must not buy endless time."""
    peer = await Peer.connect(port)
    await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost:")
    answer = await peer.rest()

    assert answer.count(b"200 OK") == 1


async def test_a_head_that_is_too_long_is_refused(port):
    """Headers are kept in memory until the last one is here."""
    peer = await Peer.connect(port)
    await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (MAX_HEAD_BYTES + 10))

    assert b"400 Bad Request" in await peer.rest()


async def test_what_is_no_http_gets_a_problem_document(port):
    """One shape of failure for all clients."""
    peer = await Peer.connect(port)
    await peer.send(b"HELO x\r\n\r\n")
    head, _, body = (await peer.rest()).partition(b"\r\n\r\n")

    assert b"content-type: application/problem+json" in head
    assert (json.loads(body)["status"], json.loads(body)["code"]) == (400, "invalid_http")


async def test_a_connection_too_many_is_told_to_come_back_and_the_others_are_kept(port):
    """A proxy that opens one more must learn why; it must not cost those who were there first."""
    held = [await Peer.connect(port) for _ in range(MAX_CONNECTIONS)]
    extra = await Peer.connect(port)
    await extra.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = (await extra.rest()).partition(b"\r\n\r\n")

    assert b"503 Service Unavailable" in head
    assert b"retry-after: 1" in head.lower()
    assert (json.loads(body)["code"], json.loads(body)["status"]) == ("overloaded", 503)
    await held[0].send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in await held[0].rest()
    for peer in held[1:]:
        peer.writer.close()


async def test_a_large_body_behind_a_small_head_is_no_long_head(port):
    """They may arrive in one piece."""
    body = b"b" * (2 * MAX_HEAD_BYTES)
    peer = await Peer.connect(port)
    await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    assert (await peer.rest()).endswith(body)


async def test_a_peer_that_does_not_read_is_let_go(port):
    """Its answer would stay in memory for as long as it likes."""
    peer = await Peer.connect(port, limit=1024)
    await peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(0.5)  # the peer's own slowness is what is tested
    received = await peer.rest()

    assert len(received) < LARGE


async def test_a_good_peer_is_kept(port):
    """The bounds are for heads and answers, not for the time between requests."""
    peer = await Peer.connect(port)
    for _ in range(2):
        await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await peer.reader.readuntil(b"ok")
        await asyncio.sleep(0.3)  # longer than a head may take
    peer.writer.close()


SMUGGLED = [
    pytest.param(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="both-lengths"),
    pytest.param(b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", id="two-lengths"),
    pytest.param(b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", id="chunked-not-last"),
    pytest.param(b"Content-Length: +4\r\n\r\nabcd", id="signed-length"),
    pytest.param(b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", id="blank-before-colon"),
    pytest.param(b"X: a\r\n b: folded\r\nContent-Length: 0\r\n\r\n", id="folded-header"),
]


@pytest.mark.parametrize("rest", SMUGGLED)
async def test_a_request_that_two_servers_read_differently_is_refused_and_closed(port, rest):
    """What one takes for a body the other takes for the next request, of somebody else."""
    peer = await Peer.connect(port)
    await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + rest + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await peer.rest()

    assert b"400 Bad Request" in answer
    assert b"200 OK" not in answer


HOST = b"Host: x\r\n"
TWO_FACED = [
    pytest.param(b"", b"", id="no-host"),
    pytest.param(HOST, b"Host: x\r\n", id="two-hosts"),
    pytest.param(b"Host: x, y\r\n", b"", id="joined-hosts"),
    pytest.param(b"Host: x/admin\r\n", b"", id="host-with-path"),
    pytest.param(b"Host: me@x\r\n", b"", id="host-with-user"),
    pytest.param(HOST, b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", id="two-authorizations"),
    pytest.param(HOST, b"Content-Type: a/b\r\nContent-Type: c/d\r\n", id="two-content-types"),
    pytest.param(HOST, b"Transfer-Encoding: gzip, chunked\r\n", id="encoded-twice"),
    pytest.param(HOST, b"Connection: x, Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n", id="upgrade"),
]


@pytest.mark.parametrize(("host", "rest"), TWO_FACED)
async def test_a_head_that_two_programs_read_differently_is_refused_and_closed(port, host, rest):
    """What a proxy has checked must be what is served."""
    peer = await Peer.connect(port)
    await peer.send(b"POST / HTTP/1.1\r\n" + host + rest + b"\r\n" + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = (await peer.rest()).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["code"] == "invalid_http"


@pytest.mark.parametrize("line", [b"GET /", b"GET / HTTP/0.9", b"GET / HTTP/2.0"])
async def test_another_version_of_http_is_refused(port, line):
    """Its rules about hosts and bodies are others."""
    peer = await Peer.connect(port)
    await peer.send(line + b"\r\nHost: x\r\n\r\n")

    assert b"400 Bad Request" in await peer.rest()


async def test_an_old_client_without_a_host_is_served(port):
    """HTTP/1.0 asks for none: probes and benches of that kind exist."""
    peer = await Peer.connect(port)
    await peer.send(b"GET / HTTP/1.0\r\n\r\n")

    assert b"200 OK" in await peer.rest()


@pytest.mark.parametrize("second", [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"], ids=["no-http", "no-host"])
async def test_a_refusal_is_never_taken_for_the_answer_of_an_earlier_request(port, second):
    """A write that was done must not read as refused because of what came behind it."""
    peer = await Peer.connect(port)
    await peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + second + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await peer.rest()

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"200 OK") == 1
