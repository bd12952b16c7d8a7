"""The directory that follows the TenantCorpora of the cluster.

While the API server is away the last state stays in force; `age_seconds` says how old it is. Before every collection has been
listed once there is no state at all, and the router is not ready.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.directory import CorpusEntry, Directory
from groundplane_router.directory import DirectoryState
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.corpora import Reading, Resolved, resolve
from groundplane_router.kubernetes.list_watch import Event, ListWatch

ALL_NAMESPACES: Final = (None,)
MAX_LOGGED: Final = 16
SETTLE_SECONDS: Final = 0.1
"""Changes that come closer together are one: a new state takes 10 ms for 1,000 corpora, and a roll-out changes all of them."""


class Collection:
    """What the last list of one collection and the events after it amount to. A `Sink`."""

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        """on_change: called after each change of what the resources say."""
        self._clock = clock
        self._on_change = on_change
        self._readings: dict[str, Reading] = {}
        self.is_listed = False
        self.current_at = clock.monotonic()

    @property
    def readings(self) -> Sequence[Reading]:
        """Return what each resource says."""
        return tuple(self._readings.values())

    def replace(self, readings: Sequence[Reading]) -> None:
        """Take a whole list."""
        self._take({reading.uid: reading for reading in readings}, is_first=not self.is_listed)

    def apply(self, events: Sequence[Event]) -> None:
        """Take changes in order. Each says all of its resource, so what is repeated changes nothing."""
        readings = dict(self._readings)
        for event in events:
            match event.type:
                case "ADDED" | "MODIFIED":
                    readings[event.reading.uid] = event.reading
                case "DELETED":
                    readings.pop(event.reading.uid, None)
                case "BOOKMARK":
                    pass
        self._take(readings, is_first=False)

    def _take(self, readings: dict[str, Reading], *, is_first: bool) -> None:
        self.current_at = self._clock.monotonic()
        self.is_listed = True
        if is_first or readings != self._readings:
            self._readings = readings
            self._on_change()


class KubernetesDirectory:
    """Follows the TenantCorpora of some namespaces, or of all, and holds the last state of them."""

    def __init__(
        self,
        api: ApiServer,
        namespaces: Sequence[str | None] = ALL_NAMESPACES,
        *,
        clock: Clock,
        rng: random.Random,
        on_change: Callable[[DirectoryState], None] | None = None,
    ) -> None:
        """on_change: called with each new state, after it is in force."""
        self._clock = clock
        self._on_change = on_change
        self._log = Log("router.directory")
        self._changed = asyncio.Event()
        self._collections = [Collection(clock, self._changed.set) for _ in namespaces]
        self._watches = [
            ListWatch(api, namespace, collection, clock=clock, rng=rng)
            for namespace, collection in zip(namespaces, self._collections, strict=True)
        ]
        self._resolved = Resolved(entries={})
        self._state = DirectoryState(Directory(corpora=()))
        self.is_loaded = False

    @property
    def state(self) -> DirectoryState:
        """Return the directory in force; without corpora until every collection has been listed."""
        return self._state

    @property
    def age_seconds(self) -> float:
        """Return for how long the API server has not confirmed the state; about a minute at most while it answers."""
        return self._clock.monotonic() - min(collection.current_at for collection in self._collections)

    @property
    def fault_count(self) -> int:
        """Return how many resources cannot be read and how many claims contradict each other."""
        return len(self._resolved.unreadable) + len(self._resolved.contradictions)

    async def run(self) -> None:
        """Follow all collections for ever."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.run())
            group.create_task(self._refresh_after_changes())

    async def _refresh_after_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._refresh()
            await self._clock.sleep(SETTLE_SECONDS)

    def _refresh(self) -> None:
        """Put into force what the collections say."""
        if not all(collection.is_listed for collection in self._collections):
            return
        readings = [reading for collection in self._collections for reading in collection.readings]
        resolved = resolve(readings, self._resolved.entries)
        self._report(resolved)
        changed = not self.is_loaded or resolved.entries != self._resolved.entries
        self._resolved = resolved
        if changed:
            self._take(sorted(resolved.entries.values(), key=lambda entry: entry.key))

    def _take(self, corpora: Sequence[CorpusEntry]) -> None:
        self._state = DirectoryState(Directory(corpora=tuple(corpora)))
        self.is_loaded = True
        self._log.info("directory_loaded", corpora=len(corpora))
        if self._on_change:
            self._on_change(self._state)

    def _report(self, resolved: Resolved) -> None:
        if resolved.unreadable != self._resolved.unreadable:
            self._log.warning("directory_unreadable_resources", faults=resolved.unreadable[:MAX_LOGGED])
        if resolved.contradictions != self._resolved.contradictions:
            self._log.warning("directory_contradictions", claims=resolved.contradictions[:MAX_LOGGED])
