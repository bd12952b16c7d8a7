"""Asks every shard for its status now and then, so that `grounding_shard_up` is true of corpora that nobody is asking."""

import asyncio
from typing import Final

from groundplane.errors import GroundplaneError
from groundplane.process.clock import Clock
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import Scope
from groundplane_router.deadline import Deadline
from groundplane_router.directory import READY_STATE, LiveDirectory, scope_of
from groundplane_router.health import SHARD_SCOPES, ShardHealth
from groundplane_router.shards import Shards

POLL_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 2.0
AT_ONCE: Final = 16


class ShardWatch:
    """Keeps `health` current."""

    def __init__(self, directory: LiveDirectory, shards: Shards, health: ShardHealth, clock: Clock) -> None:
        self._directory = directory
        self._shards = shards
        self._health = health
        self._clock = clock

    async def run(self) -> None:
        """Ask all shards every 10 s, for ever."""
        while True:
            await self.ask_all()
            await self._clock.sleep(POLL_SECONDS)

    async def ask_all(self) -> None:
        """Ask each shard once, 16 at a time."""
        free = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._ask(corpus, free) for corpus in self._ready()))

    def counts(self) -> dict[str, dict[Scope, int]]:
        """Return how many shards the directory declares ready and how many of them answer, by scope."""
        ready = self._ready()
        declared = dict.fromkeys(SHARD_SCOPES, 0)
        for corpus in ready:
            declared[scope_of(corpus)] += 1
        return {"up": self._health.count_up(ready), "declared": declared}

    def _ready(self) -> list[CorpusEntry]:
        return [corpus for corpus in self._directory.state.corpora if corpus.state == READY_STATE]

    async def _ask(self, corpus: CorpusEntry, free: asyncio.Semaphore) -> None:
        async with free:
            try:
                await self._shards.status(corpus, Deadline(self._clock, ANSWER_SECONDS))
            except GroundplaneError:
                self._health.failed(corpus)
