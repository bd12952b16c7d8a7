"""Small writes without a thread in between, on the loop that shards run on and on the one that tests run on."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvloop

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import Stored
from groundplane_shard.stores.s3 import Credentials, FixedCredentials, S3Settings, S3Store
from groundplane_shard.stores.s3.direct import MAX_BODY_BYTES, MAX_CONNECTIONS
from groundplane_shard.stores.s3.settings import StoreLocation
from tests.support.processes import free_port

KEY = "t-acme/i/log/00000000000000000001"
STORED = b'HTTP/1.1 200 OK\r\nETag: "e1"\r\nContent-Length: 0\r\n\r\n'
HANG_UP = b""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    """Run a coroutine in a loop of one of the two kinds."""

    def run(work):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(work)

    return run


class Server:
    """Keeps connections, answers each request with the next of `replies`, and hangs up where that is empty."""

    def __init__(self, *replies):
        self.port = free_port()
        self.connections = 0
        self._replies = list(replies)
        self._tasks = set()

    async def serve(self, reader, writer):
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        try:
            while self._replies:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                reply = self._replies.pop(0)
                writer.write(reply)
                if reply == HANG_UP:
                    break
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def store(self, settings=None):
        """Give a store before this server."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        store = self.open(settings)
        try:
            yield store
        finally:
            store.close()
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self, settings=None):
        location = StoreLocation(endpoint=f"http://127.0.0.1:{self.port}", bucket="corpora")
        keys = FixedCredentials(Credentials("access", "secret"))
        return S3Store(location, settings or S3Settings(answer_seconds=0.3), keys)

    async def outcomes(self, count):
        """Return what becomes of `count` small creates, one after the other."""
        async with self.store() as store:
            return [await outcome(store) for _ in range(count)]


async def outcome(store):
    try:
        return await store.create(KEY, b"data")
    except Unavailable as error:
        return type(error)


def test_a_connection_is_used_again(run):
    """A new one for every write would double what it takes."""
    server = Server(STORED, STORED, STORED)

    assert run(server.outcomes(3)) == [Stored("e1")] * 3
    assert server.connections == 1


async def threads_after(server, *sizes):
    async with server.store() as store:
        for size in sizes:
            await store.create(KEY, bytes(size))
            await store.replace(KEY, bytes(size), "e0")
        return len(store._calls._threads)


def test_no_thread_is_started(run):
    """That is what it is for."""
    assert run(threads_after(Server(STORED, STORED), 4)) == 0


def test_a_large_object_is_hashed_in_a_thread(run):
    """Searches wait while the event loop hashes."""
    assert run(threads_after(Server(STORED, STORED), MAX_BODY_BYTES + 1)) > 0


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(HANG_UP, id="none"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", id="silence"),
        pytest.param(b"HTTP/1.1 200 OK\r\nETag: e1\r\nContent-Length: 5\r\n\r\nab", id="cut"),
        pytest.param(b"HTTP/1.1 200 OK\r\nETag: e1\r\n\r\n", id="without-end"),
        pytest.param(b"220 mail.example ESMTP\r\n", id="another-protocol"),
        pytest.param(b"HTTP/1.1 500 X\r\nContent-Length: 999999\r\n\r\n" + bytes(999_999), id="endless"),
    ],
)
def test_what_is_no_whole_answer_leaves_the_outcome_unknown_and_its_connection_unused(run, reply):
    """The write may have been done; what comes later on that connection would be taken for the next one's answer."""
    server = Server(reply, STORED)

    assert run(server.outcomes(2)) == [OutcomeUnknown, Stored("e1")]
    assert server.connections == 2


def test_an_interim_answer_is_not_the_answer(run):
    """A proxy may say 100 before the store has done anything."""
    assert run(Server(b"HTTP/1.1 100 Continue\r\n\r\n" + STORED).outcomes(1)) == [Stored("e1")]


def test_what_comes_unasked_ends_the_connection(run):
    """A second answer to the last request is none to the next."""

    async def two(server):
        async with server.store() as store:
            first = await outcome(store)
            await asyncio.sleep(0.05)
            return [first, await outcome(store)]

    server = Server(STORED + STORED, STORED)
    assert run(two(server)) == [Stored("e1")] * 2
    assert server.connections == 2


def test_no_connection_means_certainly_not_done(run):
    """A write that was refused may be called refused, and the writer goes on."""

    async def refused():
        store = Server().open()
        try:
            await store.create(KEY, b"data")
        finally:
            store.close()

    with pytest.raises(Unavailable) as refusal:
        run(refused())
    assert (type(refusal.value), refusal.value.code) == (Unavailable, "store_unreachable")


def test_connections_are_bounded(run):
    """Thirty creates at once must not become thirty connections."""

    async def many(server):
        async with server.store(S3Settings()) as store:
            await asyncio.gather(*(store.create(KEY, b"data") for _ in range(4 * MAX_CONNECTIONS)))

    server = Server(*[STORED] * 4 * MAX_CONNECTIONS)
    run(many(server))
    assert server.connections == MAX_CONNECTIONS


@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Exception ignored")
def test_a_store_outlives_an_event_loop(run):
    """A connection of a loop that has ended is of no use to the next one."""
    server = Server(STORED, STORED)
    store = server.open()

    async def create():
        listening = await asyncio.start_server(server.serve, "127.0.0.1", server.port, reuse_port=True)
        try:
            return await store.create(KEY, b"data")
        finally:
            listening.close()

    assert [run(create()), run(create())] == [Stored("e1")] * 2
    store.close()
