"""The shard as its routes see it: opening, serving, and what ends it.

starting → restoring → checking_store → taking_over → ready    the check runs beside the restore and is mostly done first
    ready → suspended         a write's outcome is unknown: searches go on over the same state, writes are refused
    suspended → ready         the store answered, the log was read on from there, and the epoch raised again
    ready, suspended → restoring    the state must be rebuilt
    any   → superseded        another process took over: never ready again; the process stays up so that its probe says
                              so, and whoever runs it replaces it

A failure that opening again may mend is tried again with growing pauses; meanwhile the answer to every request names
the step and what failed last. A bug ends the process: whoever runs it starts it afresh.
"""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from starlette.applications import Starlette

from groundplane.errors import CorruptData, GroundplaneError, OutcomeUnknown, Superseded, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import MAX_FIELD_CHARACTERS, Log, describe_traceback
from groundplane.wire.internal import (
    DocumentPage,
    KnownAnswer,
    KnownRequest,
    PendingPage,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    StoredDocument,
    StoredMemo,
    WriteRequest,
    WriteResult,
)
from groundplane_shard.disk import empty
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.identity import check_analyser, check_embeddings
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Override, Replica, Witness
from groundplane_shard.memory import forget_loaded_modules
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.serving import Serving, ServingParts
from groundplane_shard.stores import ObjectStore, run, while_checking

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0
LONGEST_RESUME_SECONDS = 5.0  # writes are refused until then


class Unready(msgspec.Struct, frozen=True):
    """Why this shard does not answer: `detail` for its probe, `message` for people."""

    detail: str
    message: str

    def error(self) -> Unavailable:
        """Return a new error, since one that is raised again and again keeps every caller's frames."""
        message = f"this shard is not ready: {self.message}; repeat later"
        return Unavailable(message, code="not_ready", detail=self.detail, retry_after_seconds=1)


class Ending(msgspec.Struct, frozen=True):
    """What ended a writer or its opening. Not the error itself: its frames would keep the whole state alive."""

    code: str
    message: str
    is_superseded: bool
    is_corrupt: bool
    has_served: bool


class Shard:
    """One incarnation of one corpus in this process. `lifespan` starts and stops it; the routes call the rest."""

    def __init__(
        self, parts: ServingParts, replica: Replica, store: ObjectStore, state: LocalState, work_directory: Path
    ) -> None:
        self._parts = parts
        self._replica = replica
        self._store = store
        self._state = state
        self._work_directory = work_directory
        self._serving: Serving | None = None
        self._unready = Unready("starting", "it is starting")
        self._ended: Ending | None = None  # why the try before this one ended
        self._clock: Clock = parts.clock
        self._metrics: ShardMetrics = parts.metrics
        self._log = Log("shard")

    @property
    def unready_detail(self) -> str | None:
        """Return why this shard is not ready, and how far its download is; None while it is ready."""
        if self._serving is not None:
            return None
        return " ".join(filter(None, (self._unready.detail, self._state.download)))

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Open and serve in the background; at the end publish what no snapshot holds yet."""
        task = asyncio.create_task(self._run())
        task.add_done_callback(_stop_on_bug)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """Return candidates with both scores complete. Raises Unavailable, InvalidInput."""
        return await self._ready(request.incarnation).search(request)

    async def write(self, request: WriteRequest) -> WriteResult:
        """Return once the request is durable and applied. Raises Unavailable, OutcomeUnknown, InvalidInput."""
        return await self._ready(request.incarnation).write(request)

    async def documents(self, after: str, limit: int) -> DocumentPage:
        """Return the documents whose id is above `after`, by id."""
        return await self._ready().documents(after, limit)

    async def document(self, doc_id: str) -> StoredDocument:
        """Return one document, put together again from its chunks."""
        return await self._ready().document(doc_id)

    async def known(self, request: KnownRequest) -> KnownAnswer:
        """Return which documents are stored just so. Raises Unavailable."""
        return await self._ready(request.incarnation).known(request)

    async def pending(self, after: str, chunker: str) -> PendingPage:
        """Return documents that are still to be re-embedded, by id."""
        return await self._ready().pending(after, chunker)

    def memo(self, name: str, fingerprint: str) -> StoredMemo:
        """Return one memo."""
        return self._ready().memo(name, fingerprint)

    async def snapshot(self) -> ShardStatus:
        """Publish a snapshot of all that is committed and return the status after it."""
        return await self._ready().snapshot()

    def status(self) -> ShardStatus:
        """Return what this shard holds. Raises Unavailable, which says why, while it is not ready."""
        return self._ready().status()

    def observe(self) -> None:
        """Set the gauges to what is so now; while nothing is served they stay as they were."""
        if self._serving is not None:
            self._serving.observe()

    def _ready(self, incarnation: str | None = None) -> Serving:
        if incarnation is not None:
            self._parts.check_incarnation(incarnation)
        if self._serving is None:
            raise self._unready.error()
        return self._serving

    async def _run(self) -> None:
        """Open and serve, again after whatever can be mended by opening again, until cancelled or superseded."""
        attempt = 0
        while True:
            ended = self._ended = await self._open_and_serve()
            if ended.is_superseded:
                self._log.error("superseded", message=ended.message)
                return
            attempt = 1 if ended.has_served else attempt + 1
            pause = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(attempt, 10))
            log = self._log.error if ended.is_corrupt else self._log.warning
            log("shard_opens_again", code=ended.code, message=ended.message, pause_seconds=pause)
            await self._clock.sleep(pause)

    async def _open_and_serve(self) -> Ending:
        """Return what ended the writer, or kept it from its work."""
        has_served = False
        try:
            serving = await self._open()
            has_served = True
            while True:
                try:
                    await self._serve(serving)
                except asyncio.CancelledError:
                    await self._publish_at_stop(serving)
                    raise
                serving = await self._resume(serving)
        except GroundplaneError as error:
            self._unready = Unready(error.code, error.message)
            return Ending(
                error.code, error.message, isinstance(error, Superseded), isinstance(error, CorruptData), has_served
            )
        finally:
            self._withdraw()
            self._state.forget()

    async def _open(self) -> Serving:
        """Become the writer. Raises Superseded, Unavailable or CorruptData; wrong settings are found before it contends."""
        started = self._clock.monotonic()
        layout, analyser_id = self._parts.layout, self._parts.analyser.id
        self._enter("restoring")
        await asyncio.to_thread(empty, self._work_directory)
        witness = await self._parts.witness.read()  # before the store is, which only grows beyond it
        await while_checking(self._store, layout.prefix, self._restore, token=secrets.token_hex(16))
        reach(Failpoint.STORE_CHECKED)
        check_analyser(self._replica.manifest, analyser_id)
        check_embeddings(self._state.generations, self._replica.manifest)
        reach(Failpoint.LOG_READ)
        self._enter("taking_over")
        return await self._take_over(witness, started)

    async def _restore(self, store: ObjectStore) -> None:
        """Build the state from `store`, which may still be being checked afterwards."""
        await run(self._replica.open(), store, self._state)
        self._enter("checking_store")

    async def _take_over(self, witness: Witness | None, started: float) -> Serving:
        """Become the writer of what the replica has followed. Raises as `Replica.take_over` does."""
        steps = self._replica.take_over(witness, accept_data_loss=self._parts.accept_data_loss)
        writer = await run(steps, self._store, self._state)
        self._audit_loss(self._state.accepted_loss)
        serving = Serving(self._parts, writer, self._store, self._state)
        reach(Failpoint.TAKEN_OVER)
        self._log.info(
            "shard_ready",
            seconds=round(self._clock.monotonic() - started, 3),
            epoch=writer.epoch,
            sequence=writer.position.sequence,
            snapshot_sequence=writer.manifest.newest_sequence,
            documents=serving.corpus.view().totals.documents,
        )
        return serving

    async def _serve(self, serving: Serving) -> None:
        """Serve until the outcome of a write is unknown. Raises what else ends it; nobody is answered any more then.

        After an unknown outcome `serving` refuses writes and goes on answering searches: its state is that of the last
        record which is certainly in the log.
        """
        forget_loaded_modules()
        self._serving, self._ended = serving, None
        self._metrics.ready.set(1)
        self._unready = Unready("stopping", "it is stopping")
        is_suspended = False
        try:
            async with self._parts.witness.kept(serving.durable, self._clock):
                await serving.run()
        except GroundplaneError as error:
            self._unready = Unready(error.code, error.message)
            is_suspended = isinstance(error, OutcomeUnknown) and not serving.is_half_applied
            if not is_suspended:
                raise
            serving.suspend(error)
            self._log.warning("writes_suspended", code=error.code, message=error.message)
        finally:
            if not is_suspended:
                self._withdraw()
            await serving.close()

    async def _resume(self, suspended: Serving) -> Serving:
        """Return the next writer over the same state, as soon as the store answers. Raises Superseded, CorruptData.

        It need not be restored: what is there is at the writer's position, and the log is read on from there.
        """
        started = self._clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            await self._clock.sleep(min(LONGEST_RESUME_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(attempt - 1, 10)))
            try:
                witness = await self._parts.witness.read()
                await run(self._replica.resume(suspended.position), self._store, self._state)
                return await self._take_over(witness, started)
            except Unavailable as error:
                if self._state.is_empty:  # it was collected behind, and nothing could be restored instead
                    raise
                suspended.position = self._replica.position
                self._log.warning("store_unavailable", code=error.code, message=error.message)

    def _withdraw(self) -> None:
        """Answer nobody any more."""
        self._serving = None
        self._metrics.ready.set(0)

    def _audit_loss(self, loss: Override | None) -> None:
        """Say in the log that this opening went on although the store had lost records, if it did."""
        if loss is not None:
            self._log.warning(
                "data_loss_accepted",
                accepted_sequence=loss.accepted_sequence,
                witness_sequence=loss.witness_sequence,
                witness_epoch=loss.witness_epoch,
            )

    async def _publish_at_stop(self, serving: Serving) -> None:
        """Publish what no snapshot holds yet, so that the next start is quick."""
        reach(Failpoint.STOPPING)
        try:
            await serving.snapshots.publish()
        except GroundplaneError as error:
            self._log.warning("snapshot_at_stop_failed", code=error.code, message=error.message)
        else:
            self._log.info("shard_stopped", sequence=serving.corpus.view().sequence)
        reach(Failpoint.STOPPED)

    def _enter(self, step: str) -> None:
        """Say which step of opening is under way, and what failed before."""
        detail, message = step, f"it is {step.replace('_', ' ')}"
        if self._ended is not None:
            detail, message = f"{detail} after {self._ended.code}", f"{message}, after: {self._ended.message}"
        self._unready = Unready(detail, message)


def _stop_on_bug(task: asyncio.Task[None]) -> None:
    """End the process in order if the shard's task ended by a bug: it would stay unready for ever, and nobody would know."""
    if task.cancelled() or (bug := task.exception()) is None:
        return
    Log("shard").error(
        "shard_failed", bug=type(bug).__name__, traceback=describe_traceback(bug)[-MAX_FIELD_CHARACTERS:]
    )
    signal.raise_signal(signal.SIGTERM)
