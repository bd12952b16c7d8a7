"""Queries and chunks to vectors of the index: instructions, embedder, fit and a cache of query vectors."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from groundplane_router.embedders.fit import FitRule, Vector, fit_vectors, zero_vector_error
from groundplane_router.embedders.formats import Format
from groundplane_router.embedders.protocol import Embedder

PROBES: Final = (
    "The invoice is due thirty days after delivery.",
    "Restart the pump only after the pressure has dropped below two bar.",
    "error 0x80070005 access denied",
)
"""Three fixed texts whose vectors identify a model. Changing one makes every corpus look as if its model had changed."""

CHUNK_TOKENS: Final = 220
MODEL_TOKENS: Final = 254
"""Tokens of text a 256-token model takes; title and instruction share what a chunk of `CHUNK_TOKENS` leaves."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that has no vector, and why; the others of its request do."""

    reason: str


class EmbeddingIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal for two vectors to be comparable, as far as one can know without asking the model."""

    format: str
    templates_digest: str
    model: str
    dimension: int
    fit: FitRule


class EmbeddingService:
    """The one way from text to vector; probe, queries and documents all take it."""

    def __init__(self, embedder: Embedder, chosen: Format, *, dimension: int, cached_queries: int = 2048) -> None:
        self._embedder = embedder
        self._format = chosen
        self._dimension = dimension
        self._rule: FitRule = "cut" if chosen.may_cut else "exact"
        self._cache = _QueryCache(cached_queries)

    @property
    def dense_floor(self) -> float | None:
        """Return the least cosine that counts as a find, or None where every neighbour does."""
        return self._format.dense_floor

    @property
    def dimension(self) -> int:
        """Return the length of the vectors."""
        return self._dimension

    @property
    def identity_fields(self) -> EmbeddingIdentity:
        """Return the embedding identity without its probe vectors."""
        return EmbeddingIdentity(
            format=self._format.name,
            templates_digest=self._format.templates_digest,
            model=self._embedder.model,
            dimension=self._dimension,
            fit=self._rule,
        )

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` takes: the counter that chunks are made with."""
        return self._embedder.count_tokens(text)

    async def embed_query(self, text: str, *, scope: str) -> Vector:
        """Return the query's vector, float32 (dimension,), length 1, read-only; from the cache if `scope` asked it before.

        scope: the caller's incarnation. Callers share no entries, so nobody learns from the time what others asked.
        Raises Unavailable with one of `no_embedder`, `embed_error`, `dimension_mismatch`, `zero_vector`.
        """
        key = scope, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        known = self._cache.get(key)
        if known is not None:
            return known
        vector: Vector = (await self._query_vectors([text]))[0]
        self._cache.put(key, vector)
        return vector

    async def embed_documents(self, chunks: Sequence[tuple[str, str]]) -> list[Vector | Refused]:
        """Return a vector, float32 (dimension,), or a refusal for each (title, text), in their order.

        Raises Unavailable for the whole request: a wrong size is a fault of the configuration, not of a chunk.
        """
        if not chunks:
            return []
        texts = await asyncio.to_thread(self._render_all, chunks)  # counts tokens: 0.2 ms each, 500 in a request
        rows, zero = fit_vectors(
            await self._embedder.embed(texts, "document"), dimension=self._dimension, rule=self._rule
        )
        return [Refused(reason="zero_vector") if row in zero else rows[row] for row in range(len(chunks))]

    async def probe_vectors(self) -> Vector:
        """Return the vectors of `PROBES`, float32 (3, dimension), embedded as queries are but never cached."""
        return await self._query_vectors(PROBES)

    def render_document(self, title: str, text: str) -> str:
        """Return what is embedded for a chunk; of a long title only the words there is room for, of the text all."""
        room = MODEL_TOKENS - max(CHUNK_TOKENS, self.count_tokens(text))
        return self._format.render_document(self._shorten(title, room=room), text)

    async def close(self) -> None:
        """Close the embedder."""
        await self._embedder.close()

    def _render_all(self, chunks: Sequence[tuple[str, str]]) -> list[str]:
        return [self.render_document(title, text) for title, text in chunks]

    async def _query_vectors(self, texts: Sequence[str]) -> Vector:
        raw = await self._embedder.embed([self._format.render_query(text) for text in texts], "query")
        rows, zero = fit_vectors(raw, dimension=self._dimension, rule=self._rule)
        if zero:
            raise zero_vector_error()
        rows.flags.writeable = False
        return rows

    def _shorten(self, title: str, *, room: int) -> str:
        """Return as many leading words of `title` as fit into `room` tokens together with the format's own words."""
        words = title.split()
        low, high = 0, min(len(words), MODEL_TOKENS)
        while low < high:
            middle = (low + high + 1) // 2
            if self.count_tokens(self._format.render_document(" ".join(words[:middle]), "")) <= room:
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])


class _QueryCache:
    """The most recently used query vectors, by scope and digest: the texts themselves are not kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[tuple[str, bytes], Vector] = OrderedDict()

    def get(self, key: tuple[str, bytes]) -> Vector | None:
        vector = self._entries.get(key)
        if vector is not None:
            self._entries.move_to_end(key)
        return vector

    def put(self, key: tuple[str, bytes], vector: Vector) -> None:
        if self._capacity <= 0:
            return
        self._entries[key] = np.array(vector)  # a copy: a row of a batch would keep the whole batch alive
        self._entries[key].flags.writeable = False
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
