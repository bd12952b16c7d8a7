"""The shard as its routes see it: opening, serving, and what ends it.

starting → restoring → ready ─┬→ restoring    the writer's outcome is unknown, or its state must be rebuilt
                              └→ superseded   another process took over: never ready again; the process stays up
                                              so that its probe says so, and whoever runs it replaces it
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette

from groundplane.errors import CorruptData, GroundplaneError, Superseded, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.internal import (
    DocumentPage,
    SearchAnswer,
    SearchRequest,
    ShardStatus,
    StoredDocument,
    StoredMemo,
    WriteRequest,
    WriteResult,
)
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Replica
from groundplane_shard.memory import forget_loaded_modules
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.serving import Serving, ServingParts
from groundplane_shard.stores import ObjectStore, check_conditions, run

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0


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
        self._unready = Unavailable("this shard is starting: repeat later", code="not_ready", detail="starting")
        self._clock: Clock = parts.clock
        self._metrics: ShardMetrics = parts.metrics
        self._log = Log("shard")
        self._has_served = False

    @property
    def unready_detail(self) -> str | None:
        """Return why this shard is not ready, None while it is."""
        return None if self._serving is not None else self._unready.detail or self._unready.code

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Open and serve in the background; at the end publish what no snapshot holds yet."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

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

    def memo(self, name: str, fingerprint: str) -> StoredMemo:
        """Return one memo."""
        return self._ready().memo(name, fingerprint)

    async def snapshot(self) -> ShardStatus:
        """Publish a snapshot of all that is committed and return the status after it."""
        serving = self._ready()
        await serving.snapshots.publish(self._clock)
        return serving.status()

    def status(self) -> ShardStatus:
        """Return what this shard holds. Raises Unavailable while it is not ready."""
        return self._ready().status()

    def _ready(self, incarnation: str | None = None) -> Serving:
        if incarnation is not None:
            self._parts.check_incarnation(incarnation)
        if self._serving is None:
            raise self._unready
        return self._serving

    async def _run(self) -> None:
        """Open and serve, again after whatever can be mended by opening again, until cancelled or superseded."""
        attempt = 0
        while True:
            try:
                await self._open_and_serve()
            except Superseded as error:
                self._stay_unready(error)
                self._log.error("superseded", message=error.message)
                return
            except GroundplaneError as error:
                self._stay_unready(error)
                attempt = 1 if self._has_served else attempt + 1
                self._has_served = False
                pause = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(attempt, 10))
                level = self._log.error if isinstance(error, CorruptData) else self._log.warning
                level("shard_opens_again", code=error.code, message=error.message, pause_seconds=pause)
                await self._clock.sleep(pause)

    def _stay_unready(self, error: GroundplaneError) -> None:
        self._unready = Unavailable(
            f"this shard is not ready: {error.message}", code="not_ready", detail=error.code, retry_after_seconds=2
        )

    async def _open_and_serve(self) -> None:
        started = self._clock.monotonic()
        self._unready = Unavailable(
            "this shard is restoring: repeat later", code="not_ready", detail="restoring", retry_after_seconds=1
        )
        await asyncio.to_thread(_empty, self._work_directory)
        try:
            layout = self._parts.layout
            await check_conditions(self._store, layout.prefix, token=secrets.token_hex(16))
            await run(self._replica.open(), self._store, self._state)
            writer = await run(self._replica.take_over(), self._store, self._state)
            serving = Serving(self._parts, self._replica, writer, self._store, self._state)
            self._log.info(
                "shard_ready",
                seconds=round(self._clock.monotonic() - started, 3),
                epoch=writer.epoch,
                sequence=writer.position.sequence,
                snapshot_sequence=writer.manifest.newest_sequence,
                documents=serving.corpus.view().totals.documents,
            )
            await self._serve(serving)
        finally:
            self._state.forget()

    async def _serve(self, serving: Serving) -> None:
        forget_loaded_modules()
        self._serving = serving
        self._has_served = True
        self._metrics.ready.set(1)
        try:
            await serving.run()
        except asyncio.CancelledError:
            await self._publish_at_stop(serving)
            raise
        finally:
            self._serving = None
            self._metrics.ready.set(0)

    async def _publish_at_stop(self, serving: Serving) -> None:
        try:
            sequence = await serving.snapshots.publish(self._clock)
        except GroundplaneError as error:
            self._log.warning("snapshot_at_stop_failed", code=error.code, message=error.message)
        else:
            self._log.info("shard_stopped", sequence=sequence)


def _empty(directory: Path) -> None:
    """Make `directory` exist, empty and private: nothing local is trusted across starts."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, mode=0o700)
