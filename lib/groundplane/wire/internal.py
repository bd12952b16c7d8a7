"""Messages between the router (or operator) and a shard: msgpack bodies, only with a capability.

Every answer carries incarnation, epoch and sequence: the router refuses a foreign incarnation and an epoch below the
highest it has seen. Vectors travel as little-endian float32 bytes; a chunk's fields are encoded once, when it is loaded.
"""

from typing import Annotated, Literal

import msgspec

from groundplane.wire.filters import Filter
from groundplane.wire.public import Basis

MAX_QUERY_TERMS = 128
MAX_WINDOW = 1_000
MAX_WRITE_CHUNKS = 4_000
MAX_VECTOR_BYTES = 4 * 8_192
MAX_WRITE_BYTES = 64 * 1024 * 1024

Vector = Annotated[bytes, msgspec.Meta(max_length=MAX_VECTOR_BYTES)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class EmbeddingIdentity(_Message, frozen=True, kw_only=True):
    """What made a corpus's vectors; fixed in MANIFEST by the first write.

    `id` is 32 hexadecimal digits. `fit` says whether longer vectors were cut. `probes` are the vectors of three fixed
    texts: the same model gives them again within cosine 0.98, another one of equal size does not.
    """

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    format: Annotated[str, msgspec.Meta(max_length=64)]
    templates_digest: Annotated[str, msgspec.Meta(max_length=64)]
    model: Annotated[str, msgspec.Meta(max_length=256)]
    dimension: Annotated[int, msgspec.Meta(ge=1, le=8_192)]
    fit: bool
    probes: Annotated[tuple[Vector, ...], msgspec.Meta(max_length=3)]


class SearchRequest(_Message, frozen=True, kw_only=True):
    """`POST /search`. Without a vector the dense leg is not searched; `terms` are unique and analysed by `analyser`.

    A corpus that nothing was written to takes any `embedding_id`; another one only its own (`embedding_mismatch`).
    """

    incarnation: str
    analyser: str
    terms: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_QUERY_TERMS)]
    window: Annotated[int, msgspec.Meta(ge=1, le=MAX_WINDOW)]
    vector: Vector | None = None
    embedding_id: str | None = None
    filter: Filter | None = None
    min_sequence: int = 0
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 5_000


class ChunkFields(msgspec.Struct, frozen=True, array_like=True):
    """What a hit shows of its chunk; encoded once and carried as `msgspec.Raw`. `metadata` is JSON."""

    doc_id: str
    ordinal: int
    text: str
    title: str | None
    uri: str | None
    heading: str | None
    metadata: bytes


class Candidate(msgspec.Struct, frozen=True, array_like=True):
    """One chunk that a leg brought up, with both scores complete.

    `cosine` is null where the search had no vector. `term_frequencies` follow the request's terms; `length` is the
    chunk's number of terms. `chunk` decodes as `ChunkFields`.
    """

    cosine: float | None
    term_frequencies: tuple[int, ...]
    length: int
    chunk: msgspec.Raw


class Statistics(msgspec.Struct, frozen=True, array_like=True):
    """Counts that BM25 needs, exact at the answer's sequence; `document_frequencies` count chunks, per request term."""

    documents: int
    chunks: int
    total_tokens: int
    document_frequencies: tuple[int, ...]


class _Versioned(msgspec.Struct, frozen=True, kw_only=True):
    incarnation: str
    epoch: int
    sequence: int


class _Aged(_Versioned, frozen=True, kw_only=True):
    """`age_seconds`: how long ago the shard last made sure with its store that it knows the newest state.

    A few seconds at most while the store answers, whether anything is written or not; it grows while the store is away.
    """

    age_seconds: float


class SearchAnswer(_Aged, frozen=True, kw_only=True):
    """Answer of `POST /search`. `document_sequence` is that of the last record that changed a document."""

    document_sequence: int
    statistics: Statistics
    candidates: list[Candidate]


class ChunkInput(msgspec.Struct, frozen=True, array_like=True):
    """One chunk of a document: character offsets [start, end) into its text, heading path, vector."""

    start: int
    end: int
    heading: str | None
    vector: Vector


class ReplaceDocument(_Message, frozen=True, kw_only=True, tag_field="kind", tag="replace"):
    """Make `doc_id` consist of exactly these chunks. `metadata` is a JSON object as bytes.

    `made_from` re-embeds: the document goes into the generation that is being made, and only if the version that it was
    made from, the one that record `made_from` wrote, still counts.
    """

    doc_id: str
    text: str
    title: str | None
    uri: str | None
    metadata: bytes
    chunker: str
    chunks: Annotated[tuple[ChunkInput, ...], msgspec.Meta(min_length=1, max_length=MAX_WRITE_CHUNKS)]
    made_from: int | None = None


class DeleteDocument(_Message, frozen=True, kw_only=True, tag_field="kind", tag="delete"):
    """Remove `doc_id`, and nothing but it."""

    doc_id: str


class PutMemo(_Message, frozen=True, kw_only=True, tag_field="kind", tag="put_memo"):
    """Store a response under (name, fingerprint), and the basis it rests on: the router fills it in where the caller did not."""

    name: str
    fingerprint: str
    response: bytes
    basis: Basis


class DeleteMemo(_Message, frozen=True, kw_only=True, tag_field="kind", tag="delete_memo"):
    """Remove one memo."""

    name: str
    fingerprint: str


class TakeReindexStep(_Message, frozen=True, kw_only=True, tag_field="kind", tag="reindex"):
    """Begin, finish or abandon giving the corpus the request's embedding; the only operation of its request."""

    step: Literal["begin", "switch", "abandon"]


Operation = ReplaceDocument | DeleteDocument | PutMemo | DeleteMemo | TakeReindexStep


class WriteRequest(_Message, frozen=True, kw_only=True):
    """`POST /write`: all of it in one log record, or none. `embedding` is sent until the shard knows its id."""

    incarnation: str
    analyser: str
    operations: Annotated[tuple[Operation, ...], msgspec.Meta(min_length=1, max_length=500)]
    embedding_id: str | None = None
    embedding: EmbeddingIdentity | None = None


class OperationResult(msgspec.Struct, frozen=True, array_like=True):
    """`changed` is false where the stored state already was as asked (or there was nothing to delete)."""

    changed: bool
    chunks: int


class WriteResult(_Versioned, frozen=True, kw_only=True):
    """Answer of `POST /write`; `sequence` holds the whole request."""

    results: tuple[OperationResult, ...]


class DocumentRow(msgspec.Struct, frozen=True, array_like=True):
    """One document of a listing."""

    doc_id: str
    title: str | None
    uri: str | None
    chunks: int
    sequence: int


class DocumentPage(_Versioned, frozen=True, kw_only=True):
    """Answer of `GET /documents`, by doc_id; `more` says that another page follows."""

    documents: list[DocumentRow]
    more: bool


class KnownRequest(_Message, frozen=True, kw_only=True):
    """`POST /known`: ids of documents, each with the digest of its content (`wire.content`)."""

    incarnation: str
    documents: Annotated[tuple[tuple[str, bytes], ...], msgspec.Meta(max_length=500)]


class KnownAnswer(_Versioned, frozen=True, kw_only=True):
    """Answer of `POST /known`: for each document the chunks it has if exactly this content is stored and durable, else null."""

    chunks: tuple[int | None, ...]


class StoredDocument(_Versioned, frozen=True, kw_only=True):
    """Answer of `GET /document`: the text put together again from its chunks; null where there is none."""

    document: DocumentRow | None
    text: str
    metadata: bytes


class PendingDocument(msgspec.Struct, frozen=True, array_like=True):
    """A document that is still to be re-embedded, as record `sequence` wrote it. `metadata` is JSON."""

    doc_id: str
    text: str
    title: str | None
    uri: str | None
    metadata: bytes
    sequence: int


class PendingPage(_Versioned, frozen=True, kw_only=True):
    """Answer of `GET /pending`, by doc_id; the next page begins after `after`, null: there is none."""

    documents: list[PendingDocument]
    after: str | None


class StoredMemo(_Versioned, frozen=True, kw_only=True):
    """Answer of `GET /memo`; `response` is null where there is none. `document_sequence` is the corpus's now."""

    document_sequence: int
    response: bytes | None
    basis: Basis | None


class ReindexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A re-embedding under way: into what, and what is done of it."""

    embedding: EmbeddingIdentity
    documents: int
    chunks: int


class ShardStatus(_Aged, frozen=True, kw_only=True):
    """Answer of `GET /status`."""

    corpus_key: str
    ready: bool
    detail: str | None
    documents: int
    chunks: int
    document_sequence: int
    analyser: str
    embedding: EmbeddingIdentity | None
    engine: str
    snapshot_sequence: int | None
    snapshot_time: float | None
    key_ids: list[str]
    generation: int = 0
    reindex: ReindexStatus | None = None


class ShardProblem(_Message, frozen=True, kw_only=True):
    """What a shard answers instead: `code` is stable, `kind` one of the five error kinds.

    `kind` is `invalid_input`, `unavailable`, `outcome_unknown`, `superseded`, `corrupt_data` or `denied`; `bug` for the rest.
    """

    kind: str
    code: str
    message: str
    field: str | None = None
