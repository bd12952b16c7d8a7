"""A small real server for `/v1/embeddings`: deterministic vectors of any size, and every way to answer badly.

It runs in a thread with a loop of its own, so tests with any event loop, and other processes, can use it. Texts that share
words have similar vectors: each word adds its own pseudo-random direction.
"""

import asyncio
import base64
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

import numpy as np
from aiohttp import web


class EmbeddingServer:
    """Serves at `url` between `start` and `stop`, or as a context manager. Set `misbehaviour` by name at any time.

    requests: decoded bodies in the order of arrival; headers: those of the last request.
    """

    def __init__(self, dimension: int = 384, *, seed: int = 0) -> None:
        self.dimension = dimension
        self.seed = seed
        self.misbehaviour: str | None = None
        self.misbehave_times: int | None = None
        """After so many bad answers it behaves again; None: never."""
        self.retry_after: str | None = None
        self.encoding = "float"
        self.requests: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.url = ""
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._runner: web.AppRunner | None = None
        self._released = asyncio.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()
        self._loop.close()

    def start(self) -> None:
        """Listen; after a `stop` at the same port again."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    def stop(self) -> None:
        """Refuse connections until the next `start`; idempotent."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)

    def vector(self, text: str) -> list[float]:
        """Return the vector that a well-behaved answer holds for `text`."""
        words = re.findall(r"\w+", text.lower()) or [text]
        total = np.zeros(self.dimension)
        for word in words:
            digest = hashlib.sha256(f"{self.seed}:{word}".encode("utf-8", "replace")).digest()
            total += np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(self.dimension)
        return [float(value) for value in total]

    async def _start(self) -> None:
        if self._runner is not None:
            return
        self._released.clear()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/embeddings", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port)
        await site.start()
        self._runner = runner
        self._port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def _stop(self) -> None:
        self._released.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers = dict(request.headers)
        misbehaviour = self.misbehaviour
        if misbehaviour is not None and self.misbehave_times is not None:
            self.misbehave_times -= 1
            if self.misbehave_times < 0:
                misbehaviour = None
        vectors = [self.vector(text) for text in body["input"]]
        if misbehaviour is None:
            return web.json_response(answer_body([self._encoded(vector) for vector in vectors]))
        if misbehaviour.startswith("status_"):
            headers = {"Retry-After": self.retry_after} if self.retry_after is not None else {}
            return web.Response(status=int(misbehaviour.removeprefix("status_")), text="no " * 1000, headers=headers)
        if misbehaviour in TRANSPORT_FAULTS:
            return await TRANSPORT_FAULTS[misbehaviour](self, request)
        return web.Response(text=BAD_BODIES[misbehaviour](vectors), content_type="application/json")

    def _encoded(self, vector: list[float]) -> list[float] | str:
        if self.encoding == "float":
            return vector
        return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()

    async def _slow(self, request: web.Request) -> web.StreamResponse:
        await self._released.wait()
        return web.Response(status=503)

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"data": [')
        while not self._released.is_set():
            await response.write(b" " * 65536)
        return response

    async def _broken_off(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _redirect(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": f"{self.url}/v1/embeddings"})

    async def _compressed_bomb(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b" " * 50_000_000), headers={"Content-Encoding": "gzip"})


TRANSPORT_FAULTS: dict[str, Callable[[EmbeddingServer, web.Request], Awaitable[web.StreamResponse]]] = {
    "slow": EmbeddingServer._slow,
    "endless": EmbeddingServer._endless,
    "broken_off": EmbeddingServer._broken_off,
    "redirect": EmbeddingServer._redirect,
    "compressed_bomb": EmbeddingServer._compressed_bomb,
}


def answer_body(embeddings: list[Any], indexes: list[Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of an answer; indexes count up unless given."""
    numbered = zip(indexes if indexes is not None else range(len(embeddings)), embeddings, strict=True)
    return {
        "object": "list",
        "model": "fake",
        "data": [{"object": "embedding", "index": index, "embedding": embedding} for index, embedding in numbered],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


def _json(embeddings: list[Any], indexes: list[Any] | None = None) -> str:
    return json.dumps(answer_body(embeddings, indexes))


BAD_BODIES: dict[str, Callable[[list[list[float]]], str]] = {
    "wrong_size": lambda vectors: _json([vector[: len(vector) // 2] for vector in vectors]),
    "too_long": lambda vectors: _json([vector * 2 for vector in vectors]),
    "mixed_sizes": lambda vectors: _json([vector[: len(vector) - row] for row, vector in enumerate(vectors)]),
    "nan": lambda vectors: _json([[float("nan"), *vector[1:]] for vector in vectors]),
    "infinite": lambda vectors: _json([[float("inf"), *vector[1:]] for vector in vectors]),
    "overflow": lambda vectors: _json([[1e300, *vector[1:]] for vector in vectors]),
    "nan_base64": lambda vectors: _json(
        [base64.b64encode(np.full(4, np.nan, "<f4").tobytes()).decode()] * len(vectors)
    ),
    "bad_base64": lambda vectors: _json(["%%%"] * len(vectors)),
    "odd_base64": lambda vectors: _json([base64.b64encode(b"12345").decode()] * len(vectors)),
    "zero": lambda vectors: _json([[0.0] * len(vector) for vector in vectors]),
    "first_zero": lambda vectors: _json([[0.0] * len(vectors[0]), *vectors[1:]]),
    "constant": lambda vectors: _json([[1.0] * len(vector) for vector in vectors]),
    "empty_vector": lambda vectors: _json([[] for _ in vectors]),
    "short_batch": lambda vectors: _json(vectors[:-1]),
    "long_batch": lambda vectors: _json([*vectors, vectors[0]]),
    "shuffled": lambda vectors: _json(vectors[::-1], list(range(len(vectors)))[::-1]),
    "duplicate_index": lambda vectors: _json(vectors, [0] * len(vectors)),
    "missing_index": lambda vectors: _json(vectors, [None] * len(vectors)),
    "foreign_index": lambda vectors: _json(vectors, [index + 1 for index in range(len(vectors))]),
    "null_vector": lambda vectors: _json([None] * len(vectors)),
    "null_value": lambda vectors: _json([[None, *vector[1:]] for vector in vectors]),
    "text_values": lambda vectors: _json([["a", *vector[1:]] for vector in vectors]),
    "null": lambda vectors: "null",
    "no_data": lambda vectors: '{"error": "x"}',
    "not_json": lambda vectors: "<html>it works</html>",
    "empty": lambda vectors: "",
}
"""Answers with status 200 by name. `shuffled` is a good one: its indexes say the order."""
