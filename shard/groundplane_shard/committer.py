"""The one task that writes: it takes all that waits, decides what changes, logs it as one record, applies, acknowledges.

There is no artificial delay: while one record is on its way to the store, further requests gather for the next. A
request is in one record whole; documents of two embeddings are never in one, and a step of a re-embedding is one itself. Operations are decided in queue order, so `unchanged` compares with what the requests
before it made of the document; a batch that changes nothing gets the present position and no record.

What a waiting request is told (I1, I4): a result after the record is durable and applied; Unavailable if certainly
nothing was stored; OutcomeUnknown in every other case. Superseded, OutcomeUnknown and CorruptData also end `run`: the
owner opens the replica again, or stops for good. A batch that changes nothing is acknowledged too, so it is first made
sure that no other process has taken over (I5).

Nobody is kept waiting by a store that does not answer: after `STALL_SECONDS`, less where the record before was slow, the
requests under way are told that their outcome is unknown, those that wait that they were not begun, and further ones are
refused until the record is settled.

While nobody writes, `keep_current` makes sure every few seconds that no other process has taken over, so that the age of
what is known stays small on an idle shard, and grows where the store is away even though nobody asked for a write.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from groundplane.errors import GroundplaneError, InvalidInput, OutcomeUnknown, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.internal import OperationResult
from groundplane_shard import payload
from groundplane_shard.decisions import (
    Decisions,
    Proposed,
    StepProposal,
    check_embedding,
    chunk_count,
    decide_step,
    size_of,
)
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.generations import Generations
from groundplane_shard.local_state import Journal
from groundplane_shard.metrics import ShardMetrics

MAX_BATCH_CHUNKS = 1_000  # an operation without chunks counts as one
MAX_BATCH_BYTES = 4 * 1024 * 1024
STALL_SECONDS = 1.5
ANSWER_SECONDS = (
    1.8  # that a request may wait for the record before its own, and for its own: with its way there and back, 2 s
)
CONFIRM_SECONDS = 5.0  # the age at which an idle writer asks its store again
_NO_ANSWER = "the store has not answered in time"
_INLINE_CHUNKS = 64  # up to here a batch is encoded in the event loop: about 1 ms
_INLINE_BYTES = 256 * 1024


class WriteLimits(msgspec.Struct, frozen=True):
    """How many requests may wait, and how large the memtable and what waits for it may grow, before writes are refused."""

    max_queued: int
    max_memtable_bytes: int


class Acknowledged(msgspec.Struct, frozen=True):
    """One request, durable and applied: the sequence that holds it, and what each operation did."""

    sequence: int
    results: tuple[OperationResult, ...]


class _Job:
    def __init__(self, operations: Sequence[Proposed], embedding_id: str | None, step: StepProposal | None) -> None:
        self.operations = operations
        self.embedding_id = embedding_id
        self.step = step
        self.chunks = _weight(operations)
        self.size_bytes = sum(map(size_of, operations))
        self.done: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()

    def fail(self, error: GroundplaneError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # read it, so that a caller who left is no "exception never retrieved"


class Committer:
    """Takes writes from requests and commits them in order. `run` is its task; `exclusive` keeps it between two batches."""

    def __init__(
        self, journal: Journal, generations: Generations, limits: WriteLimits, metrics: ShardMetrics, clock: Clock
    ) -> None:
        self._journal = journal
        self._generations = generations
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()
        self._pending_bytes = 0  # of requests that are not applied yet
        self._is_refused = False
        self._ended: GroundplaneError | None = None
        self._is_stalled = False
        self._last_seconds = 0.0  # that the last record took
        self._confirmed_at = clock.monotonic()  # the take-over has just read MANIFEST

    @property
    def age_seconds(self) -> float:
        """How long ago the question was sent by whose answer the store last confirmed that nobody else has written."""
        return self._clock.monotonic() - self._confirmed_at

    async def submit(self, operations: Sequence[Proposed], embedding_id: str | None = None) -> Acknowledged:
        """Return once `operations` are durable and applied. Raises Unavailable or OutcomeUnknown as the module says.

        embedding_id: that of the documents' vectors; None: the current generation's, which tells of no change meanwhile.
        Raises InvalidInput (`embedding_mismatch`) if no generation has it any more.
        """
        return await self._queue(_Job(operations, embedding_id, None))

    async def submit_step(self, step: StepProposal) -> Acknowledged:
        """Return once the step of a re-embedding is durable and applied. Raises as `submit` and `decide_step` do."""
        return await self._queue(_Job((), None, step))

    async def _queue(self, job: _Job) -> Acknowledged:
        self.check_room()
        self._waiting.append(job)
        self._pending_bytes += job.size_bytes
        job.done.add_done_callback(lambda _: self._settle(job))
        self._arrived.set()
        return await asyncio.shield(job.done)

    def check_room(self) -> None:
        """Raise Unavailable if a request would be refused now.

        Codes: `overloaded`; `store_unavailable` while the store does not answer or left an outcome unknown; `not_ready`
        after any other end of this writer.
        """
        if self._ended is not None:
            raise _refusal_after(self._ended)
        if self._is_stalled:
            raise _stalled()
        if len(self._waiting) >= self._limits.max_queued:
            raise _overloaded(f"{len(self._waiting)} writes are waiting: expected fewer than {self._limits.max_queued}")
        unflushed = self._generations.memtable_bytes + self._pending_bytes
        if unflushed >= self._limits.max_memtable_bytes:
            raise _overloaded(f"{unflushed} bytes of recent writes are waiting for a flush")

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the committer between two batches; what waits meanwhile is committed afterwards."""
        async with self._turn:
            yield

    async def keep_current(self) -> None:
        """Ask the store again whenever the last confirmation is `CONFIRM_SECONDS` old, until cancelled."""
        while True:
            due_in = CONFIRM_SECONDS - self.age_seconds
            await self._clock.sleep(due_in if due_in > 0 else CONFIRM_SECONDS)  # the last try failed: not at once again
            if self.age_seconds >= CONFIRM_SECONDS:
                with suppress(Unavailable):  # what ends the writer is raised by `run`
                    await self.submit(())

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

    def _settle(self, job: _Job) -> None:
        self._pending_bytes -= job.size_bytes

    def _take(self) -> list[_Job]:
        """Return the requests of the next batch: as many as its limits allow, at least one."""
        jobs = [self._waiting.popleft()]
        chunks, size_bytes = jobs[0].chunks, jobs[0].size_bytes
        while self._waiting:
            chunks += self._waiting[0].chunks
            size_bytes += self._waiting[0].size_bytes
            if chunks > MAX_BATCH_CHUNKS or size_bytes > MAX_BATCH_BYTES or not _go_together(jobs, self._waiting[0]):
                break
            jobs.append(self._waiting.popleft())
        if not self._waiting:
            self._arrived.clear()
        return jobs

    async def _commit(self, jobs: list[_Job]) -> None:
        started = self._clock.monotonic()
        decisions = Decisions(self._generations)
        results = [self._decide(job, decisions) for job in jobs]
        stall = asyncio.get_running_loop().call_later(patience_seconds(self._last_seconds), self._stall, jobs)
        try:
            sequence = await self._log(decisions)
        except OutcomeUnknown:
            raise
        except Unavailable as error:  # certainly not stored: this writer goes on
            self._note_refusal(error)
            for job in jobs:
                job.fail(Unavailable(error.message, code=error.code, retry_after_seconds=1))
            return
        finally:
            stall.cancel()
            self._is_stalled = False
            self._last_seconds = self._clock.monotonic() - started
        self._note_refusal(None)
        self._confirmed_at = started
        if not decisions.is_empty:
            self._metrics.commit_seconds.observe(self._clock.monotonic() - started)
            self._metrics.last_fsync.set(self._clock.now())
        reach(Failpoint.BEFORE_ACKNOWLEDGE)
        for job, job_results in zip(jobs, results, strict=True):
            if not job.done.done():
                job.done.set_result(Acknowledged(sequence, job_results))

    def _decide(self, job: _Job, decisions: Decisions) -> tuple[OperationResult, ...]:
        """Let `job` join `decisions`; one that the generations of now have no place for fails, alone."""
        try:
            if job.step is not None:
                decisions.switch = decide_step(self._generations, job.step)
                return (OperationResult(changed=decisions.switch is not None, chunks=0),)
            check_embedding(self._generations, job.embedding_id)
        except InvalidInput as error:
            job.fail(error)
            return ()
        decisions.embedding_id = job.embedding_id or decisions.embedding_id
        return tuple(decisions.decide(operation) for operation in job.operations)

    async def _log(self, decisions: Decisions) -> int:
        if decisions.switch is not None:
            return await self._journal.switch(decisions.switch)
        changes = decisions.changes
        if not changes:
            return await self._journal.confirm()
        if _weight(changes) > _INLINE_CHUNKS or sum(map(size_of, changes)) > _INLINE_BYTES:
            encoded = await asyncio.to_thread(payload.encode, changes)
        else:
            encoded = payload.encode(changes)
        return await self._journal.append(encoded, changes, decisions.embedding_id)

    def _note_refusal(self, error: Unavailable | None) -> None:
        """Log that the store refuses writes, and that it takes them again: once each, however many writes meet it."""
        if error is not None and not self._is_refused:
            Log("committer").warning("writes_refused", code=error.code, message=error.message)
        elif error is None and self._is_refused:
            Log("committer").info("writes_accepted_again")
        self._is_refused = error is not None

    def _stall(self, jobs: list[_Job]) -> None:
        """Let everybody go who waits for the store; the record under way is still to be settled."""
        self._is_stalled = True
        self._note_refusal(Unavailable(_NO_ANSWER, code="store_unavailable"))
        for job in jobs:
            job.fail(OutcomeUnknown(f"{_NO_ANSWER}: repeat the call"))
        while self._waiting:
            self._waiting.popleft().fail(_stalled())
        self._arrived.clear()

    def _end(self, jobs: list[_Job], error: GroundplaneError) -> None:
        self._ended = self._ended or error
        for job in jobs:
            job.fail(OutcomeUnknown(f"the write may or may not have been stored ({error.code}): repeat the call"))
        while self._waiting:
            self._waiting.popleft().fail(_refusal_after(self._ended))


def _go_together(jobs: Sequence[_Job], further: _Job) -> bool:
    """Whether one record can hold `further` beside `jobs`: it has documents of one embedding, or is a step."""
    embedding_ids = {job.embedding_id for job in (*jobs, further)} - {None}
    return len(embedding_ids) <= 1 and further.step is None and jobs[0].step is None


def patience_seconds(last_seconds: float) -> float:
    """Return how long a record may take whose requests may have waited for the last one, which took `last_seconds`."""
    return min(STALL_SECONDS, max(ANSWER_SECONDS - last_seconds, ANSWER_SECONDS - STALL_SECONDS))


def _weight(operations: Sequence[Proposed]) -> int:
    return sum(max(1, chunk_count(operation)) for operation in operations)


def _refusal_after(end: GroundplaneError) -> Unavailable:
    """Return what a request is told that came to the writer that ended so. Searches may go on, so not all of it is `not_ready`."""
    code = "store_unavailable" if isinstance(end, OutcomeUnknown) else "not_ready"
    return Unavailable("this shard is opening its log again: repeat the call", code=code, retry_after_seconds=1)


def _stalled() -> Unavailable:
    message = f"{_NO_ANSWER}: nothing was stored, repeat later"
    return Unavailable(message, code="store_unavailable", retry_after_seconds=1)


def _overloaded(found: str) -> Unavailable:
    return Unavailable(f"{found}; repeat later", code="overloaded", retry_after_seconds=1)
