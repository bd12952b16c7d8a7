"""Indexing documents: check all → chunk all → embed what is new → write, in that order, so that a bad batch changes nothing.

A batch becomes shard writes of at most 1,000 chunks, in order; the position of the answer is that of the last and holds all of
them. Every step is idempotent: a caller whose batch failed half-way repeats it as it is, and what was written is `unchanged`.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.logs import Log
from groundplane.wire.internal import KnownRequest, OperationResult, WriteRequest, WriteResult
from groundplane.wire.names import Reason, format_position
from groundplane.wire.public import DocumentInput, DocumentResult, IndexAnswer, Outcome, check_identifier
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.failures import AllDropped
from groundplane_router.metadata import encode_metadata
from groundplane_router.metrics import RouterMetrics
from groundplane_router.preparation import EMPTY_TEXT, Preparation, Prepared, Source, group_for_writes
from groundplane_router.shards import Shards
from groundplane_router.vector_space import EMBEDDING_MISMATCH, VectorSpaces


class Indexer:
    """Takes documents into the caller's own corpus."""

    def __init__(
        self,
        preparation: Preparation,
        spaces: VectorSpaces,
        shards: Shards,
        analyser_id: str,
        metrics: RouterMetrics,
    ) -> None:
        self._preparation = preparation
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
        prepared = await asyncio.to_thread(self._cut_all, documents)
        embedding_id = await self._embedding_id(grants, documents, deadline)
        position_of, done = await self._known(grants, prepared, embedding_id, deadline)
        new = [one for one in prepared if one.document.id not in done]
        await self._embed_all(new, documents, deadline)
        for group in group_for_writes([one for one in new if one.skipped is None]):
            answer = await self._write(grants, group, embedding_id, deadline)
            position_of = answer.sequence
            done.update((one.document.id, result) for one, result in zip(group, answer.results, strict=True))
        results = [self._result(one, done.get(one.document.id)) for one in prepared]
        return IndexAnswer(position=format_position(grants.own.incarnation, position_of), results=results)

    async def _known(
        self, grants: Grants, prepared: Sequence[Prepared], embedding_id: str, deadline: Deadline
    ) -> tuple[int, dict[str, OperationResult]]:
        """Return the shard's sequence, and the results of what it holds already: that need not be embedded."""
        asked = [one for one in prepared if one.skipped is None]
        digests = [(one.document.id, one.digest(self._analyser_id, embedding_id)) for one in asked]
        request = KnownRequest(incarnation=grants.own.incarnation, documents=tuple(digests))
        answer = await self._shards.known(grants.own, request, deadline)
        known = {
            one.document.id: OperationResult(changed=False, chunks=chunks)
            for one, chunks in zip(asked, answer.chunks, strict=True)
            if chunks is not None
        }
        return answer.sequence, known

    def _cut_all(self, documents: Sequence[DocumentInput]) -> list[Prepared]:
        return [
            self._preparation.cut(source_of(document, f"documents[{index}]"), f"documents[{index}]")
            for index, document in enumerate(documents)
        ]

    async def _embedding_id(self, grants: Grants, documents: Sequence[DocumentInput], deadline: Deadline) -> str:
        """Return the id to write under; a wrong size drops the whole batch."""
        try:
            return await self._spaces.id_for(grants.own, deadline)
        except Unavailable as failure:
            self._refuse_wrong_size(failure, documents)
            raise

    async def _embed_all(
        self, prepared: Sequence[Prepared], documents: Sequence[DocumentInput], deadline: Deadline
    ) -> None:
        try:
            await self._preparation.embed_all(prepared, deadline)
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
        self, grants: Grants, group: Sequence[Prepared], embedding_id: str, deadline: Deadline
    ) -> WriteResult:
        request = WriteRequest(
            incarnation=grants.own.incarnation,
            analyser=self._analyser_id,
            operations=tuple(one.operation() for one in group),
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

    def _result(self, one: Prepared, written: OperationResult | None) -> DocumentResult:
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


def source_of(document: DocumentInput, field: str) -> Source:
    """Return `document` as it is stored. Raises InvalidInput for metadata that cannot be."""
    return Source(
        id=document.id,
        text=document.text,
        title=document.title,
        uri=document.uri,
        metadata=encode_metadata(document.metadata, f"{field}.metadata"),
    )
