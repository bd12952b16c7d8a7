"""Whether semantic grounding works: the probe at start, again while it does not, and now and then while it does.

The probe takes the path of a query and passes when the three probe texts give vectors that fit the index, are finite and
not zero, differ from each other, and come out the same when asked again. Vectors that differ from the first good ones mean
that another model answers now: scores against the stored vectors would be noise, so semantic grounding goes off.

A probe is conclusive when it passed or failed for a reason that waiting does not mend (`dimension_mismatch`,
`no_embedder`, a changed model); a server that does not answer yet is not. Readiness waits for the first conclusive probe, at
most `gate_seconds`, and never goes back: keyword search still answers.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec
import numpy as np

from groundplane.errors import Unavailable
from groundplane.process.clock import Clock
from groundplane_router.embedders.fit import UNAVAILABLE_CODE, Vector

SAME_TEXT_COSINE: Final = 0.999
SAME_MODEL_COSINE: Final = 0.98
DIFFERENT_TEXT_COSINE: Final = 0.9999
"""Two texts at or above this are not told apart; squeezed spaces such as E5's stay well below."""

INCONCLUSIVE_REASON: Final = "embed_error"
CONCLUSIVE_DETAILS: Final = frozenset({"embedder_changed", "texts_not_told_apart", "answers_not_repeatable"})
TEXT_DETAILS: Final = frozenset({"status_400", "status_413", "status_422", "not_finite"})
"""Failures that one odd text can cause: no caller may switch semantic grounding off for all others with a query."""


class SemanticState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of semantic grounding since `since` (seconds since 1970 UTC)."""

    status: Literal["pending", "active", "inactive"]
    since: float
    reason: str | None = None
    """Why it is inactive, a `groundplane.wire` reason; None otherwise."""

    detail: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether queries can be answered semantically."""
        return self.status == "active"


class SemanticOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the monitor is."""

    require_semantic: bool = False
    """Not ready until a probe has passed once (`GROUNDPLANE_REQUIRE_SEMANTIC`)."""

    gate_seconds: float = 30.0
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 60.0
    recheck_seconds: float = 300.0
    """How often an active embedder is probed, to notice that it was replaced."""


class Probe(Protocol):
    """What the monitor needs of the embedding service."""

    async def probe_vectors(self) -> Vector:
        """Return the vectors of at least two fixed texts, made as a query's are. Raises Unavailable."""


class SemanticMonitor:
    """Holds the state, keeps it current while `run` runs, and answers for readiness."""

    def __init__(
        self,
        probe: Probe,
        *,
        clock: Clock,
        rng: random.Random,
        on_change: Callable[[SemanticState], None],
        options: SemanticOptions,
    ) -> None:
        """on_change: called once for each change of status, reason or detail: one log line and the metric."""
        self._probe = probe
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._options = options
        self._state = SemanticState(status="pending", since=clock.now())
        self._started = clock.monotonic()
        self._first_vectors: Vector | None = None
        self._gate_open = False
        self._failures = 0
        self._woken = asyncio.Event()

    @property
    def state(self) -> SemanticState:
        """Return the state as of the last probe or reported failure."""
        return self._state

    @property
    def probe_vectors(self) -> Vector | None:
        """Return the vectors of the first probe that passed, None before: part of the embedding identity."""
        return self._first_vectors

    def is_ready(self) -> bool:
        """Return whether semantic grounding holds readiness back no longer; once true it stays true."""
        waited = self._clock.monotonic() - self._started >= self._options.gate_seconds
        if waited and not self._options.require_semantic:
            self._gate_open = True
        return self._gate_open

    def report_failure(self, failure: Unavailable) -> None:
        """Take note that a query could not be embedded: inactive at once, and probed again soon.

        A failure that may lie in the query's own text only brings the next probe forward.
        """
        if not self._state.is_active:
            return
        if failure.reason != "zero_vector" and failure.detail not in TEXT_DETAILS:
            self._become("inactive", failure)
        self._woken.set()

    async def run(self) -> None:
        """Probe for ever: with backoff until it passes, then every `recheck_seconds` or when a failure is reported."""
        while True:
            await self.probe_once()
            await self._pause()

    async def probe_once(self) -> SemanticState:
        """Probe, update the state and return it."""
        try:
            vectors = await self._checked_vectors()
        except Unavailable as failure:
            self._failures += 1
            conclusive = failure.reason != INCONCLUSIVE_REASON or failure.detail in CONCLUSIVE_DETAILS
            self._gate_open |= conclusive and not self._options.require_semantic
            self._become("inactive", failure)
            return self._state
        if self._first_vectors is None:
            self._first_vectors = vectors
        self._failures = 0
        self._gate_open = True
        self._become("active", None)
        return self._state

    async def _checked_vectors(self) -> Vector:
        vectors = await self._probe.probe_vectors()
        again = await self._probe.probe_vectors()
        if row_cosines(vectors, again).min() < SAME_TEXT_COSINE:
            raise _unusable("answers the same text with different vectors", detail="answers_not_repeatable")
        if row_cosines(vectors, np.roll(vectors, 1, axis=0)).max() >= DIFFERENT_TEXT_COSINE:
            raise _unusable("answers different texts with the same vector", detail="texts_not_told_apart")
        if self._first_vectors is not None and row_cosines(vectors, self._first_vectors).min() < SAME_MODEL_COSINE:
            raise _unusable(
                "answers its probe texts with other vectors than before: another model, re-index or restore the first",
                detail="embedder_changed",
            )
        return vectors

    def _become(self, status: Literal["active", "inactive"], failure: Unavailable | None) -> None:
        reason, detail = (failure.reason, failure.detail) if failure else (None, None)
        if (status, reason, detail) == (self._state.status, self._state.reason, self._state.detail):
            return
        self._state = SemanticState(status=status, since=self._clock.now(), reason=reason, detail=detail)
        self._on_change(self._state)

    async def _pause(self) -> None:
        """Wait until the next probe is due. After a reported failure that is one short pause, not none:
        an embedder that fails each query but passes each probe must not be probed as often as it is asked."""
        if self._state.is_active:
            await self._sleep_unless_woken(self._options.recheck_seconds)
            if not self._woken.is_set():
                return
        self._woken.clear()
        await self._clock.sleep(self._backoff_seconds())

    def _backoff_seconds(self) -> float:
        doubled = self._options.first_pause_seconds * 2.0 ** min(max(self._failures - 1, 0), 30)
        return min(doubled, self._options.longest_pause_seconds) * self._rng.uniform(0.5, 1.0)

    async def _sleep_unless_woken(self, seconds: float) -> None:
        waits = {asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._woken.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def row_cosines(left: Vector, right: Vector) -> Vector:
    """Return the cosine of each row of `left` with that of `right`; rows have length 1."""
    cosines: Vector = (left * right).sum(axis=1)
    return cosines


def _unusable(fault: str, *, detail: str) -> Unavailable:
    return Unavailable(f"embedder {fault}", code=UNAVAILABLE_CODE, reason=INCONCLUSIVE_REASON, detail=detail)
