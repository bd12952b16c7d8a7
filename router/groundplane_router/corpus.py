"""What `GET /v1/corpus` tells a caller of its own corpus and of the platform's."""

import asyncio

from groundplane.errors import Unavailable
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.internal import ShardStatus
from groundplane.wire.public import CorpusAnswer, CorpusReport
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants, scope_of
from groundplane_router.semantic import SemanticMonitor
from groundplane_router.shards import Shards
from groundplane_router.vector_space import VectorSpaces, checked_space


class CorpusReports:
    """Asks both shards for their state."""

    def __init__(self, shards: Shards, spaces: VectorSpaces, monitor: SemanticMonitor) -> None:
        self._shards = shards
        self._spaces = spaces
        self._monitor = monitor

    async def report(self, grants: Grants, deadline: Deadline) -> CorpusAnswer:
        """Return the state of what the caller may read; a shard that does not answer is not ready, with its detail."""
        corpora = [corpus for corpus in (grants.own, grants.platform) if corpus is not None]
        own, *platform = await asyncio.gather(*(self._report(corpus, deadline) for corpus in corpora))
        return CorpusAnswer(
            corpus=own,
            platform=platform[0] if platform else None,
            semantic_active=self._monitor.state.is_active,
            access=sorted(grants.access),
        )

    async def _report(self, corpus: CorpusEntry, deadline: Deadline) -> CorpusReport:
        scope = scope_of(corpus)
        try:
            status = await self._shards.status(corpus, deadline)
        except Unavailable as failure:
            return CorpusReport(scope=scope, ready=False, detail=failure.detail, incarnation=corpus.incarnation)
        semantic, unfit = await self._is_semantic(status)
        return CorpusReport(
            scope=scope,
            ready=status.ready,
            detail=status.detail or unfit,
            incarnation=corpus.incarnation,
            documents=status.documents,
            chunks=status.chunks,
            sequence=status.sequence,
            age_seconds=status.age_seconds,
            semantic=semantic,
            reindexed_documents=status.reindex.documents if status.reindex is not None else None,
        )

    async def _is_semantic(self, status: ShardStatus) -> tuple[bool | None, str | None]:
        """Return whether queries to this corpus can be answered by meaning, and the detail if it is the corpus that cannot.

        None while nothing was written to it.
        """
        if status.embedding is None:
            return None, None
        try:
            own = await self._spaces.own()
        except Unavailable:
            return False, None
        try:
            checked_space(status, own)
        except Unavailable as failure:
            return False, failure.detail
        return self._monitor.state.is_active, None
