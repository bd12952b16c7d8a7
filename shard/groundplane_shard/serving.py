"""One opened writer at work: requests in, the committer and the snapshots beside them.

A request is checked against what this corpus is (incarnation, analyser, embedding identity) before it costs anything. It
sees one corpus from its start to its end: a request that outlives this writer never meets the state of the next one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from groundplane.analysis import Analyser
from groundplane.errors import GroundplaneError, InvalidInput, Superseded, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.internal import (
    DocumentPage,
    KnownAnswer,
    KnownRequest,
    PendingPage,
    ReplaceDocument,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    StoredDocument,
    StoredMemo,
    TakeReindexStep,
    WriteRequest,
    WriteResult,
)
from groundplane_shard.committer import STALL_SECONDS, Acknowledged, Committer, WriteLimits
from groundplane_shard.corpus import Corpus
from groundplane_shard.decisions import StepProposal
from groundplane_shard.embeddings import Embeddings
from groundplane_shard.identity import check_analyser
from groundplane_shard.local_state import Journal, LocalState
from groundplane_shard.log import Layout, Seq, Witness, Writer
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.pending import pending_documents
from groundplane_shard.preparing import prepare_all
from groundplane_shard.search import Found
from groundplane_shard.snapshots import SnapshotPolicy, Snapshots
from groundplane_shard.stores import ObjectStore
from groundplane_shard.view import View
from groundplane_shard.witness import WitnessFile


class ServingParts(msgspec.Struct, frozen=True):
    """What stays the same over every opening of one process."""

    layout: Layout
    analyser: Analyser
    clock: Clock
    metrics: ShardMetrics
    write_limits: WriteLimits
    snapshot_policy: SnapshotPolicy
    max_searches: int
    key_ids: Callable[[], list[str]]
    witness: WitnessFile = WitnessFile()
    accept_data_loss: Seq | None = None

    def check_incarnation(self, incarnation: str) -> None:
        """Raise InvalidInput (409 `wrong_incarnation`) unless a request means this life of this corpus."""
        if incarnation != self.layout.incarnation:
            message = f"request is for incarnation {incarnation[:64]}: expected {self.layout.incarnation}"
            raise InvalidInput(message, code="wrong_incarnation", field="incarnation", status=409)


class Serving:
    """The routes' work while this process is the writer."""

    def __init__(self, parts: ServingParts, writer: Writer, store: ObjectStore, state: LocalState) -> None:
        """Take on what MANIFEST fixes. Raises Unavailable (another analyser), CorruptData (vectors of another embedding)."""
        self._parts = parts
        self._incarnation = parts.layout.incarnation
        self._store = store
        self._state = state
        self._writer = writer
        self._generations = state.generations
        self._journal = Journal(writer, store, state)
        self._committer = Committer(self._journal, self._generations, parts.write_limits, parts.metrics, parts.clock)
        self.snapshots = Snapshots(self._journal, state, parts.snapshot_policy, parts.clock, parts.metrics)
        self.position = writer.position  # where the state stands after the writer's end; moved on by whoever resumes
        self._suspended: str | None = None
        self._log = Log("shard")
        self._searches = 0
        self._superseded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        check_analyser(writer.manifest, parts.analyser.id)
        self._embeddings = Embeddings(writer, store, state, parts.analyser.id)

    @property
    def corpus(self) -> Corpus:
        """The generation that is searched: another one after a re-embedding."""
        return self._generations.current

    @property
    def is_half_applied(self) -> bool:
        """Whether applying a record failed on the way: the state must be built again."""
        return self._generations.is_half_applied

    async def run(self) -> None:
        """Commit and snapshot until an error ends this writer, and raise it. `close` follows, whatever ended it."""
        work = (self._committer.run(), self.snapshots.keep(), self._committer.keep_current())
        self._tasks = tuple(map(asyncio.create_task, work))
        ended, _ = await asyncio.wait((*self._tasks, self._superseded), return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            each.result()

    def durable(self) -> Witness:
        """Return how far this writer's log is durable."""
        return Witness(self._writer.epoch, self._writer.position.sequence)

    def suspend(self, error: GroundplaneError) -> None:
        """Say in the status that writes are refused since `error`; searches go on."""
        self.position = self._writer.position
        self._suspended = f"writes_suspended after {error.code}"

    async def close(self) -> None:
        """Finish the commit, the flush and the snapshot under way, and begin no other."""
        async with self.snapshots.paused(), self._committer.exclusive():
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """Return candidates and statistics as of the newest applied record, or of `min_sequence` at least."""
        self._check_analyser(request.analyser)
        self._check_vector(request)
        async with self._admitted():
            view, found = await self._search_in_time(request)
        return SearchAnswer(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=view.sequence,
            age_seconds=self._committer.age_seconds,
            document_sequence=view.document_sequence,
            statistics=found.statistics,
            candidates=found.candidates,
        )

    async def _search_in_time(self, request: SearchRequest) -> tuple[View, Found]:
        seconds = request.deadline_ms / 1_000
        try:
            async with asyncio.timeout(seconds):
                await self._state.arrivals.reach(request.min_sequence, self.corpus)
                self._check_vector(request)  # again: the embedding may have changed while it waited
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
        self._committer.check_room()
        if isinstance(request.operations[0], TakeReindexStep) and len(request.operations) == 1:
            return self._write_result(await self._take_step(request.operations[0], request))
        embedding = None
        if any(isinstance(operation, ReplaceDocument) for operation in request.operations):
            await self._in_time(self._embeddings.fix(request))
            embedding = self._embeddings.for_documents(request)
        proposed = await prepare_all(request.operations, self._parts.analyser, embedding, self._parts.clock)
        return self._write_result(await self._committer.submit(proposed, embedding.id if embedding else None))

    async def _take_step(self, asked: TakeReindexStep, request: WriteRequest) -> Acknowledged:
        """Begin, finish or abandon a re-embedding. Raises as `decide_step` does."""
        if request.embedding_id is None:
            raise InvalidInput("embedding_id is missing: expected that of the re-embedding", field="embedding_id")
        if asked.step == "begin":
            await self._in_time(self._embeddings.introduce(request))
        done = await self._committer.submit_step(StepProposal(asked.step, request.embedding_id))
        if done.results[0].changed:
            self._log.info(
                "reindex_step", step=asked.step, embedding_id=request.embedding_id, sequence=done.sequence,
                generation=self.corpus.made.generation, documents=self.corpus.view().totals.documents,
            )  # fmt: skip
        return done

    async def snapshot(self) -> ShardStatus:
        """Publish what no snapshot holds yet and return the status after it. Raises as `Snapshots.publish` does."""
        with self._noticing_the_end():
            await self.snapshots.publish()
        return self.status()

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

    async def known(self, request: KnownRequest) -> KnownAnswer:
        """Return which documents are stored just so; writing them again would be acknowledged as `unchanged`."""
        found = [self.corpus.entry(doc_id) for doc_id, _ in request.documents]
        sequence = self.corpus.view().sequence
        chunks = tuple(
            entry.chunks if entry is not None and entry.content_hash == digest else None
            for entry, (_, digest) in zip(found, request.documents, strict=True)
        )
        if any(count is not None for count in chunks):
            await self._in_time(self._confirm())  # who took over may have deleted them
        return KnownAnswer(incarnation=self._incarnation, epoch=self._writer.epoch, sequence=sequence, chunks=chunks)

    async def _confirm(self) -> None:
        await self._journal.confirm()

    async def pending(self, after: str, chunker: str) -> PendingPage:
        """Return documents that the re-embedding under way has still to make, or to make again with `chunker`."""
        documents, last = await pending_documents(self._generations, after, chunker)
        return PendingPage(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=self.corpus.view().sequence,
            documents=documents,
            after=last,
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
            age_seconds=self._committer.age_seconds,
            corpus_key=self._parts.layout.corpus_key,
            ready=True,
            detail=self._suspended,
            documents=corpus.view().totals.documents,
            chunks=corpus.view().totals.chunks,
            document_sequence=corpus.view().document_sequence,
            analyser=self._parts.analyser.id,
            embedding=self._embeddings.current,
            engine=corpus.engine,
            snapshot_sequence=self._journal.snapshot_sequence or None,
            snapshot_time=self.snapshots.last_success,
            key_ids=self._parts.key_ids(),
            generation=corpus.made.generation,
            reindex=self._embeddings.reindex,
        )

    def observe(self) -> None:
        """Set the gauges to what is so now."""
        metrics, view, lag = self._parts.metrics, self.corpus.view(), self._state.lag
        metrics.documents.set(view.totals.documents)
        metrics.chunks.set(view.totals.chunks)
        metrics.sequence.set(view.sequence)
        metrics.age_seconds.set(self._committer.age_seconds)
        metrics.memtable_bytes.set(self._generations.memtable_bytes)
        reindex = self._embeddings.reindex
        metrics.generation.set(self.corpus.made.generation)
        metrics.reindexed_documents.set(reindex.documents if reindex is not None else 0)
        metrics.log_lag_bytes.set(lag.log_bytes)
        metrics.log_lag_records.set(lag.records)

    def _write_result(self, done: Acknowledged) -> WriteResult:
        return WriteResult(
            incarnation=self._incarnation,
            epoch=self._writer.epoch,
            sequence=done.sequence,
            results=done.results,
        )

    def _check_vector(self, request: SearchRequest) -> None:
        if request.vector is not None:
            self._embeddings.check_current(request.embedding_id)

    def _check_analyser(self, analyser_id: str) -> None:
        if analyser_id != self._parts.analyser.id:
            message = f"request was analysed by {analyser_id[:64]}: expected {self._parts.analyser.id}"
            raise InvalidInput(message, code="analyser_mismatch", field="analyser", status=409)

    async def _in_time(self, change: Coroutine[Any, Any, None]) -> None:
        """Let a change of MANIFEST that a write needs take as long as a write may."""
        try:
            async with asyncio.timeout(STALL_SECONDS):
                with self._noticing_the_end():
                    await change
        except TimeoutError as error:
            message = f"the store has not answered for {STALL_SECONDS} s: nothing of the write was stored, repeat later"
            raise Unavailable(message, code="store_unavailable", retry_after_seconds=1) from error

    @contextmanager
    def _noticing_the_end(self) -> Iterator[None]:
        """End this writer too if a request's own work finds that another process took over."""
        try:
            yield
        except Superseded as error:
            if not self._superseded.done():
                self._superseded.set_exception(error)
                self._superseded.exception()  # read it: `run` may have ended before
            raise

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
