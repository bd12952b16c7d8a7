"""From a question to what a shard is asked with: its terms and its vector."""

import asyncio
from typing import Final

import msgspec

from groundplane.analysis import Analyser
from groundplane.errors import Unavailable
from groundplane.wire.filters import Filter
from groundplane.wire.internal import MAX_QUERY_TERMS
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.embedders import EmbeddingService
from groundplane_router.embedders.fit import UNAVAILABLE_CODE
from groundplane_router.semantic import CONCLUSIVE_DETAILS, SemanticMonitor
from groundplane_router.vector_space import encode_vector

EMBED_TIMED_OUT: Final = "embed_timeout"
SECONDS_WHILE_INACTIVE: Final = 0.5
"""How long a query waits for an embedder that is known not to answer: enough to notice that it is back."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the corpora."""

    query: str
    k: int
    filter: Filter | None = None
    min_sequence: int = 0
    """Sequence of the caller's own corpus that the answer must include."""

    allow_partial: bool = False
    explain: bool = False


class EncodedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query as shards take it."""

    analyser: str
    terms: tuple[str, ...]
    vector: bytes
    """Little-endian float32, length 1."""


class QueryEncoder:
    """Analyses and embeds queries, and tells the monitor when embedding fails."""

    def __init__(self, service: EmbeddingService, monitor: SemanticMonitor, analyser: Analyser) -> None:
        self._service = service
        self._monitor = monitor
        self._analyser = analyser

    async def encode(self, grants: Grants, query: str, deadline: Deadline) -> EncodedQuery:
        """Return `query` with its vector. Raises Unavailable: no_embedder, embed_error, dimension_mismatch, zero_vector."""
        self._check_usable()
        seconds = deadline.remaining_seconds
        if self._monitor.state.status == "inactive":
            seconds = min(seconds, SECONDS_WHILE_INACTIVE)
        try:
            async with asyncio.timeout(seconds):
                vector = await self._service.embed_query(query, scope=grants.own.incarnation)
        except TimeoutError as error:
            failure = _unavailable("embedder did not answer in time: try again", "embed_error", EMBED_TIMED_OUT)
            self._monitor.report_failure(failure)
            raise failure from error
        except Unavailable as failure:
            self._monitor.report_failure(failure)
            raise
        terms = self._analyser.query_terms(query, MAX_QUERY_TERMS)
        return EncodedQuery(analyser=self._analyser.id, terms=terms, vector=encode_vector(vector))

    def _check_usable(self) -> None:
        """Refuse an embedder that answers, but with vectors that a probe found to be noise."""
        state = self._monitor.state
        if state.status == "inactive" and state.detail in CONCLUSIVE_DETAILS:
            raise _unavailable(
                "embedder answers with vectors that cannot be used: see grounding_semantic_active and the router's log",
                state.reason or "embed_error",
                state.detail,
            )


def _unavailable(message: str, reason: str, detail: str | None) -> Unavailable:
    return Unavailable(message, code=UNAVAILABLE_CODE, reason=reason, detail=detail)
