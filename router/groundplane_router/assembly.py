"""The router's objects, made once and put together: nothing else constructs a service."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette

from groundplane.analysis import Analyser
from groundplane.process.bodies import Bodies
from groundplane.process.clock import Clock
from groundplane.process.logs import MAX_FIELD_CHARACTERS, Log, describe_traceback
from groundplane.process.metrics import MetricsEndpoint, new_registry
from groundplane.tokens import SigningKey
from groundplane.wire.names import Reason
from groundplane_router.api import Api, ApiLimits, Services
from groundplane_router.app import api_routes, build_app, open_routes
from groundplane_router.capabilities import Capabilities, SigningKeyFile
from groundplane_router.corpus import CorpusReports
from groundplane_router.directory import LiveDirectory
from groundplane_router.documents import Documents
from groundplane_router.embedders import EmbeddingService, build_service
from groundplane_router.grep import GrepEngine, GrepLimits
from groundplane_router.grounding import Grounding
from groundplane_router.health import ShardHealth
from groundplane_router.hybrid import Hybrid
from groundplane_router.identity import Authenticator
from groundplane_router.indexing import Indexer
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.local import LocalFiles
from groundplane_router.memos import Memos
from groundplane_router.metrics import RouterMetrics, ShardCollector
from groundplane_router.openapi import OpenApiPages, build_openapi
from groundplane_router.operations import OPERATIONS
from groundplane_router.preparation import Preparation
from groundplane_router.probes import Probes
from groundplane_router.problems import RouterProblems
from groundplane_router.question import QueryEncoder
from groundplane_router.reindexing import Reindexer
from groundplane_router.semantic import SemanticMonitor, SemanticOptions, SemanticState
from groundplane_router.settings import RouterSettings, embedding_settings, fusion_rule
from groundplane_router.shard_watch import ShardWatch
from groundplane_router.shards import Shards
from groundplane_router.sources import build_sources
from groundplane_router.token_checks import TokenChecks
from groundplane_router.vector_space import VectorSpaces

DISTRIBUTION: Final = "groundplane"
LEAST_WAITING: Final = 8
"""So many requests may wait to be identified, however few the router answers at once."""

MIB: Final = 1024 * 1024

_LOG: Final = Log("router")


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """What runs beside the requests, from start to stop."""

    directory: LiveDirectory
    signing_key: SigningKeyFile
    api: ApiServer | None
    monitor: SemanticMonitor
    watch: ShardWatch
    shards: Shards
    service: EmbeddingService
    local: LocalFiles

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Keep the loops running while inside."""
        async with AsyncExitStack() as connections:
            await connections.enter_async_context(self.shards)
            if self.api is not None:
                await connections.enter_async_context(self.api)
            followed = (self.directory, self.signing_key, self.monitor, self.watch)
            loops = [asyncio.create_task(one.run()) for one in followed]
            for loop in loops:
                loop.add_done_callback(_stop_on_bug)
            try:
                yield
            finally:
                await _cancel(loops)
                await self.service.close()
                self.local.close()
                _LOG.info("router_stopped")


def _stop_on_bug(loop: asyncio.Task[None]) -> None:
    """End the process in order if `loop` ended by itself: a router that no longer sees changes must not go on answering."""
    if loop.cancelled() or (bug := loop.exception()) is None:
        return
    _LOG.error(
        "background_loop_failed", bug=type(bug).__name__, traceback=describe_traceback(bug)[-MAX_FIELD_CHARACTERS:]
    )
    signal.raise_signal(signal.SIGTERM)


async def _cancel(loops: list[asyncio.Task[None]]) -> None:
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


def build_router(settings: RouterSettings, *, clock: Clock, rng: random.Random) -> Starlette:
    """Return the router's application; connects to nothing before its lifespan begins. Raises InvalidInput."""
    return assemble(settings, build_service(embedding_settings(settings), clock=clock, rng=rng), clock=clock, rng=rng)


def assemble(settings: RouterSettings, service: EmbeddingService, *, clock: Clock, rng: random.Random) -> Starlette:
    """Return the application over a given embedding service. Raises InvalidInput for keys or paths that cannot be used."""
    metrics = RouterMetrics(new_registry(), clock)
    _describe(service, metrics)
    health = ShardHealth()
    sources = build_sources(settings, clock, rng, lambda state: health.keep_only(state.corpora))
    options = SemanticOptions(require_semantic=settings.require_semantic)
    monitor = SemanticMonitor(service, clock=clock, rng=rng, on_change=SemanticReport(metrics), options=options)
    key_file = Path(settings.signing_key_file)
    capabilities = Capabilities(SigningKey.load(key_file), clock)
    shards = Shards(capabilities, health, clock)
    background = Background(
        directory=sources.directory,
        signing_key=SigningKeyFile(key_file, capabilities, clock),
        api=sources.api,
        monitor=monitor,
        watch=ShardWatch(sources.directory, shards, health, clock),
        shards=shards,
        service=service,
        local=LocalFiles(_grep_engine(settings), metrics),
    )
    metrics.registry.register(ShardCollector(background.watch.counts))
    metrics.directory_age.set_function(lambda: sources.directory.age_seconds)
    metrics.directory_faults.set_function(lambda: sources.directory.fault_count)
    checks = TokenChecks(sources.verifier, clock, metrics, max_waiting=max(LEAST_WAITING, settings.max_requests // 2))
    authenticator = Authenticator(checks, sources.directory)
    services = _services(settings, background, authenticator, metrics)
    return _application(settings, services, background, metrics, clock)


def _services(
    settings: RouterSettings, background: Background, authenticator: Authenticator, metrics: RouterMetrics
) -> Services:
    service, monitor, shards = background.service, background.monitor, background.shards
    analyser = Analyser(settings.language)
    spaces = VectorSpaces(service, monitor, shards)
    preparation = Preparation(service)
    encoder = QueryEncoder(service, monitor, analyser)
    hybrid = Hybrid(encoder, spaces, shards, fusion_rule(settings, service.dense_floor), metrics)
    memos = Memos(shards, analyser.id, metrics)
    return Services(
        authenticator=authenticator,
        grounding=Grounding(memos, hybrid, background.local, metrics),
        indexer=Indexer(preparation, spaces, shards, analyser.id, metrics),
        reindexer=Reindexer(preparation, spaces, shards, analyser.id, metrics),
        documents=Documents(shards, analyser.id),
        memos=memos,
        corpora=CorpusReports(shards, spaces, monitor),
    )


def _application(
    settings: RouterSettings, services: Services, background: Background, metrics: RouterMetrics, clock: Clock
) -> Starlette:
    limits = ApiLimits(
        deadline_seconds=settings.deadline_seconds,
        index_deadline_seconds=settings.index_deadline_seconds,
        max_requests=settings.max_requests,
        max_index_requests=settings.max_index_requests,
    )
    bodies = Bodies(settings.bodies_mib * MIB)
    metrics.body_bytes.set_function(lambda: bodies.held_bytes)
    pages = OpenApiPages(build_openapi(OPERATIONS, version(DISTRIBUTION)))
    probes = Probes(background.directory, background.monitor)
    routes = [
        *api_routes(Api(services, limits, clock, bodies)),
        *open_routes(probes, MetricsEndpoint(metrics.registry), pages),
    ]
    return build_app(routes, RouterProblems(Log("router.requests")), metrics, background.lifespan)


class SemanticReport:
    """Tells log and metrics when semantic grounding starts or stops working."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._log = Log("router.semantic")

    def __call__(self, state: SemanticState) -> None:
        """Report a change of state."""
        self._metrics.semantic_active.set(state.is_active)
        if state.is_active:
            self._log.info("semantic_grounding_active")
            return
        self._metrics.probe_failures.labels(state.reason or Reason.EMBED_ERROR).inc()
        self._log.warning("semantic_grounding_inactive", reason=state.reason, detail=state.detail)


def _describe(service: EmbeddingService, metrics: RouterMetrics) -> None:
    fields = service.identity_fields
    metrics.embedder.labels(fields.model, str(fields.dimension), fields.format).set(1)
    metrics.build.labels(version(DISTRIBUTION)).set(1)


def _grep_engine(settings: RouterSettings) -> GrepEngine | None:
    if settings.corpus_directory is None:
        return None
    return GrepEngine(settings.corpus_directory, GrepLimits())
