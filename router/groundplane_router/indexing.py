"""Indexing documents: check all → chunk all → embed all → write, in that order, so that a bad batch changes nothing.

A batch becomes shard writes of at most 1,000 chunks, in order; the position of the answer is that of the last and holds all of
them. Every step is idempotent: a caller whose batch failed half-way repeats it as it is, and what was written is `unchanged`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.logs import Log
from groundplane.wire.internal import (
    MAX_WRITE_BYTES,
    MAX_WRITE_CHUNKS,
    ChunkInput,
    OperationResult,
    ReplaceDocument,
    WriteRequest,
    WriteResult,
)
from groundplane.wire.names import Reason, format_position
from groundplane.wire.public import DocumentInput, DocumentResult, IndexAnswer, Outcome, check_identifier
from groundplane_router.chunking import Chunk, ChunkLimits, chunk
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.embedders import EmbeddingService, Refused, Vector
from groundplane_router.failures import AllDropped
from groundplane_router.metadata import encode_metadata
from groundplane_router.metrics import RouterMetrics
from groundplane_router.shards import Shards
from groundplane_router.vector_space import EMBEDDING_MISMATCH, VectorSpaces, encode_vector

CHUNKS_PER_WRITE: Final = 1_000
CHUNKS_PER_EMBEDDING: Final = 256
BYTES_PER_WRITE: Final = MAX_WRITE_BYTES // 4
LIMITS: Final = ChunkLimits()
CHUNKER_ID: Final = f"split-1-{LIMITS.tokens}-{LIMITS.overlap_tokens}"
"""Part of a document's content hash: other chunks make a document `indexed` again, not `unchanged`."""

EMPTY_TEXT: Final = "empty_text"
ZERO_VECTOR: Final = "zero_vector"
HEADING_SEPARATOR: Final = " > "


class _Prepared(msgspec.Struct, kw_only=True):
    """One document on its way: its chunks, then their vectors, or why it is left out."""

    document: DocumentInput
    metadata: bytes
    chunks: list[Chunk]
    vectors: list[Vector] = []
    skipped: str | None = None

    @property
    def size_bytes(self) -> int:
        """Return about how much it adds to a write."""
        return 4 * len(self.document.text) + sum(vector.nbytes + 256 for vector in self.vectors)


class Indexer:
    """Takes documents into the caller's own corpus."""

    def __init__(
        self, service: EmbeddingService, spaces: VectorSpaces, shards: Shards, analyser_id: str, metrics: RouterMetrics
    ) -> None:
        self._service = service
        self._spaces = spaces
        self._shards = shards
        self._analyser_id = analyser_id
        self._metrics = metrics
        self._log = Log("router.indexing")

    async def index(self, grants: Grants, documents: Sequence[DocumentInput], deadline: Deadline) -> IndexAnswer:
        """Return one result a document, in order. All of them are searchable at the answer's position.

        Raises InvalidInput before anything is written, AllDropped (422) if the vectors have the wrong size, Unavailable and
        OutcomeUnknown: then some of the batch may be written, and repeating it completes it.
        """
        check_documents(documents)
        prepared = await asyncio.to_thread(self._prepare_all, documents)
        embedding_id = await self._embedding_id(grants, documents, deadline)
        await self._embed_all(prepared, documents, deadline)
        written: dict[str, OperationResult] = {}
        position_of = 0
        for group in group_for_writes([one for one in prepared if one.skipped is None]):
            answer = await self._write(grants, group, embedding_id, deadline)
            position_of = answer.sequence
            written.update((one.document.id, result) for one, result in zip(group, answer.results, strict=True))
        if not written:
            position_of = (await self._shards.status(grants.own, deadline)).sequence
        results = [self._result(one, written.get(one.document.id)) for one in prepared]
        return IndexAnswer(position=format_position(grants.own.incarnation, position_of), results=results)

    def _prepare_all(self, documents: Sequence[DocumentInput]) -> list[_Prepared]:
        return [self._prepare(document, f"documents[{index}]") for index, document in enumerate(documents)]

    def _prepare(self, document: DocumentInput, field: str) -> _Prepared:
        metadata = encode_metadata(document.metadata, f"{field}.metadata")
        if not document.text.strip():
            return _Prepared(document=document, metadata=metadata, chunks=[], skipped=EMPTY_TEXT)
        chunks = chunk(document.text, self._service.count_tokens, LIMITS)
        if len(chunks) > MAX_WRITE_CHUNKS:
            raise InvalidInput(
                f"{field}.text makes {len(chunks)} chunks: expected at most {MAX_WRITE_CHUNKS}; split the document",
                code="document_too_large",
                field=f"{field}.text",
                status=413,
            )
        return _Prepared(document=document, metadata=metadata, chunks=chunks)

    async def _embedding_id(self, grants: Grants, documents: Sequence[DocumentInput], deadline: Deadline) -> str:
        """Return the id to write under; a wrong size drops the whole batch."""
        try:
            return await self._spaces.id_for(grants.own, deadline)
        except Unavailable as failure:
            self._refuse_wrong_size(failure, documents)
            raise

    async def _embed_all(
        self, prepared: Sequence[_Prepared], documents: Sequence[DocumentInput], deadline: Deadline
    ) -> None:
        texts = [
            (one, (_embedding_title(one.document.title, part), part.text))
            for one in prepared
            if one.skipped is None
            for part in one.chunks
        ]
        for start in range(0, len(texts), CHUNKS_PER_EMBEDDING):
            batch = texts[start : start + CHUNKS_PER_EMBEDDING]
            vectors = await self._embed([text for _, text in batch], documents, deadline)
            for (one, _), vector in zip(batch, vectors, strict=True):
                if isinstance(vector, Refused):
                    one.skipped = ZERO_VECTOR
                else:
                    one.vectors.append(vector)

    async def _embed(
        self, texts: Sequence[tuple[str, str]], documents: Sequence[DocumentInput], deadline: Deadline
    ) -> list[Vector | Refused]:
        try:
            async with asyncio.timeout(deadline.remaining_seconds):
                return await self._service.embed_documents(texts)
        except TimeoutError as error:
            raise Unavailable(
                "embedding the documents took too long: send fewer at once",
                reason=Reason.EMBED_ERROR,
                detail="embed_timeout",
            ) from error
        except Unavailable as failure:
            self._refuse_wrong_size(failure, documents)
            raise

    def _refuse_wrong_size(self, failure: Unavailable, documents: Sequence[DocumentInput]) -> None:
        """Raise AllDropped if `failure` is a wrong size: a fault of the configuration, reported once for all documents."""
        if failure.reason != Reason.DIMENSION_MISMATCH:
            return
        self._log.error("documents_dropped", reason=failure.reason, detail=failure.detail, documents=len(documents))
        self._metrics.dropped.labels("dimension_mismatch").inc(len(documents))
        results = [
            DocumentResult(id=document.id, outcome="dropped", reason=Reason.DIMENSION_MISMATCH)
            for document in documents
        ]
        raise AllDropped(failure.message, failure.detail, results) from failure

    async def _write(
        self, grants: Grants, group: Sequence[_Prepared], embedding_id: str, deadline: Deadline
    ) -> WriteResult:
        request = WriteRequest(
            incarnation=grants.own.incarnation,
            analyser=self._analyser_id,
            operations=tuple(_operation(one) for one in group),
            embedding_id=embedding_id,
        )
        try:
            return await self._shards.write(grants.own, request, deadline)
        except Unavailable as failure:
            if failure.detail not in {"embedding_unknown", EMBEDDING_MISMATCH}:
                raise
        self._spaces.forget(grants.own)
        own = await self._spaces.own()
        known_id = await self._spaces.id_for(grants.own, deadline)
        introduced = msgspec.structs.replace(
            request, embedding_id=known_id, embedding=own if known_id == own.id else None
        )
        answer = await self._shards.write(grants.own, introduced, deadline)
        self._spaces.forget(grants.own)
        return answer

    def _result(self, one: _Prepared, written: OperationResult | None) -> DocumentResult:
        if written is None:
            self._metrics.dropped.labels(one.skipped or EMPTY_TEXT).inc()
            return DocumentResult(id=one.document.id, outcome="skipped", reason=one.skipped)
        outcome: Outcome = "indexed" if written.changed else "unchanged"
        return DocumentResult(id=one.document.id, outcome=outcome, chunks=written.chunks)


def check_documents(documents: Sequence[DocumentInput]) -> None:
    """Raise InvalidInput for an id that cannot name a document, or one that stands twice: which text wins is not ours to say."""
    seen: dict[str, int] = {}
    for index, document in enumerate(documents):
        field = f"documents[{index}].id"
        check_identifier(document.id, field)
        first = seen.setdefault(document.id, index)
        if first != index:
            raise InvalidInput(
                f"{field} is the id of documents[{first}] too: expected each id once in a request",
                code="duplicate_id",
                field=field,
            )


def group_for_writes(prepared: Sequence[_Prepared]) -> Iterator[list[_Prepared]]:
    """Yield the documents in order, in groups of at most 1,000 chunks and 16 MiB; a larger document goes alone."""
    group: list[_Prepared] = []
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


def _operation(one: _Prepared) -> ReplaceDocument:
    return ReplaceDocument(
        doc_id=one.document.id,
        text=one.document.text,
        title=one.document.title,
        uri=one.document.uri,
        metadata=one.metadata,
        chunker=CHUNKER_ID,
        chunks=tuple(
            ChunkInput(part.start, part.end, part.heading or None, encode_vector(vector))
            for part, vector in zip(one.chunks, one.vectors, strict=True)
        ),
    )
