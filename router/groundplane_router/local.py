"""The grep tier as the grounding sees it: an engine over local files, or none at all."""

import asyncio
from typing import Final

import msgspec

from groundplane.wire.names import Scope
from groundplane.wire.public import Hit, ScopeReport, Scores
from groundplane_router.deadline import Deadline
from groundplane_router.grep import GrepEngine, GrepHit
from groundplane_router.metrics import RouterMetrics

TIMED_OUT: Final = "grep_timeout"


class LocalSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What the files said. `report` is None where they were not asked: no engine exists, or an earlier tier answered."""

    hits: list[Hit] = []
    report: ScopeReport | None = None
    ms: float | None = None


class LocalFiles:
    """Keyword search in `FACE_DCI_CORPUS_DIR`; without that setting there is no engine and nothing is ever searched."""

    def __init__(self, engine: GrepEngine | None, metrics: RouterMetrics) -> None:
        self._engine = engine
        self._metrics = metrics

    @property
    def exists(self) -> bool:
        """Return whether there is an engine."""
        return self._engine is not None

    async def search(self, query: str, k: int, deadline: Deadline) -> LocalSearch:
        """Return at most `k` places where the words of `query` stand; a search that saw not everything is reported so."""
        if self._engine is None:
            return LocalSearch()
        with self._metrics.stage("grep") as watch:
            try:
                async with asyncio.timeout(deadline.remaining_seconds):
                    answer = await self._engine.search(query, k)
            except TimeoutError:
                return LocalSearch(report=ScopeReport(ok=False, ms=watch.ms, detail=TIMED_OUT), ms=watch.ms)
        hits = [_hit(rank, hit) for rank, hit in enumerate(answer.hits, start=1)]
        report = ScopeReport(ok=answer.complete, documents=answer.files, ms=watch.ms, detail=answer.detail)
        return LocalSearch(hits=hits, report=report, ms=watch.ms)

    def close(self) -> None:
        """Let go of the engine's thread."""
        if self._engine is not None:
            self._engine.close()


def _hit(rank: int, hit: GrepHit) -> Hit:
    """Return a keyword match as a hit: it says that the words stand there, nothing more."""
    return Hit(
        rank=rank,
        doc_id=hit.file,
        chunk_id=f"{hit.file}#L{hit.line}",
        scope=Scope.LOCAL,
        title=None,
        uri=None,
        heading=None,
        text=hit.context,
        score=hit.score,
        scores=Scores(),
        match="keyword",
        metadata=msgspec.Raw(b"{}"),
    )
