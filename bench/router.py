"""The product's router before two shards, as a subject of the bench; its embedder is a server that knows the queries."""

import hashlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.corpus import DIMENSION, Query, Rows
from bench.shard import BenchShard, body_of
from groundplane.wire.public import EvidenceAnswer
from tests.support.processes import RouterProcess, running

TENANT, PLATFORM = "t-acme", "platform"
_decode = msgspec.json.Decoder(EvidenceAnswer).decode


class BenchRouter:
    """A running router; the tenant's questions go to its own shard and the platform's."""

    def __init__(self, process: RouterProcess) -> None:
        self.process = process
        self._headers = {**process.headers(TENANT), "content-type": "application/json"}
        self._connection: HTTPConnection | None = None

    def evidence(self, query: Query) -> EvidenceAnswer:
        """Ask for the best five and decode the answer."""
        return _decode(self.post("/v1/evidence", {"query": query.text}))

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        """Send one request and return the answer's body; raises RuntimeError on any other status than 200."""
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self.process.port, timeout=60)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.request("POST", path, msgspec.json.encode(body), headers or self._headers)
        return body_of(self._connection)

    def introduce(self, key: str) -> None:
        """Index one document as the subject of `key`, so that the corpus takes on the router's embedding identity."""
        headers = {**self.process.headers(key), "content-type": "application/json"}
        self.post("/v1/documents", {"documents": [{"id": "first", "text": "the first document"}]}, headers)


@contextmanager
def two_corpora(root: Path, tenant: Rows, platform: Rows, queries: Sequence[Query]) -> Iterator[BenchRouter]:
    """Run a router, a tenant's shard and the platform's, both filled, for a block."""
    shards = {key: BenchShard.at(root, key=key) for key in (TENANT, PLATFORM)}
    with ExitStack() as processes:
        for shard in shards.values():
            processes.enter_context(running(shard.process))
        url = processes.enter_context(embedding_server(queries))
        settings = {"EMBEDDING_URL": url, "MODEL_EMBEDDING_DIM": str(DIMENSION)}
        process = RouterProcess(root, [shard.process for shard in shards.values()], settings)
        router = BenchRouter(processes.enter_context(running(process)))
        for (key, shard), rows in zip(shards.items(), (tenant, platform), strict=True):
            router.introduce(key)
            identity = shard.status().embedding
            if identity is None:
                raise RuntimeError("the first document fixed no embedding identity")
            shard.process.embedding = identity
            shard.load(rows)
            shard.snapshot()
        yield router


@contextmanager
def embedding_server(queries: Sequence[Query]) -> Iterator[str]:
    """Serve `/v1/embeddings` on a free port: the query's own vector where the text is a query, else one drawn by its hash."""
    vectors = {query.text: query.vector for query in queries}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # the library's name
            """Answer one request."""
            texts = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))["input"]
            found = [vectors[text] if text in vectors else _drawn(text) for text in texts]
            body = msgspec.json.encode({"data": [{"index": i, "embedding": v.tolist()} for i, v in enumerate(found)]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _drawn(text: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    vector = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)
