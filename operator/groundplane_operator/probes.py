"""Probes and metrics of the operator, over the web server of a library that kopf brings along.

Alive means that the event loop turns: an API server that is away is no reason to be restarted. Ready means that everything
was listed once, and that the API server has told of something, by watch or list, within MAX_SILENCE_SECONDS.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.exposition import generate_latest

from groundplane_operator.cache import Cache
from groundplane_operator.metrics import OperatorMetrics
from groundplane_operator.queue import WorkQueue

RESYNC_SLACK: Final = 3.0


class Probes:
    """Answers /healthz, /readyz and /metrics."""

    def __init__(self, cache: Cache, queue: WorkQueue, metrics: OperatorMetrics, resync_seconds: float) -> None:
        self._cache = cache
        self._queue = queue
        self._metrics = metrics
        self._max_silence_seconds = RESYNC_SLACK * resync_seconds
        self.is_listed = False

    @asynccontextmanager
    async def served(self, host: str, port: int) -> AsyncIterator[None]:
        """Serve while inside."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
            ]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            yield
        finally:
            await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        detail = self._unready_detail()
        return web.Response(text=f"{detail or 'ok'}\n", status=200 if detail is None else 503)

    async def _metrics_page(self, _request: web.Request) -> web.Response:
        self._metrics.queue_depth.set(self._queue.depth)
        self._metrics.queue_oldest_seconds.set(self._queue.oldest_age_seconds)
        self._metrics.event_age_seconds.set(self._cache.event_age_seconds)
        self._metrics.show_conditions(each.status.conditions for each in self._cache.resources)
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _unready_detail(self) -> str | None:
        if not self.is_listed:
            return "not_listed"
        return "api_silent" if self._cache.event_age_seconds > self._max_silence_seconds else None
