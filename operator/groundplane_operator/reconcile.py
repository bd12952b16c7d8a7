"""One pass over one TenantCorpus: observe → decide → perform → status, and nothing remembered between two of them.

Level-triggered: what woke the pass is no argument of it. Every write of the operator about a corpus is made here. A crash
after any of them leaves a state from which the next pass goes on.
"""

import asyncio
from typing import Final

import msgspec

from groundplane.api.v1alpha1 import API_VERSION, KIND
from groundplane.errors import Denied, InvalidInput, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane_operator import names
from groundplane_operator.cache import Cache
from groundplane_operator.cluster import Cluster
from groundplane_operator.events import render_event, render_events
from groundplane_operator.metrics import OperatorMetrics
from groundplane_operator.observe import Observer
from groundplane_operator.observed import Observed
from groundplane_operator.plan import next_step
from groundplane_operator.queue import Key
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Manifest
from groundplane_operator.status import status_after
from groundplane_operator.steps import (
    Accept,
    Apply,
    Delete,
    Done,
    ObjectTarget,
    Refuse,
    Release,
    SetFinalizer,
    Step,
    Wait,
    again_seconds,
)

REFUSED_SECONDS: Final = 30.0
REPEAT_SECONDS: Final = 1.0
MAX_REPEAT_SECONDS: Final = 60.0
MAX_WAIT_SECONDS: Final = 20.0


class Reconciler:
    """Brings corpora nearer to their specs, one step a pass."""

    def __init__(
        self, cluster: Cluster, cache: Cache, observer: Observer, metrics: OperatorMetrics, clock: Clock, instance: str
    ) -> None:
        """instance: the name of this operator's pod, for Events."""
        self._cluster = cluster
        self._cache = cache
        self._observer = observer
        self._metrics = metrics
        self._clock = clock
        self._instance = instance
        self._log = Log("operator.reconcile")
        self._rollouts = asyncio.Lock()
        self._claims = asyncio.Lock()
        self._repeats: dict[Key, tuple[Step, int]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Make one step for `key`; return after how many seconds it is due again, None: when something about it changes.

        Raises Unavailable or Denied if something could not be read or written; the queue tries again.
        """
        begun = self._clock.monotonic()
        result = "failed"
        try:
            step = await self._pass(key)
            again = None if step is None else self._again_seconds(key, step)
            result = "done" if step is None or again is None or again >= REFUSED_SECONDS else "again"
        finally:
            seconds = self._clock.monotonic() - begun
            self._metrics.passes.labels(result).inc()
            self._metrics.pass_seconds.observe(seconds)
        if step is not None:
            self._log.info("pass", corpus=str(key), step=type(step).__name__, seconds=round(seconds, 3))
        return again

    async def _pass(self, key: Key) -> Step | None:
        looked = await self._observer.observe(key)
        if looked is None:
            self._repeats.pop(key, None)
            return None
        live, seen = looked
        step = next_step(seen, self._clock.now())
        if isinstance(step, Accept):
            return await self._accept(live, seen)
        if isinstance(step, Apply) and step.is_rollout:
            return await self._roll_out(live, seen)
        return await self._take(live, seen, step)

    async def _accept(self, live: Manifest, seen: Observed) -> Step:
        """Write claims while nobody else does: of two that want the same subject at once only one may see it free."""
        async with self._claims:
            seen = msgspec.structs.replace(seen, claimants=self._cache.claimants())
            return await self._take(live, seen, next_step(seen, self._clock.now()))

    async def _roll_out(self, live: Manifest, seen: Observed) -> Step:
        """Replace pods while nobody else begins to: the fleet is looked at and changed under one lock."""
        async with self._rollouts:
            seen = msgspec.structs.replace(seen, fleet=self._cache.fleet())
            return await self._take(live, seen, next_step(seen, self._clock.now()))

    async def _take(self, live: Manifest, seen: Observed, step: Step) -> Step:
        """Perform `step` and write what it comes to; a step that the API server refuses for good is told, not repeated."""
        if isinstance(step, Release):
            await self._release(live, seen, step)
            return step
        try:
            await self._perform(live, step)
        except (InvalidInput, Denied) as error:
            step = Wait(reason=Reason.API_REFUSED, message=error.message, seconds=REFUSED_SECONDS, is_degraded=True)
        await self._write_status(seen, step)
        return step

    async def _perform(self, live: Manifest, step: Step) -> None:
        match step:
            case SetFinalizer(present=present):
                await self._set_finalizer(live, present=present)
            case Apply(manifests=manifests):
                for manifest in manifests:
                    self._cache.take(await self._cluster.apply(manifest))
            case Delete(targets=targets):
                for target in targets:
                    await self._delete(target)
            case _:
                return

    async def _delete(self, target: ObjectTarget) -> None:
        """Delete exactly the object that was decided on, as it is now."""
        live = await self._cluster.get(target.kind, target.namespace, target.name)
        if live is not None and live["metadata"]["uid"] == target.uid:
            await self._cluster.delete(live)

    async def _set_finalizer(self, live: Manifest, *, present: bool) -> None:
        others = [each for each in live["metadata"].get("finalizers", ()) if each != names.FINALIZER]
        finalizers = [*others, names.FINALIZER] if present else others
        after = await self._cluster.patch(live, {"metadata": {"finalizers": finalizers}})
        if after is not None:
            self._cache.take(after)

    async def _release(self, live: Manifest, seen: Observed, step: Release) -> None:
        """Let the resource go, and say before that what is left of it."""
        if step.reason is not None:
            is_warning = step.reason == Reason.CLEANUP_INCOMPLETE
            reason, note, now = str(step.reason), step.message, self._clock.now()
            self._log.info(
                "released", corpus=f"{seen.resource.namespace}/{seen.resource.name}", reason=reason, note=note
            )
            await self._tell(
                render_event(
                    seen.resource, reason=reason, note=note, is_warning=is_warning, instance=self._instance, now=now
                )
            )
        await self._set_finalizer(live, present=False)

    async def _write_status(self, seen: Observed, step: Step) -> None:
        """Write the status if it has to be another one, then tell of the conditions that changed."""
        resource, now = seen.resource, self._clock.now()
        after = status_after(seen, step, now)
        if after == resource.status:
            return
        metadata = {"name": resource.name, "namespace": resource.namespace, "uid": resource.uid}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": msgspec.to_builtins(after)}
        self._cache.take(await self._cluster.apply(body, "status"))
        for event in render_events(
            resource, resource.status.conditions, after.conditions, instance=self._instance, now=now
        ):
            await self._tell(event)

    async def _tell(self, event: Manifest) -> None:
        """Create an Event. One that is there already, or that cannot be created, is no reason to stop."""
        try:
            await self._cluster.create(event)
        except (Unavailable, Denied, InvalidInput) as error:
            if error.code != "api_conflict":
                self._log.warning("event_not_created", code=error.code, message=error.message)

    def _again_seconds(self, key: Key, step: Step) -> float | None:
        """Return when the key is due again.

        What has to be done over and over is done ever more rarely; what is waited for in vain is looked at more rarely too,
        since an event wakes us when it comes.
        """
        seconds = again_seconds(step)
        before, repeats = self._repeats.get(key, (None, 0))
        repeats = repeats + 1 if step == before else 0
        self._repeats[key] = (step, repeats)
        if seconds is None or repeats == 0 or isinstance(step, (Done, Refuse)):
            return seconds
        longest = max(seconds, MAX_WAIT_SECONDS) if isinstance(step, Wait) else MAX_REPEAT_SECONDS
        return min(longest, max(seconds, REPEAT_SECONDS) * 2.0 ** min(repeats - 1, 16))
