"""Requests and answers of the router's public routes, as agents see them.

Decoding refuses unknown fields and everything out of bounds; `check_*` functions say the rules that a type cannot.
Nothing here names a tenant: it comes from the verified caller alone.
"""

from typing import Annotated, Any, Literal

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.filters import Filter, check_filter
from groundplane.wire.names import LARGEST_SEQUENCE, Reason, Scope

MAX_QUERY_CHARACTERS = 4_000
MAX_DOCUMENTS = 500
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_MEMO_BYTES = 256 * 1024
MAX_TEXT_CHARACTERS = 2 * 1024 * 1024
MAX_METADATA_BYTES = 16 * 1024
MAX_METADATA_DEPTH = 8
MAX_METADATA_VALUES = 512
RESERVED_METADATA_KEY = "tenant"

Query = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
HitCount = Annotated[int, msgspec.Meta(ge=1, le=50)]
DocumentId = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
MemoName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Position = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ScopeBasis(_Answer, frozen=True, kw_only=True):
    """What one corpus was when something was learnt from it: its incarnation and last document sequence.

    Memos are stored with it: a bound that is added here makes what was stored before unreadable, so bounds are for
    `ScopeBasisInput`.
    """

    incarnation: str
    sequence: int


class Basis(_Answer, frozen=True, kw_only=True):
    """What an answer rests on, one entry a scope; null where that scope is not declared or was not asked."""

    tenant: ScopeBasis | None = None
    platform: ScopeBasis | None = None


class ScopeBasisInput(ScopeBasis, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `ScopeBasis` that a caller sends."""

    incarnation: Annotated[str, msgspec.Meta(min_length=36, max_length=36)]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_SEQUENCE)]


class BasisInput(Basis, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `basis` of an answer, sent back with what was made of it."""

    tenant: ScopeBasisInput | None = None
    platform: ScopeBasisInput | None = None


class EvidenceRequest(_Request, frozen=True, kw_only=True):
    """Body of `POST /v1/evidence`: hybrid search alone, without memo and without grep."""

    query: Query
    k: HitCount = 5
    filter: Filter | None = None
    min_position: Position | None = None
    partial: Literal["allow"] | None = None
    explain: bool = False


class GroundRequest(_Request, frozen=True, kw_only=True):
    """Body of `POST /v1/ground`: memo, then hybrid, then grep, the first that answers wins.

    `name` and `fingerprint` go together and ask the memo; `fresh` refuses a memo whose basis has moved on.
    """

    query: Query
    name: MemoName | None = None
    fingerprint: MemoName | None = None
    k: HitCount = 5
    filter: Filter | None = None
    min_position: Position | None = None
    fresh: bool = False
    explain: bool = False


class DocumentInput(_Request, frozen=True, kw_only=True):
    """One document to be indexed; it replaces the one of the same id."""

    id: DocumentId
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)]
    title: Annotated[str, msgspec.Meta(max_length=1_024)] | None = None
    uri: Annotated[str, msgspec.Meta(max_length=2_048)] | None = None
    metadata: dict[Annotated[str, msgspec.Meta(min_length=1, max_length=128)], Any] = {}


class IndexRequest(_Request, frozen=True, kw_only=True):
    """Body of `POST /v1/documents`."""

    documents: Annotated[list[DocumentInput], msgspec.Meta(min_length=1, max_length=MAX_DOCUMENTS)]


class MemoInput(_Request, frozen=True, kw_only=True):
    """Body of `PUT /v1/memos/{name}/{fingerprint}`: any JSON of at most 256 KiB, and what it rests on."""

    response: msgspec.Raw
    basis: BasisInput | None = None


Outcome = Literal["indexed", "unchanged", "skipped", "dropped"]


class DocumentResult(_Answer, frozen=True, kw_only=True):
    """What became of one document; `reason` says why it was skipped or dropped."""

    id: str
    outcome: Outcome
    chunks: int = 0
    reason: str | None = None


class IndexAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `POST /v1/documents`: the position that holds the whole batch, and one result a document in order."""

    position: str
    results: list[DocumentResult]


class WriteAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of a delete or a memo write; `found` is false where there was nothing to delete."""

    position: str
    found: bool = True


class DocumentSummary(_Answer, frozen=True, kw_only=True):
    """One row of `GET /v1/documents`."""

    id: str
    title: str | None
    uri: str | None
    chunks: int
    sequence: int


class DocumentList(_Answer, frozen=True, kw_only=True):
    """Answer of `GET /v1/documents`, ordered by id; `cursor` is null on the last page."""

    documents: list[DocumentSummary]
    cursor: str | None


class DocumentAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `GET /v1/documents/{id}`: the document as it was indexed."""

    id: str
    text: str
    title: str | None
    uri: str | None
    metadata: msgspec.Raw
    chunks: int
    sequence: int


class Scores(_Answer, frozen=True, kw_only=True):
    """The parts of a hit's score. They compare only within one answer. Ranks are null outside the leg's candidates."""

    dense: float | None = None
    bm25: float | None = None
    dense_rank: int | None = None
    bm25_rank: int | None = None


class Explanation(_Answer, frozen=True, kw_only=True):
    """How a hit passed the floor and what it was ranked by."""

    dense_floor: float | None
    term_floor: float
    matched_terms: list[str]
    matched_idf_share: float
    fused: float


Match = Literal["semantic", "keyword", "both"]


class Hit(_Answer, frozen=True, kw_only=True):
    """One piece of evidence. `match` says what it establishes: `keyword` is only that the words stand there."""

    rank: int
    doc_id: str
    chunk_id: str
    scope: Scope
    title: str | None
    uri: str | None
    heading: str | None
    text: str
    score: float
    scores: Scores
    match: Match
    metadata: msgspec.Raw
    explain: Explanation | None = None


class ScopeReport(_Answer, frozen=True, kw_only=True):
    """How the search of one scope went. `detail` is an open code; the counts are null where it could not be asked.

    `age_seconds`: how long ago the corpus's shard last made sure with its store that it knows the newest state.
    """

    ok: bool
    documents: int | None = None
    sequence: int | None = None
    age_seconds: float | None = None
    ms: float = 0.0
    detail: str | None = None


class Searched(_Answer, frozen=True, kw_only=True):
    """One report a scope; null means the scope is not declared (or the engine does not exist), so nothing is missing."""

    tenant: ScopeReport | None = None
    platform: ScopeReport | None = None
    local: ScopeReport | None = None
    memo: ScopeReport | None = None


class MemoAnswer(_Answer, frozen=True, kw_only=True):
    """A stored response. `stale`: its basis has moved on; null: that could not be found out."""

    response: msgspec.Raw
    stale: bool | None
    basis: Basis


class Unavailability(_Answer, frozen=True, kw_only=True):
    """Why the corpora could not be searched."""

    reason: Reason
    detail: str | None = None


class Timing(_Answer, frozen=True, kw_only=True):
    """Milliseconds spent; null where the stage was not reached."""

    embed: float | None = None
    search: float | None = None
    grep: float | None = None
    total: float = 0.0


class EvidenceAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `POST /v1/evidence`. No hits means "searched, nothing to say"."""

    query_id: str
    semantic: bool
    hits: list[Hit]
    basis: Basis
    searched: Searched
    timing_ms: Timing


Status = Literal["grounded", "nothing", "degraded"]
Tier = Literal["memo", "hybrid", "grep", "none"]


class GroundAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `POST /v1/ground`; the truth table of status and tier is in docs/concepts.md.

    `semantic`: the corpora were searched by meaning for this answer. `unavailable` is null unless they could not be searched.
    """

    status: Status
    tier: Tier
    query_id: str
    semantic: bool
    hits: list[Hit]
    memo: MemoAnswer | None
    unavailable: Unavailability | None
    basis: Basis
    searched: Searched
    timing_ms: Timing


class CorpusReport(_Answer, frozen=True, kw_only=True):
    """State of one corpus as the router sees it. `age_seconds` as in `ScopeReport`: it grows while the store is away."""

    scope: Scope
    ready: bool
    detail: str | None = None
    incarnation: str | None = None
    documents: int | None = None
    chunks: int | None = None
    sequence: int | None = None
    age_seconds: float | None = None
    semantic: bool | None = None
    reindexed_documents: int | None = None
    """How many documents are re-embedded; null unless that is under way."""


class CorpusAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `GET /v1/corpus`: the caller's own corpus and the platform's (null where none is declared)."""

    corpus: CorpusReport
    platform: CorpusReport | None
    semantic_active: bool
    access: list[str]


class ReindexRequest(_Request, frozen=True, kw_only=True):
    """Body of `POST /v1/corpus/reindex`: go on where `cursor` says (null: from the beginning), or `abandon` it."""

    cursor: Annotated[str, msgspec.Meta(max_length=4_096)] | None = None
    abandon: bool = False


ReindexState = Literal["running", "finished", "incomplete", "abandoned"]


class ReindexAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `POST /v1/corpus/reindex`, after some seconds of work; `running`: call again with `cursor`.

    `documents` of `total_documents` are re-embedded, in `chunks`. `failed` are those of this call that cannot be: with any,
    the corpus stays as it was (`incomplete`) until they are deleted.
    """

    state: ReindexState
    documents: int
    total_documents: int
    chunks: int
    cursor: str | None = None
    failed: list[DocumentResult] = []


class ProbeAnswer(_Answer, frozen=True, kw_only=True):
    """Answer of `/healthz` and `/readyz`; `waits_for` is null unless it is not ready."""

    status: Literal["alive", "ready", "waiting"]
    waits_for: str | None = None


class Problem(_Answer, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457 problem document (`application/problem+json`). `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    reason: Reason | None = None
    unavailable_detail: str | None = None
    searched: Searched | None = None
    results: list[DocumentResult] | None = None


def check_evidence_request(request: EvidenceRequest | GroundRequest) -> None:
    """Raise InvalidInput for what the types cannot say: a blank query, an oversized filter, half a memo name."""
    if not request.query.strip():
        raise InvalidInput("query is blank: expected a question", code="empty_query", field="query", status=422)
    check_filter(request.filter)
    if isinstance(request, GroundRequest) and (request.name is None) != (request.fingerprint is None):
        missing = "fingerprint" if request.fingerprint is None else "name"
        raise InvalidInput(f"{missing} is missing: name and fingerprint go together", field=missing)
    if isinstance(request, GroundRequest):
        check_memo_name(request.name or "memo", "name")
        check_memo_name(request.fingerprint or "memo", "fingerprint")


def check_memo_name(text: str, field: str) -> str:
    """Return `text` if it can be half of a memo's name: an identifier without a slash, since both halves stand in one path."""
    check_identifier(text, field, max_characters=256)
    if "/" in text:
        raise InvalidInput(f"{field} holds a slash: expected text without one", field=field)
    return text


def check_identifier(text: str, field: str, max_characters: int = 512) -> str:
    """Return `text` if it can name a document or memo: not empty, bounded, without control characters. Raises InvalidInput."""
    if not 1 <= len(text) <= max_characters:
        raise InvalidInput(f"{field} has {len(text)} characters: expected 1 to {max_characters}", field=field)
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise InvalidInput(f"{field} holds a control character: expected printable text", field=field)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(f"{field} holds a lone surrogate: expected text that UTF-8 can carry", field=field)
    return text
