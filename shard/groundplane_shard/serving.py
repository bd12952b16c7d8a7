"""One opened writer at work: requests in, the committer and the snapshots beside them.

A request is checked against what this corpus is (incarnation, analyser, embedding identity) before it costs anything.
Preparing many chunks yields to other requests, or goes to a thread, so that the event loop is never held for long.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from groundplane.analysis import Analyser
from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.internal import (
    DocumentPage,
    EmbeddingIdentity,
    Operation,
    ReplaceDocument,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    StoredDocument,
    StoredMemo,
    WriteRequest,
    WriteResult,
)
from groundplane_shard.committer import Acknowledged, Committer, WriteLimits
from groundplane_shard.corpus import Corpus
from groundplane_shard.local_state import Journal, LocalState
from groundplane_shard.log import Layout, Replica, Writer
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.rows import StoredOperation, prepare_operation
from groundplane_shard.search import Found
from groundplane_shard.snapshots import SnapshotPolicy, Snapshots
from groundplane_shard.stores import ObjectStore, run
from groundplane_shard.view import View

_CHUNKS_OF_A_THREAD = 64
_HELD_SECONDS = 0.0005


class ServingParts(msgspec.Struct, frozen=True):
    """What stays the same over every opening of one process."""

    layout: Layout
    analyser: Analyser
    clock: Clock
    metrics: ShardMetrics
    write_limits: WriteLimits
    snapshot_policy: SnapshotPolicy
    max_searches: int
    key_ids: list[str]

    def check_incarnation(self, incarnation: str) -> None:
        """Raise InvalidInput (409 `wrong_incarnation`) unless a request means this life of this corpus."""
        if incarnation != self.layout.incarnation:
            message = f"request is for incarnation {incarnation[:64]}: expected {self.layout.incarnation}"
            raise InvalidInput(message, code="wrong_incarnation", field="incarnation", status=409)


class Serving:
    """The routes' work while this process is the writer."""

    def __init__(
        self, parts: ServingParts, replica: Replica, writer: Writer, store: ObjectStore, state: LocalState
    ) -> None:
        self._parts = parts
        self._incarnation = parts.layout.incarnation
        self._store = store
        self._state = state
        self._writer = writer
        self._journal = Journal(replica, writer, store, state)
        self._committer = Committer(self._journal, state.corpus, parts.write_limits, parts.metrics, parts.clock)
        self.snapshots = Snapshots(self._journal, state, store, parts.snapshot_policy)
        self._searches = 0
        self._embedding: EmbeddingIdentity | None = None
        self._identity_change = asyncio.Lock()
        self._arrivals = Arrivals()
        self._check_manifest()

    @property
    def corpus(self) -> Corpus:
        """The searchable state."""
        return self._state.corpus

    async def run(self) -> None:
        """Commit and snapshot until an error ends this writer, and raise it. Cancelled, it first finishes what is under way."""
        committing = asyncio.create_task(self._committer.run())
        snapshots = asyncio.create_task(self.snapshots.keep(self._parts.clock, self._parts.metrics, Log("snapshots")))
        try:
            done, _ = await asyncio.wait((committing, snapshots), return_when=asyncio.FIRST_COMPLETED)
        finally:
            async with self.snapshots.paused(), self._committer.exclusive():
                committing.cancel()
                snapshots.cancel()
            await asyncio.wait((committing, snapshots))
        for task in done:
            task.result()

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """Return candidates and statistics as of the newest applied record, or of `min_sequence` at least."""
        self._check_analyser(request.analyser)
        if request.vector is not None:
            self._check_embedding(request.embedding_id)
        async with self._admitted():
            view, found = await self._search_in_time(request)
        return SearchAnswer(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=view.sequence,
            document_sequence=view.document_sequence,
            statistics=found.statistics,
            candidates=found.candidates,
        )

    async def _search_in_time(self, request: SearchRequest) -> tuple[View, Found]:
        seconds = request.deadline_ms / 1_000
        try:
            async with asyncio.timeout(seconds):
                await self._arrivals.reach(request.min_sequence, self.corpus)
                view = self.corpus.view()
                return view, await self.corpus.search(view, request)
        except TimeoutError as error:
            found = self.corpus.view().sequence
            if found < request.min_sequence:
                message = (
                    f"corpus is at sequence {found}: expected {request.min_sequence} within {seconds} s; repeat later"
                )
                raise Unavailable(message, code="sequence_not_reached", retry_after_seconds=1) from error
            raise Unavailable(
                f"search took longer than {seconds} s: repeat later", code="overloaded", retry_after_seconds=1
            ) from error

    async def write(self, request: WriteRequest) -> WriteResult:
        """Return once all of `request` is durable, applied and visible."""
        self._check_analyser(request.analyser)
        if any(isinstance(operation, ReplaceDocument) for operation in request.operations):
            await self._fix_identity(request)
        operations = await self._prepare(request.operations)
        done = await self._committer.submit(operations)
        self._arrivals.moved(self.corpus.view().sequence)
        self._observe()
        return self._write_result(done)

    async def documents(self, after: str, limit: int) -> DocumentPage:
        """Return one page of the documents, by id."""
        rows, more = self.corpus.documents(self.corpus.view(), after, limit)
        return DocumentPage(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=self.corpus.view().sequence,
            documents=rows,
            more=more,
        )

    async def document(self, doc_id: str) -> StoredDocument:
        """Return one document; `document` is null where there is none."""
        found = await self.corpus.document(self.corpus.view(), doc_id)
        if found is None:
            return StoredDocument(
                incarnation=self._incarnation,
                epoch=self._writer.epoch,
                sequence=self.corpus.view().sequence,
                document=None,
                text="",
                metadata=b"",
            )
        return StoredDocument(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=self.corpus.view().sequence,
            document=found.row,
            text=found.text,
            metadata=found.metadata,
        )

    def memo(self, name: str, fingerprint: str) -> StoredMemo:
        """Return one memo; `response` is null where there is none."""
        memo = self.corpus.memo(name, fingerprint)
        return StoredMemo(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=self.corpus.view().sequence,
            document_sequence=self.corpus.view().document_sequence,
            response=memo.response if memo else None,
            basis=memo.basis if memo else None,
        )

    def status(self) -> ShardStatus:
        """Return what this shard holds."""
        corpus = self.corpus
        return ShardStatus(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=self.corpus.view().sequence,
            corpus_key=self._parts.layout.corpus_key,
            ready=True,
            detail=None,
            documents=corpus.view().totals.documents,
            chunks=corpus.view().totals.chunks,
            document_sequence=corpus.view().document_sequence,
            analyser=self._parts.analyser.id,
            embedding=self._embedding,
            engine=corpus.engine,
            snapshot_sequence=self.snapshots.snapshot_sequence or None,
            snapshot_time=self.snapshots.last_success,
            key_ids=self._parts.key_ids,
        )

    def _write_result(self, done: Acknowledged) -> WriteResult:
        return WriteResult(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=done.sequence,
            results=done.results,
        )

    def _check_analyser(self, analyser_id: str) -> None:
        if analyser_id != self._parts.analyser.id:
            message = f"request was analysed by {analyser_id[:64]}: expected {self._parts.analyser.id}"
            raise InvalidInput(message, code="analyser_mismatch", field="analyser", status=409)

    def _check_embedding(self, embedding_id: str | None) -> None:
        known = self._embedding
        if known is not None and embedding_id != known.id:
            message = f"vectors of embedding {embedding_id}: expected {known.id}, with which this corpus was written"
            raise InvalidInput(message, code="embedding_mismatch", field="embedding_id", status=409)

    def _check_manifest(self) -> None:
        """Take on what MANIFEST fixes; refuse to serve a corpus of another analyser, or a log of another embedding."""
        analyser_id, known = self._writer.manifest.analyser_id, self._parts.analyser.id
        if analyser_id not in (None, known):
            raise Unavailable(
                f"this corpus was analysed by {analyser_id}: expected {known}; "
                "set GROUNDPLANE_LANGUAGE to the language it was written with",
                code="analyser_mismatch",
            )
        stored = self._writer.manifest.embeddings
        if stored:
            self._take_on(msgspec.convert(stored[-1], EmbeddingIdentity))
        foreign = self._state.embedding_ids - {self._journal.embedding_id}
        if foreign:
            raise CorruptData(
                f"log names embedding {min(foreign).hex()}: expected {self._journal.embedding_id.hex()}, as MANIFEST says; "
                "restore a snapshot"
            )

    def _take_on(self, embedding: EmbeddingIdentity) -> None:
        self._embedding = embedding
        self._journal.embedding_id = bytes.fromhex(embedding.id)
        self.corpus.fix_dimension(embedding.dimension)

    async def _fix_identity(self, request: WriteRequest) -> None:
        """Let the first write fix the embedding identity and the analyser in MANIFEST."""
        self._check_embedding(request.embedding_id)
        async with self._identity_change:
            if self._embedding is not None:
                self._check_embedding(request.embedding_id)
                return
            if request.embedding is None or request.embedding.id != request.embedding_id:
                message = "this corpus has no embedding identity yet: repeat the write with `embedding` filled in"
                raise InvalidInput(message, code="embedding_unknown", field="embedding", status=409)
            stored = msgspec.to_builtins(request.embedding)
            await run(self._writer.register_analyser(self._parts.analyser.id), self._store, self._state)
            await run(self._writer.register_embedding(stored), self._store, self._state)
            self._take_on(request.embedding)

    async def _prepare(self, operations: Sequence[Operation]) -> list[StoredOperation]:
        dimension = self._embedding.dimension if self._embedding is not None else 0
        embedding_id = self._embedding.id if self._embedding is not None else ""
        prepared: list[StoredOperation] = []
        started = self._parts.clock.monotonic()
        for operation in operations:
            arguments = (operation, self._parts.analyser, dimension, embedding_id)
            if isinstance(operation, ReplaceDocument) and len(operation.chunks) > _CHUNKS_OF_A_THREAD:
                prepared.append(await asyncio.to_thread(prepare_operation, *arguments))
            else:
                prepared.append(prepare_operation(*arguments))
            if self._parts.clock.monotonic() - started > _HELD_SECONDS:
                await asyncio.sleep(0)
                started = self._parts.clock.monotonic()
        return prepared

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        if self._searches >= self._parts.max_searches:
            message = (
                f"{self._searches} searches are under way: expected fewer than {self._parts.max_searches}; repeat later"
            )
            raise Unavailable(message, code="overloaded", retry_after_seconds=1)
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    def _observe(self) -> None:
        metrics, corpus = self._parts.metrics, self.corpus
        metrics.documents.set(corpus.view().totals.documents)
        metrics.chunks.set(corpus.view().totals.chunks)
        metrics.sequence.set(corpus.view().sequence)
        metrics.memtable_bytes.set(corpus.memtable_bytes)
        metrics.log_lag_bytes.set(self._state.log_bytes)
        metrics.log_lag_records.set(self._journal.sequence - self.snapshots.snapshot_sequence)
        metrics.last_fsync.set(self._parts.clock.now())


class Arrivals:
    """Searches that wait for a sequence, woken once it is applied."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def reach(self, sequence: int, corpus: Corpus) -> None:
        """Return once `corpus` shows `sequence`; the caller bounds the wait."""
        if corpus.view().sequence >= sequence:
            return
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (sequence, next(self._numbers), arrival))
        await arrival

    def moved(self, sequence: int) -> None:
        """Wake every search that waits for `sequence` or less."""
        while self._waiting and self._waiting[0][0] <= sequence:
            _, _, arrival = heapq.heappop(self._waiting)
            if not arrival.done():
                arrival.set_result(None)
