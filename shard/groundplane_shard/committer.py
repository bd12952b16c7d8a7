"""The one task that writes: it takes all that waits, decides what changes, logs it as one record, applies, acknowledges.

There is no artificial delay: while one record is on its way to the store, further requests gather for the next. A
request is in one record whole. Operations are decided in queue order, so `unchanged` compares with what the requests
before it made of the document; a batch that changes nothing gets the present position and no record.

What a waiting request is told (I1, I4): a result after the record is durable and applied; Unavailable if certainly
nothing was stored; OutcomeUnknown in every other case. Superseded, OutcomeUnknown and CorruptData also end `run`: the
owner opens the replica again, or stops for good.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from groundplane.errors import GroundplaneError, OutcomeUnknown, Unavailable
from groundplane.process.clock import Clock
from groundplane.wire.internal import OperationResult
from groundplane_shard import payload
from groundplane_shard.corpus import Corpus
from groundplane_shard.local_state import Journal
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredMemoDelete, StoredOperation

MAX_BATCH_CHUNKS = 1_000
MAX_BATCH_BYTES = 4 * 1024 * 1024
_LARGE_BATCH_CHUNKS = 64

_ABSENT = b""


class WriteLimits(msgspec.Struct, frozen=True):
    """How much may wait, and how large the memtable may grow, before writes are refused."""

    max_queued: int
    max_memtable_bytes: int


class Acknowledged(msgspec.Struct, frozen=True):
    """One request, durable and applied: the sequence that holds it, and what each operation did."""

    sequence: int
    results: tuple[OperationResult, ...]


class _Job:
    def __init__(self, operations: Sequence[StoredOperation]) -> None:
        self.operations = operations
        self.chunks = sum(chunk_count(operation) for operation in operations)
        self.size_bytes = sum(size_of(operation) for operation in operations)
        self.done: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()

    def fail(self, error: GroundplaneError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # read it, so that a caller who left is no "exception never retrieved"


class Committer:
    """Takes writes from requests and commits them in order. `run` is its task; `exclusive` keeps it between two batches."""

    def __init__(
        self, journal: Journal, corpus: Corpus, limits: WriteLimits, metrics: ShardMetrics, clock: Clock
    ) -> None:
        self._journal = journal
        self._corpus = corpus
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()
        self._ended: GroundplaneError | None = None

    async def submit(self, operations: Sequence[StoredOperation]) -> Acknowledged:
        """Return once `operations` are durable and applied. Raises Unavailable or OutcomeUnknown as the module says."""
        if self._ended is not None:
            raise Unavailable(
                "this shard is opening its log again: repeat the call", code="not_ready", retry_after_seconds=1
            )
        self._shed()
        job = _Job(operations)
        self._waiting.append(job)
        self._arrived.set()
        return await asyncio.shield(job.done)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the committer between two batches; what waits meanwhile is committed afterwards."""
        async with self._turn:
            yield

    async def run(self) -> None:
        """Commit until an error ends this writer, then fail all that waits and raise it."""
        jobs: list[_Job] = []
        try:
            while True:
                await self._arrived.wait()
                async with self._turn:
                    jobs = self._take()
                    await self._commit(jobs)
        except GroundplaneError as error:
            self._end(jobs, error)
            raise
        finally:
            self._end(jobs, Unavailable("this shard is stopping: repeat the call", code="not_ready"))

    def _shed(self) -> None:
        if len(self._waiting) >= self._limits.max_queued:
            raise Unavailable(
                f"{len(self._waiting)} writes are waiting: expected fewer than {self._limits.max_queued}; repeat later",
                code="overloaded",
                retry_after_seconds=1,
            )
        if self._corpus.memtable_bytes >= self._limits.max_memtable_bytes:
            raise Unavailable(
                f"{self._corpus.memtable_bytes} bytes of recent writes are waiting for a flush: repeat later",
                code="overloaded",
                retry_after_seconds=2,
            )

    def _take(self) -> list[_Job]:
        """Return the requests of the next batch: as many as its limits allow, at least one."""
        jobs = [self._waiting.popleft()]
        chunks, size_bytes = jobs[0].chunks, jobs[0].size_bytes
        while self._waiting:
            chunks += self._waiting[0].chunks
            size_bytes += self._waiting[0].size_bytes
            if chunks > MAX_BATCH_CHUNKS or size_bytes > MAX_BATCH_BYTES:
                break
            jobs.append(self._waiting.popleft())
        if not self._waiting:
            self._arrived.clear()
        return jobs

    async def _commit(self, jobs: list[_Job]) -> None:
        started = self._clock.monotonic()
        decisions = Decisions(self._corpus)
        results = [tuple(decisions.decide(operation) for operation in job.operations) for job in jobs]
        try:
            sequence = await self._log(decisions.changes)
        except OutcomeUnknown:
            raise
        except Unavailable as error:  # certainly not stored: this writer goes on
            for job in jobs:
                job.fail(error)
            return
        self._metrics.commit_seconds.observe(self._clock.monotonic() - started)
        for job, job_results in zip(jobs, results, strict=True):
            if not job.done.done():
                job.done.set_result(Acknowledged(sequence, job_results))

    async def _log(self, changes: Sequence[StoredOperation]) -> int:
        if not changes:
            return self._journal.sequence
        if sum(map(chunk_count, changes)) > _LARGE_BATCH_CHUNKS:
            encoded = await asyncio.to_thread(payload.encode, changes)
        else:
            encoded = payload.encode(changes)
        return await self._journal.append(encoded, changes)

    def _end(self, jobs: list[_Job], error: GroundplaneError) -> None:
        self._ended = self._ended or error
        for job in jobs:
            job.fail(OutcomeUnknown(f"the write may or may not have been stored ({error.code}): repeat the call"))
        while self._waiting:
            self._waiting.popleft().fail(
                Unavailable("this shard is opening its log again: repeat the call", code="not_ready")
            )


class Decisions:
    """What a batch changes, decided operation by operation in queue order over the corpus's present state."""

    def __init__(self, corpus: Corpus) -> None:
        self.changes: list[StoredOperation] = []
        self._corpus = corpus
        self._documents: dict[str, bytes] = {}
        self._memos: dict[tuple[str, str], StoredMemo | None] = {}

    def decide(self, operation: StoredOperation) -> OperationResult:
        """Return what `operation` does after all before it; one that changes something joins `changes`."""
        changed = self._changes(operation)
        if changed:
            self.changes.append(operation)
        return OperationResult(changed=changed, chunks=chunk_count(operation))

    def _changes(self, operation: StoredOperation) -> bool:
        match operation:
            case StoredDocument(doc_id=doc_id, content_hash=content_hash):
                changed = self._hash_of(doc_id) != content_hash
                self._documents[doc_id] = content_hash
            case StoredDelete(doc_id):
                changed = self._hash_of(doc_id) != _ABSENT
                self._documents[doc_id] = _ABSENT
            case StoredMemo(name, fingerprint):
                changed = _memo(self._memos, self._corpus, (name, fingerprint)) != operation
                self._memos[name, fingerprint] = operation
            case StoredMemoDelete(name, fingerprint):
                changed = _memo(self._memos, self._corpus, (name, fingerprint)) is not None
                self._memos[name, fingerprint] = None
        return changed

    def _hash_of(self, doc_id: str) -> bytes:
        known = self._documents.get(doc_id)
        return known if known is not None else self._corpus.content_hash(doc_id) or _ABSENT


def _memo(
    decided: Mapping[tuple[str, str], StoredMemo | None], corpus: Corpus, key: tuple[str, str]
) -> StoredMemo | None:
    return decided[key] if key in decided else corpus.memo(*key)


def chunk_count(operation: StoredOperation) -> int:
    """Return how many chunks `operation` writes."""
    return len(operation.chunks) if isinstance(operation, StoredDocument) else 0


def size_of(operation: StoredOperation) -> int:
    """Return about how many bytes `operation` adds to a log record."""
    match operation:
        case StoredDocument():
            texts = sum(len(chunk.text) + len(chunk.terms) for chunk in operation.chunks)
            return operation.vectors.nbytes + texts + len(operation.metadata)
        case StoredMemo():
            return len(operation.response)
        case _:
            return len(operation.doc_id) if isinstance(operation, StoredDelete) else len(operation.name)
