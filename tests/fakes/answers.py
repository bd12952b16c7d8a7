"""Answers of the router for tests of the client and the command line."""

from typing import Any

import msgspec

from groundplane.wire.names import Scope
from groundplane.wire.public import (
    Basis,
    EvidenceAnswer,
    GroundAnswer,
    Hit,
    ScopeReport,
    Scores,
    Searched,
    Timing,
)


def hit(rank: int = 1, **changes: Any) -> Hit:
    """Return one hit of the tenant's corpus."""
    fields: dict[str, Any] = {
        "rank": rank, "doc_id": f"doc-{rank}", "chunk_id": f"doc-{rank}#0", "scope": Scope.TENANT, "title": "Refunds",
        "uri": None, "heading": None, "text": "A manager may approve refunds up to 2,000.", "score": 0.83,
        "scores": Scores(dense=0.71, bm25=9.4, dense_rank=1, bm25_rank=3), "match": "both", "metadata": msgspec.Raw(b"{}"),
    }  # fmt: skip
    return Hit(**{**fields, **changes})


def ground_answer(**changes: Any) -> GroundAnswer:
    """Return a grounded answer of the hybrid tier with one hit."""
    searched = Searched(tenant=ScopeReport(ok=True, documents=3), platform=ScopeReport(ok=True, documents=5))
    fields: dict[str, Any] = {
        "status": "grounded", "tier": "hybrid", "query_id": "q1", "semantic": True, "hits": [hit()], "memo": None,
        "unavailable": None, "basis": Basis(), "searched": searched, "timing_ms": Timing(embed=3.0, search=5.0, total=9.0),
    }  # fmt: skip
    return GroundAnswer(**{**fields, **changes})


def evidence_answer(**changes: Any) -> EvidenceAnswer:
    """Return the evidence that the same search gives."""
    fields: dict[str, Any] = {
        "query_id": "q1", "semantic": True, "hits": [hit()], "basis": Basis(), "searched": Searched(), "timing_ms": Timing(),
    }  # fmt: skip
    return EvidenceAnswer(**{**fields, **changes})
