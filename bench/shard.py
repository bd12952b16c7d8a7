"""The product's shard as a subject of the bench: a real process, asked over HTTP by a client that costs little."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import aiohttp
import msgspec

from bench.corpus import DIMENSION, Query, Rows
from groundplane.analysis import Analyser
from groundplane.tokens import Right
from groundplane.wire.internal import ChunkInput, Operation, ReplaceDocument, SearchAnswer, SearchRequest, ShardStatus
from tests.support.processes import ANALYSER_ID, ShardProcess

BATCH = 500
WINDOW = 20  # of a question with k = 5
_ENGINE_SECONDS = 180.0
_RETRY_SECONDS = 0.05
_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(SearchAnswer).decode


class Overloaded(RuntimeError):
    """The server asks to come back later."""


class BenchShard:
    """One running shard. Safe for several threads: each has its own connection and capability."""

    def __init__(self, process: ShardProcess) -> None:
        self.process = process
        self._analyser = Analyser()
        self._local = threading.local()

    @classmethod
    def at(cls, root: Path, settings: Mapping[str, str] | None = None, *, key: str = "t-acme") -> "BenchShard":
        """Return a shard of a new corpus, its files below `root`."""
        root.mkdir(parents=True, exist_ok=True)
        return cls(ShardProcess(root, key=key, dimension=DIMENSION, settings=settings))

    def start(self) -> float:
        """Start the process and return the seconds until it is ready."""
        self.process.start()
        return self.process.await_ready()

    def load(self, rows: Rows) -> float:
        """Write all rows in batches of 500 and return the seconds from the first to the last acknowledgement."""
        bodies = [self.batch_body(rows.part(start, start + BATCH)) for start in range(0, len(rows), BATCH)]
        started = time.perf_counter()
        for body in bodies:
            self.write_when_taken(body)
        return time.perf_counter() - started

    def write_when_taken(self, body: bytes) -> None:
        """Write, again while the shard says that it has too much to flush; the wait counts."""
        while True:
            try:
                self.post("/write", body, "write")
            except Overloaded:
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def batch_body(self, rows: Rows) -> bytes:
        """Return the body of a write that holds all of `rows`."""
        return self.process.write_body(*operations(rows))

    def search_body(self, query: Query, window: int = WINDOW) -> bytes:
        """Return the body of a search, with the terms that the router would send."""
        request = SearchRequest(
            incarnation=self.process.incarnation,
            analyser=ANALYSER_ID,
            terms=self.terms(query),
            window=window,
            vector=query.vector.tobytes(),
            embedding_id=self.process.embedding.id,
        )
        return _encode(request)

    def terms(self, query: Query) -> tuple[str, ...]:
        """Return the terms that the router would send."""
        return self._analyser.query_terms(query.text, 128)

    def search(self, query: Query) -> SearchAnswer:
        """Search and decode the answer, as the router does."""
        return _decode_answer(self.post("/search", self.search_body(query), "read"))

    def snapshot(self) -> ShardStatus:
        """Flush and publish a snapshot."""
        return msgspec.msgpack.decode(self.post("/snapshot", b"", "operate"), type=ShardStatus)

    def status(self) -> ShardStatus:
        """Return the shard's status."""
        connection = self._connection()
        connection.request("GET", "/status", headers=self._headers("read"))
        return msgspec.msgpack.decode(body_of(connection), type=ShardStatus)

    def await_engine(self, engine: str) -> None:
        """Return once the shard searches with `engine`."""
        deadline = time.monotonic() + _ENGINE_SECONDS
        while self.status().engine != engine:
            if time.monotonic() > deadline:
                raise TimeoutError(f"shard did not change to the {engine} engine within {_ENGINE_SECONDS} s")
            time.sleep(0.2)

    def post(self, path: str, body: bytes, right: Right) -> bytes:
        """Send one request and return the answer's body; raises RuntimeError on any other status than 200."""
        connection = self._connection()
        connection.request("POST", path, body=body, headers=self._headers(right))
        return body_of(connection)

    def queries_per_second(self, queries: Sequence[Query], clients: int, seconds: float) -> float:
        """Return how many searches a second `clients` clients complete together."""
        return asyncio.run(self._queries_per_second(queries, clients, seconds))

    async def _queries_per_second(self, queries: Sequence[Query], clients: int, seconds: float) -> float:
        bodies = [self.search_body(query) for query in queries]
        end = time.perf_counter() + seconds
        async with aiohttp.ClientSession(headers=self.process.headers("read")) as session:

            async def client(index: int) -> int:
                done = 0
                for body in cycle([*bodies[index:], *bodies[:index]]):
                    if time.perf_counter() >= end:
                        return done
                    async with session.post(f"{self.process.url}/search", data=body) as answer:
                        answer.raise_for_status()
                        _decode_answer(await answer.read())
                    done += 1
                return done

            started = time.perf_counter()
            counts = await asyncio.gather(*(client(index) for index in range(clients)))
            return sum(counts) / (time.perf_counter() - started)

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.process.port, timeout=60)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = connection
        return connection

    def forget_connections(self) -> None:
        """Let every thread connect anew, after a restart."""
        self._local = threading.local()

    def _headers(self, right: Right) -> dict[str, str]:
        """Return headers with a capability that is signed twice a minute, as the router does."""
        cache: dict[Right, tuple[float, dict[str, str]]] = self._local.__dict__.setdefault("headers", {})
        signed_at, headers = cache.get(right, (0.0, {}))
        if time.monotonic() - signed_at > 30 or not headers:
            cache[right] = (time.monotonic(), headers := self.process.headers(right))
        return headers


@contextmanager
def running(shard: BenchShard) -> Iterator[BenchShard]:
    """Run `shard` for a block and kill it at its end."""
    shard.start()
    try:
        yield shard
    finally:
        shard.process.kill()


def operations(rows: Rows) -> Iterator[Operation]:
    """Yield one document of one chunk a row."""
    for index, doc_id in enumerate(rows.ids):
        text = rows.texts[index]
        chunk = ChunkInput(start=0, end=len(text), heading=None, vector=rows.vectors[index].tobytes())
        yield ReplaceDocument(
            doc_id=doc_id, text=text, title=None, uri=None, metadata=b"{}", chunker="bench", chunks=(chunk,)
        )


def body_of(connection: http.client.HTTPConnection) -> bytes:
    """Return the answer's body; raises RuntimeError on any other status than 200, Overloaded where it is 503."""
    answer = connection.getresponse()
    body = answer.read()
    if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        raise Overloaded(f"the server answered 503: {body[:256]!r}")
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"the server answered {answer.status}: {body[:256]!r}")
    return body
