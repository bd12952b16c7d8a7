"""Re-embedding a corpus after a change of the model: every stored text again, through today's embedder.

One call works for some seconds and says how far it is; the caller calls again until it is finished. Nothing of it is kept
here: what is done lies in the shard, so a caller, a router or a shard may die at any line, and the next call goes on.

    begin      the shard opens the next generation, under today's embedding identity
    documents  read from the shard by id, those that the next generation lacks; cut, embedded, written into it
    switch     the next generation takes the place of the old one, if it lacks none

Which generation a document was read from and whether it still counts is the shard's decision at the moment of the write.
Errors: `Unavailable`; with detail `reindex_conflict` where a re-embedding to another model is under way.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.logs import Log
from groundplane.wire.internal import EmbeddingIdentity, PendingDocument, ShardStatus, TakeReindexStep, WriteRequest
from groundplane.wire.names import Reason
from groundplane.wire.public import DocumentResult, ReindexAnswer, ReindexRequest, ReindexState
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.documents import format_cursor, parse_cursor
from groundplane_router.embedders.fit import UNAVAILABLE_CODE
from groundplane_router.metrics import RouterMetrics
from groundplane_router.preparation import CHUNKER_ID, Preparation, Prepared, Source, group_for_writes
from groundplane_router.shards import Shards
from groundplane_router.vector_space import VectorSpaces, is_same_space

WORK_SECONDS: Final = 5.0
"""A call begins no further page after so long, so that its caller can show progress and is never far from an answer."""

CONFLICT: Final = "reindex_conflict"
INCOMPLETE: Final = "reindex_incomplete"


class Reindexer:
    """Gives the caller's own corpus the embedding of this router."""

    def __init__(
        self, preparation: Preparation, spaces: VectorSpaces, shards: Shards, analyser_id: str, metrics: RouterMetrics
    ) -> None:
        self._preparation = preparation
        self._spaces = spaces
        self._shards = shards
        self._analyser_id = analyser_id
        self._metrics = metrics
        self._log = Log("router.reindexing")

    async def advance(self, grants: Grants, request: ReindexRequest, deadline: Deadline) -> ReindexAnswer:
        """Work for some seconds and return how far it is. Raises InvalidInput for a cursor, Unavailable, OutcomeUnknown."""
        status = await self._shards.status(grants.own, deadline)
        if request.abandon:
            return await self._abandon(grants, status, deadline)
        own = await self._spaces.own()
        if status.reindex is None:
            if status.embedding is None or is_same_space(status.embedding, own):
                return _answer("finished", status)
            await self._take_step(grants, "begin", own, deadline)
            target = own
        else:
            target = status.reindex.embedding
            _check_target(target, own)
        cursor = "" if request.cursor is None else parse_cursor(request.cursor)
        return await self._work(grants, target, cursor, deadline)

    async def _work(self, grants: Grants, target: EmbeddingIdentity, after: str, deadline: Deadline) -> ReindexAnswer:
        watch = self._metrics.stopwatch()
        failed: list[DocumentResult] = []
        written = 0
        cursor: str | None = after
        state: ReindexState = "running"
        while cursor is not None:
            page = await self._shards.pending(grants.own, cursor, CHUNKER_ID, deadline)
            prepared = await self._prepare(page.documents, failed, deadline)
            for group in group_for_writes(prepared):
                await self._write(grants, group, target, deadline)
                written += sum(len(one.chunks) for one in group)
            cursor = page.after
            if watch.seconds >= WORK_SECONDS:
                break
        if cursor is None:
            state = await self._finish(grants, target, deadline)
        status = await self._shards.status(grants.own, deadline)
        answer = _answer(state, status, cursor, failed)
        self._report(grants, answer, written, watch.seconds)
        return answer

    async def _prepare(
        self, documents: Sequence[PendingDocument], failed: list[DocumentResult], deadline: Deadline
    ) -> list[Prepared]:
        """Return what can be written; `failed` gets the rest."""
        prepared = []
        for document in documents:
            try:
                prepared.append(await asyncio.to_thread(self._preparation.cut, _source(document), "document"))
            except InvalidInput as error:
                failed.append(DocumentResult(id=document.doc_id, outcome="skipped", reason=error.code))
        await self._preparation.embed_all(prepared, deadline)
        failed += [
            DocumentResult(id=one.document.id, outcome="skipped", reason=one.skipped)
            for one in prepared
            if one.skipped is not None
        ]
        return [one for one in prepared if one.skipped is None]

    async def _write(
        self, grants: Grants, group: Sequence[Prepared], target: EmbeddingIdentity, deadline: Deadline
    ) -> None:
        request = WriteRequest(
            incarnation=grants.own.incarnation,
            analyser=self._analyser_id,
            operations=tuple(one.operation() for one in group),
            embedding_id=target.id,
        )
        await self._shards.write(grants.own, request, deadline)

    async def _finish(self, grants: Grants, target: EmbeddingIdentity, deadline: Deadline) -> ReindexState:
        try:
            await self._take_step(grants, "switch", target, deadline)
        except Unavailable as failure:
            if failure.detail != INCOMPLETE:
                raise
            return "incomplete"
        return "finished"

    async def _abandon(self, grants: Grants, status: ShardStatus, deadline: Deadline) -> ReindexAnswer:
        if status.reindex is not None:
            await self._take_step(grants, "abandon", status.reindex.embedding, deadline)
        return _answer("abandoned", msgspec.structs.replace(status, reindex=None))

    async def _take_step(
        self,
        grants: Grants,
        step: Literal["begin", "switch", "abandon"],
        target: EmbeddingIdentity,
        deadline: Deadline,
    ) -> None:
        request = WriteRequest(
            incarnation=grants.own.incarnation,
            analyser=self._analyser_id,
            operations=(TakeReindexStep(step=step),),
            embedding_id=target.id,
            embedding=target,
        )
        await self._shards.write(grants.own, request, deadline)
        self._spaces.forget(grants.own)
        self._log.info("reindex_step", corpus=grants.own.key, step=step, model=target.model, dimension=target.dimension)

    def _report(self, grants: Grants, answer: ReindexAnswer, written: int, seconds: float) -> None:
        self._log.info(
            "reindex_progress",
            corpus=grants.own.key,
            state=answer.state,
            documents=answer.documents,
            total_documents=answer.total_documents,
            failed=len(answer.failed),
            chunks=answer.chunks,
            chunks_per_second=round(written / seconds, 1) if seconds > 0 else 0.0,
        )


def _source(document: PendingDocument) -> Source:
    return Source(
        id=document.doc_id,
        text=document.text,
        title=document.title,
        uri=document.uri,
        metadata=document.metadata,
        made_from=document.sequence,
    )


def _check_target(target: EmbeddingIdentity, own: EmbeddingIdentity) -> None:
    """Raise Unavailable unless this router's embedder is the one that the re-embedding under way was begun with."""
    if not is_same_space(target, own):
        raise Unavailable(
            f"corpus is being re-embedded with model {target.model} ({target.dimension} values), this router has "
            f"{own.model} ({own.dimension}): go on with that one, or abandon it first",
            code=UNAVAILABLE_CODE,
            reason=Reason.SEARCH_FAILED,
            detail=CONFLICT,
        )


def _answer(
    state: ReindexState, status: ShardStatus, after: str | None = None, failed: Sequence[DocumentResult] = ()
) -> ReindexAnswer:
    done = status.reindex
    return ReindexAnswer(
        state=state,
        documents=done.documents if done is not None else status.documents,
        total_documents=status.documents,
        chunks=done.chunks if done is not None else status.chunks,
        cursor=None if after is None else format_cursor(after),
        failed=list(failed),
    )
