"""Searches that wait for a sequence, woken once it is applied, whoever wrote it and whether or not he still listens."""

import asyncio

from groundplane.errors import Unavailable
from groundplane_shard.corpus import Corpus


class Arrivals:
    """Those who wait. A search that gives up leaves nothing behind, so no more wait than searches are under way."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], int] = {}

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def reach(self, sequence: int, corpus: Corpus) -> None:
        """Return once `corpus` shows `sequence`; the caller bounds the wait. Raises Unavailable if this writer ends."""
        if corpus.view().sequence >= sequence:
            return
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[arrival] = sequence
        try:
            await arrival
        finally:
            del self._waiting[arrival]

    def moved(self, sequence: int) -> None:
        """Wake every search that waits for `sequence` or less."""
        for arrival, wanted in self._waiting.items():
            if wanted <= sequence and not arrival.done():
                arrival.set_result(None)

    def abandon(self) -> None:
        """Tell all who wait that this state moves no more."""
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_exception(
                    Unavailable("this shard opens its log again: repeat the search", code="not_ready")
                )
