"""From a document to what a shard stores of it: cut into chunks, then a vector for each, in groups that one write takes."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.wire.content import Content
from groundplane.wire.internal import MAX_WRITE_BYTES, MAX_WRITE_CHUNKS, ChunkInput, ReplaceDocument
from groundplane.wire.names import Reason
from groundplane_router.chunking import Chunk, ChunkLimits, chunk
from groundplane_router.deadline import Deadline
from groundplane_router.embedders import EmbeddingService, Refused, Vector
from groundplane_router.vector_space import encode_vector

CHUNKS_PER_WRITE: Final = 1_000
CHUNKS_PER_EMBEDDING: Final = 256
BYTES_PER_WRITE: Final = MAX_WRITE_BYTES // 4
LIMITS: Final = ChunkLimits()
CHUNKER_ID: Final = f"split-1-{LIMITS.tokens}-{LIMITS.overlap_tokens}"
"""Part of a document's content hash: other chunks make a document `indexed` again, not `unchanged`."""

EMPTY_TEXT: Final = "empty_text"
ZERO_VECTOR: Final = "zero_vector"
HEADING_SEPARATOR: Final = " > "


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A document before anything is made of it. `metadata` is JSON; `made_from` as in `ReplaceDocument`."""

    id: str
    text: str
    title: str | None
    uri: str | None
    metadata: bytes
    made_from: int | None = None


class Prepared(msgspec.Struct, kw_only=True):
    """One document on its way: its chunks, then their vectors, or why it is left out."""

    document: Source
    chunks: list[Chunk] = []
    vectors: list[Vector] = []
    skipped: str | None = None

    @property
    def size_bytes(self) -> int:
        """Return about how much it adds to a write."""
        return 4 * len(self.document.text) + sum(vector.nbytes + 256 for vector in self.vectors)

    def digest(self, analyser_id: str, embedding_id: str) -> bytes:
        """Return the digest of what would be stored of it."""
        document = self.document
        return Content(
            text=document.text,
            title=document.title,
            uri=document.uri,
            metadata=document.metadata,
            chunker=CHUNKER_ID,
            analyser_id=analyser_id,
            embedding_id=embedding_id,
        ).digest()

    def operation(self) -> ReplaceDocument:
        """Return what a shard is asked for."""
        document = self.document
        return ReplaceDocument(
            doc_id=document.id,
            text=document.text,
            title=document.title,
            uri=document.uri,
            metadata=document.metadata,
            chunker=CHUNKER_ID,
            chunks=tuple(
                ChunkInput(part.start, part.end, part.heading or None, encode_vector(vector))
                for part, vector in zip(self.chunks, self.vectors, strict=True)
            ),
            made_from=document.made_from,
        )


class Preparation:
    """Cuts and embeds. Chunks of documents go after queries in the embedder's queue."""

    def __init__(self, service: EmbeddingService) -> None:
        self._service = service

    def cut(self, document: Source, field: str) -> Prepared:
        """Return `document` in chunks; one without text is skipped. For a thread.

        field: its path in the request, for the error. Raises InvalidInput (`document_too_large`, 413).
        """
        if not document.text.strip():
            return Prepared(document=document, skipped=EMPTY_TEXT)
        chunks = chunk(document.text, self._service.count_tokens, LIMITS)
        if len(chunks) > MAX_WRITE_CHUNKS:
            raise InvalidInput(
                f"{field}.text makes {len(chunks)} chunks: expected at most {MAX_WRITE_CHUNKS}; split the document",
                code="document_too_large",
                field=f"{field}.text",
                status=413,
            )
        return Prepared(document=document, chunks=chunks)

    async def embed_all(self, prepared: Sequence[Prepared], deadline: Deadline) -> None:
        """Fill in the vectors; a document with a vector without direction becomes skipped. Raises Unavailable."""
        texts = [
            (one, (_embedding_title(one.document.title, part), part.text))
            for one in prepared
            if one.skipped is None
            for part in one.chunks
        ]
        for start in range(0, len(texts), CHUNKS_PER_EMBEDDING):
            batch = texts[start : start + CHUNKS_PER_EMBEDDING]
            vectors = await self._embed([text for _, text in batch], deadline)
            for (one, _), vector in zip(batch, vectors, strict=True):
                if isinstance(vector, Refused):
                    one.skipped = ZERO_VECTOR
                else:
                    one.vectors.append(vector)

    async def _embed(self, texts: Sequence[tuple[str, str]], deadline: Deadline) -> list[Vector | Refused]:
        try:
            async with asyncio.timeout(deadline.remaining_seconds):
                return await self._service.embed_documents(texts)
        except TimeoutError as error:
            raise Unavailable(
                "embedding the documents took too long: send fewer at once",
                reason=Reason.EMBED_ERROR,
                detail="embed_timeout",
            ) from error


def group_for_writes(prepared: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    """Yield the documents in order, in groups of at most 1,000 chunks and 16 MiB; a larger document goes alone."""
    group: list[Prepared] = []
    chunks = size_bytes = 0
    for one in prepared:
        full = chunks + len(one.chunks) > CHUNKS_PER_WRITE or size_bytes + one.size_bytes > BYTES_PER_WRITE
        if group and full:
            yield group
            group, chunks, size_bytes = [], 0, 0
        group.append(one)
        chunks += len(one.chunks)
        size_bytes += one.size_bytes
    if group:
        yield group


def _embedding_title(title: str | None, part: Chunk) -> str:
    return HEADING_SEPARATOR.join(filter(None, (title, part.heading)))
