"""Entry point of the operator: `groundplane-operator`, or `python -m groundplane_operator.main`. The object graph is built here."""

import asyncio
import random
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final

import aiohttp

from groundplane.api.v1alpha1 import KIND
from groundplane.errors import GroundplaneError
from groundplane.process.clock import Clock, SystemClock
from groundplane.process.logs import Log, configure_logs
from groundplane.process.metrics import new_registry
from groundplane.process.server import run_program
from groundplane_operator.cache import CHILD_KINDS, WATCHED_LABELS, Cache
from groundplane_operator.cluster import Cluster, connect
from groundplane_operator.handlers import watch, watch_registry, watch_settings
from groundplane_operator.key_store import KeyStore
from groundplane_operator.metrics import OperatorMetrics
from groundplane_operator.observe import Observer
from groundplane_operator.probes import Probes
from groundplane_operator.queue import WorkQueue
from groundplane_operator.reconcile import Reconciler
from groundplane_operator.settings import OperatorSettings, read_operator_settings
from groundplane_operator.shards import Shards

DISTRIBUTION: Final = "groundplane"
SECONDS_PER_DAY: Final = 86_400.0
FIRST_LIST_RETRY_SECONDS: Final = 5.0


def main() -> None:
    """Operate until SIGTERM. Exits with 2 for settings that cannot be used."""
    run_program(start)


def start(environment: Mapping[str, str]) -> None:
    """Operate with the settings of `environment`. Raises InvalidInput for settings that cannot be used."""
    settings = read_operator_settings(environment)
    configure_logs(settings.log_level)
    Log("operator").info("starting", namespace=settings.namespace, watched=list(settings.namespaces) or "all")
    asyncio.run(operate(settings, SystemClock()))


async def operate(settings: OperatorSettings, clock: Clock) -> None:
    """Operate until the process is asked to stop."""
    metrics = OperatorMetrics(new_registry())
    metrics.build.labels(version(DISTRIBUTION)).set(1)
    rng = random.SystemRandom()
    async with AsyncExitStack() as stack:
        kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
        cluster = await stack.enter_async_context(connect(kubeconfig, metrics.count_call))
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        keys = KeyStore(cluster, settings.namespace, settings.rotate_keys_days * SECONDS_PER_DAY, clock)
        await keys.load()
        cache = Cache(clock)
        queue = WorkQueue(clock, rng, max_passes=settings.workers)
        observer = Observer(cluster, cache, Shards(session, lambda: keys.signing_key, clock), keys, settings, clock)
        reconciler = Reconciler(cluster, cache, observer, metrics, clock, socket.gethostname())
        probes = Probes(cache, queue, metrics, settings.resync_seconds)
        resync = Resync(cluster, cache, queue, settings, clock)
        await stack.enter_async_context(probes.served(settings.host, settings.port))
        registry = watch_registry(cache, queue.add, cluster.address)
        watching = asyncio.create_task(watch(registry, watch_settings(), settings.namespaces))
        loops = (resync.run(probes), keys.run(), queue.run(reconciler.reconcile))
        await _run_until_watched(watching, [asyncio.create_task(loop) for loop in loops])
    Log("operator").info("stopped")


async def _run_until_watched(watching: asyncio.Task[None], loops: list[asyncio.Task[None]]) -> None:
    """Return when kopf ends, which it does when the process is asked to stop; a loop that ends before is a bug."""
    try:
        await asyncio.wait([watching, *loops], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (watching, *loops):
            task.cancel()
        results = await asyncio.gather(watching, *loops, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


class Resync:
    """Lists everything from time to time, so that an event that never came costs minutes and not for ever."""

    def __init__(
        self, cluster: Cluster, cache: Cache, queue: WorkQueue, settings: OperatorSettings, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._queue = queue
        self._settings = settings
        self._clock = clock
        self._log = Log("operator.resync")

    async def run(self, probes: Probes) -> None:
        """List for ever; `probes` hears of the first complete list."""
        while True:
            seconds = self._settings.resync_seconds
            try:
                await self._list_all()
                probes.is_listed = True
            except GroundplaneError as error:
                self._log.warning("resync_failed", code=error.code, message=error.message)
                seconds = seconds if probes.is_listed else FIRST_LIST_RETRY_SECONDS
            await self._clock.sleep(seconds)

    async def _list_all(self) -> None:
        for kind in (KIND, *CHILD_KINDS):
            labels = None if kind == KIND else WATCHED_LABELS
            for namespace in self._settings.namespaces or (None,):
                listed = await self._cluster.list_all(kind, namespace, labels)
                self._cache.replace(kind, namespace, listed)
        for key in self._cache.keys:
            self._queue.add(key)
        self._log.info("resynced", corpora=len(self._cache.keys))


if __name__ == "__main__":
    main()
