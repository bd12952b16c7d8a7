"""Client of any server that speaks OpenAI's `POST /v1/embeddings`: vLLM, TEI, Ollama, llama.cpp, Infinity and others.

The server is foreign: its answer is bounded in size and time, never followed elsewhere, never decompressed, and taken only
if it holds exactly one list of numbers for each text. Whatever else it sends is `embed_error` with one `detail`:

    unreachable  timeout  redirect  status_<code>  compressed  too_large  broken_off  not_json  not_embeddings
    null_vector  short_batch  bad_index  mixed_sizes  not_finite

Only 429 and 503 are retried, with jitter, and only while the budget of the call lasts; then the caller is told the server's
own Retry-After. The key, the texts and the answers never reach a log or an error text, except the first 256 characters of an
error body, which stay in the raised error.
"""

import asyncio
import base64
import binascii
import math
import random
import re
from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec
import numpy as np

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.clock import Clock
from groundplane.retry_after import try_retry_after
from groundplane_router.embedders.fit import UNAVAILABLE_CODE, Vector, embed_error
from groundplane_router.embedders.formats import Purpose
from groundplane_router.embedders.settings import EmbeddingSettings
from groundplane_router.embedders.wordpiece import WordPiece

PATH: Final = "/v1/embeddings"
ERROR_BODY_CHARS: Final = 256
BYTES_PER_TEXT: Final = 192 * 1024
"""Room for 8,192 values of 22 characters, twice the longest vector in use."""

BYTES_PER_ANSWER: Final = 64 * 1024
RETRIED_STATUSES: Final = (429, 503)
MAX_ATTEMPTS: Final = 4
MAX_RETRY_AFTER_SECONDS: Final = 300
"""What callers are told to wait at the most: a foreign server must not keep them away for a day."""

FIRST_PAUSE_SECONDS: Final = 0.25

_NOT_A_JSON_NUMBER: Final = re.compile(rb"[\[,:]\s*-?(NaN|Infinity)\b")
"""What Python servers write for numbers that JSON does not have."""


class _Item(msgspec.Struct):
    embedding: list[float | None] | str | None = None
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]


class _BrokenOff(Unavailable):
    """The connection ended before the answer did: tried once more, because embedding changes nothing."""


class OpenAiEmbedder:
    """A model behind a server. One session, used from one event loop."""

    def __init__(self, settings: EmbeddingSettings, *, clock: Clock, rng: random.Random) -> None:
        """Connect to nothing yet. Raises InvalidInput for a missing or unusable `url`."""
        self._url = embeddings_url(settings.url)
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._wordpiece = WordPiece.bundled()
        self._decoder = msgspec.json.Decoder(_Answer)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self.model = settings.model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vector:
        """Return float32 (len(texts), whatever size the server answers). Raises Unavailable (`embed_error`)."""
        if not texts:
            return np.empty((0, 0), np.float32)
        seconds = (
            self._settings.query_timeout_seconds if purpose == "query" else self._settings.document_timeout_seconds
        )
        deadline = self._clock.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                size = self._settings.batch_size
                batches = [texts[start : start + size] for start in range(0, len(texts), size)]
                return _stack([await self._embed_batch(batch, deadline) for batch in batches])
        except TimeoutError as error:
            raise embed_error(
                f"embedding server did not answer within {seconds:g} s: see whether it is overloaded", detail="timeout"
            ) from error

    def count_tokens(self, text: str) -> int:
        """Return WordPiece's count: an approximation, most servers' tokenizers need about as many or fewer."""
        return self._wordpiece.count(text)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _embed_batch(self, texts: Sequence[str], deadline: float) -> Vector:
        body = msgspec.json.encode(self._request(texts))
        limit = BYTES_PER_ANSWER + len(texts) * BYTES_PER_TEXT
        attempt = 0
        while True:
            attempt += 1
            try:
                status, retry_after, answer = await self._post(body, limit=limit)
            except _BrokenOff:
                if attempt > 1:
                    raise
                continue  # an idle connection that the server closed as we used it
            if status == 200:
                return parse_answer(self._decoder, answer, count=len(texts))
            pause = max(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * self._rng.uniform(0.5, 1.5), retry_after)
            is_last = attempt == MAX_ATTEMPTS or self._clock.monotonic() + pause >= deadline
            if is_last or status not in RETRIED_STATUSES:
                raise _status_error(status, answer, retry_after)
            await self._clock.sleep(pause)

    def _request(self, texts: Sequence[str]) -> dict[str, object]:
        request: dict[str, object] = {"model": self._settings.model, "input": list(texts), "encoding_format": "float"}
        if self._settings.request_dimensions is not None:
            request["dimensions"] = self._settings.request_dimensions
        return request

    async def _post(self, body: bytes, *, limit: int) -> tuple[int, int, bytes]:
        """Return status, seconds of Retry-After (0 without) and at most `limit` bytes of the answer."""
        try:
            async with self._connected().post(self._url, data=body, allow_redirects=False) as response:
                if 300 <= response.status < 400:
                    raise embed_error(
                        f"embedding server redirects (status {response.status}): set EMBEDDING_URL to the final address",
                        detail="redirect",
                    )
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise embed_error(
                        "embedding server compresses its answer though identity was asked for", detail="compressed"
                    )
                retry_after = try_retry_after(response.headers.get("Retry-After", ""), most_seconds=math.inf)
                return response.status, retry_after or 0, await _read(response, limit=limit)
        except aiohttp.ClientConnectorError as error:
            raise embed_error(
                f"embedding server cannot be reached ({type(error).__name__}): see whether it runs at EMBEDDING_URL",
                detail="unreachable",
            ) from error
        except aiohttp.ServerTimeoutError as error:
            raise embed_error("embedding server did not accept the connection in time", detail="timeout") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _BrokenOff(
                f"embedding server broke off its answer ({type(error).__name__}): see its log",
                code=UNAVAILABLE_CODE,
                reason="embed_error",
                detail="broken_off",
            ) from error

    def _connected(self) -> aiohttp.ClientSession:
        """Return the session, made at the first call because it belongs to the running loop."""
        if self._closed:
            raise embed_error("embedder is closed: the router is stopping", detail="closed")
        if self._session is None:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self._settings.api_key:
                headers["Authorization"] = f"Bearer {self._settings.api_key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout_seconds),
            )
        return self._session


def embeddings_url(base: str | None) -> str:
    """Return the address to post to, for a base with or without `/v1` and `/v1/embeddings`. Raises InvalidInput."""
    url = (base or "").rstrip("/")
    scheme, separator, rest = url.partition("://")
    if scheme not in ("http", "https") or not separator or not rest or "?" in rest or "#" in rest:
        raise InvalidInput(
            "EMBEDDING_URL is not the address of a server: expected http:// or https://, host, and perhaps a path",
            field="EMBEDDING_URL",
        )
    for known in (PATH, "/v1"):
        if url.endswith(known):
            return url.removesuffix(known) + PATH
    return url + PATH


def parse_answer(decoder: msgspec.json.Decoder[_Answer], body: bytes, *, count: int) -> Vector:
    """Return float32 (count, size) in the order of `index`. Raises Unavailable (`embed_error`) for any other answer."""
    try:
        items = decoder.decode(body).data
    except msgspec.ValidationError as error:
        raise embed_error(
            "embedding server answered JSON that is not a list of embeddings", detail="not_embeddings"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _NOT_A_JSON_NUMBER.search(body):
            raise embed_error("embedding server answered NaN or infinity", detail="not_finite") from error
        raise embed_error("embedding server answered something that is not JSON", detail="not_json") from error
    if len(items) != count:
        raise embed_error(
            f"embedding server answered {len(items)} vectors, expected {count}: see its batch limit",
            detail="short_batch" if len(items) < count else "long_batch",
        )
    by_index = {item.index: item for item in items}
    if set(by_index) != set(range(count)):
        raise embed_error(f"embedding server's answer does not number its vectors 0 to {count - 1}", detail="bad_index")
    return _stack([_parse_vector(by_index[index])[None, :] for index in range(count)])


def _parse_vector(item: _Item) -> Vector:
    """Return float32 (size,). NaN and infinity, which base64 can carry, pass: the fit refuses them."""
    values = item.embedding
    if values is None or (not isinstance(values, str) and None in values):
        raise embed_error("embedding server answered null where numbers belong", detail="null_vector")
    if isinstance(values, str):
        try:
            vector = np.frombuffer(base64.b64decode(values, validate=True), dtype="<f4").astype(np.float32)
        except (binascii.Error, ValueError) as error:
            raise embed_error(
                "embedding server answered text that is not base64 of float32", detail="not_embeddings"
            ) from error
    else:
        with np.errstate(over="ignore"):
            vector = np.array(values, dtype=np.float32)
    if vector.size == 0:
        raise embed_error("embedding server answered an empty vector", detail="not_embeddings")
    return vector


def _stack(parts: Sequence[Vector]) -> Vector:
    if len({part.shape[1] for part in parts}) != 1:
        raise embed_error("embedding server answered vectors of different sizes", detail="mixed_sizes")
    return np.concatenate(parts)


async def _read(response: aiohttp.ClientResponse, *, limit: int) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > limit:
            raise embed_error(f"embedding server answered more than {limit} bytes", detail="too_large")
    return bytes(content)


def _status_error(status: int, body: bytes, retry_after: int) -> Unavailable:
    """Return the failure of another status than 200; of an overload, with the time that the server asks for."""
    shown = body[: 4 * ERROR_BODY_CHARS].decode("utf-8", "replace")[:ERROR_BODY_CHARS]
    seconds = min(retry_after, MAX_RETRY_AFTER_SECONDS) if status in RETRIED_STATUSES else 0
    return embed_error(
        f"embedding server answered status {status}: {shown!r}",
        detail=f"status_{status}",
        retry_after_seconds=seconds or None,
    )
