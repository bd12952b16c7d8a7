"""The public operations: the one list that the OpenAPI document is generated from and the routes are checked against."""

from typing import Any, Final, Literal

import msgspec

from groundplane.wire import public

Method = Literal["GET", "POST", "PUT", "DELETE"]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A path or query parameter."""

    name: str
    place: Literal["path", "query"]
    text: str
    schema: dict[str, Any]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. `answer` None: not JSON of ours; `problems` are the statuses of its failures."""

    method: Method
    path: str
    id: str
    summary: str
    text: str = ""
    tag: str
    body: type | None = None
    answer: type | None = None
    answer_media_type: str = "application/json"
    problems: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    is_open: bool = False
    """Whether it needs no token."""


_ID: Final = Parameter(
    name="id",
    place="path",
    text="The document's id, percent-encoded; slashes in it may stand as they are.",
    schema={"type": "string", "minLength": 1, "maxLength": 512},
)
_NAME: Final = Parameter(
    name="name",
    place="path",
    text="The memo's name, without a slash.",
    schema={"type": "string", "minLength": 1, "maxLength": 256},
)
_FINGERPRINT: Final = Parameter(
    name="fingerprint",
    place="path",
    text="The memo's fingerprint, without a slash.",
    schema={"type": "string", "minLength": 1, "maxLength": 256},
)
_CURSOR: Final = Parameter(
    name="cursor",
    place="query",
    text="Where the last page ended; absent: the beginning.",
    schema={"type": "string", "maxLength": 4_096},
)
_LIMIT: Final = Parameter(
    name="limit",
    place="query",
    text="Documents a page.",
    schema={"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
)

_READ: Final = (400, 401, 403, 503)
_QUESTION: Final = (400, 401, 403, 408, 409, 413, 415, 422, 503)
_WRITE: Final = (400, 401, 403, 503)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/ground",
        id="ground",
        tag="questions",
        summary="Ground a question: memo, then hybrid search, then keyword search, the first that answers wins",
        text="Always says what was searched. `degraded` means that the corpora could not be searched; `nothing` that they "
        "were, and say nothing. A score compares only within one answer; a `keyword` hit establishes only that the words stand there.",
        body=public.GroundRequest,
        answer=public.GroundAnswer,
        problems=_QUESTION,
    ),
    Operation(
        method="POST",
        path="/v1/evidence",
        id="evidence",
        tag="questions",
        summary="Search the caller's corpus and the platform's by meaning and by words",
        text="200 without hits means \"searched, nothing to say\". A search that could not be done is 503 with a `reason`.",
        body=public.EvidenceRequest,
        answer=public.EvidenceAnswer,
        problems=_QUESTION,
    ),
    Operation(
        method="POST",
        path="/v1/documents",
        id="indexDocuments",
        tag="documents",
        summary="Index documents; each replaces the one of its id",
        text="Repeating a call is safe. 422 with `results` where the embedder's vectors have the wrong size: one fault of "
        "the configuration, every document dropped.",
        body=public.IndexRequest,
        answer=public.IndexAnswer,
        problems=(*_WRITE[:3], 408, 413, 415, 422, 503),
    ),
    Operation(
        method="GET",
        path="/v1/documents",
        id="listDocuments",
        tag="documents",
        summary="List the documents of the caller's corpus by id",
        answer=public.DocumentList,
        problems=_READ,
        parameters=(_CURSOR, _LIMIT),
    ),
    Operation(
        method="GET",
        path="/v1/documents/{id}",
        id="getDocument",
        tag="documents",
        summary="Get one document as it was indexed",
        answer=public.DocumentAnswer,
        problems=(400, 401, 403, 404, 503),
        parameters=(_ID,),
    ),
    Operation(
        method="DELETE",
        path="/v1/documents/{id}",
        id="deleteDocument",
        tag="documents",
        summary="Delete exactly this document",
        answer=public.WriteAnswer,
        problems=_WRITE,
        parameters=(_ID,),
    ),
    Operation(
        method="PUT",
        path="/v1/memos/{name}/{fingerprint}",
        id="putMemo",
        tag="memos",
        summary="Store an answer under an exact name and fingerprint",
        body=public.MemoInput,
        answer=public.WriteAnswer,
        problems=(400, 401, 403, 408, 413, 415, 503),
        parameters=(_NAME, _FINGERPRINT),
    ),
    Operation(
        method="GET",
        path="/v1/memos/{name}/{fingerprint}",
        id="getMemo",
        tag="memos",
        summary="Get a stored answer, and whether its basis has moved on",
        answer=public.MemoAnswer,
        problems=(400, 401, 403, 404, 503),
        parameters=(_NAME, _FINGERPRINT),
    ),
    Operation(
        method="DELETE",
        path="/v1/memos/{name}/{fingerprint}",
        id="deleteMemo",
        tag="memos",
        summary="Delete a stored answer",
        answer=public.WriteAnswer,
        problems=_WRITE,
        parameters=(_NAME, _FINGERPRINT),
    ),
    Operation(
        method="GET",
        path="/v1/corpus",
        id="getCorpus",
        tag="corpus",
        summary="Get the state of the caller's corpus and of the platform's",
        answer=public.CorpusAnswer,
        problems=_READ,
    ),
    Operation(
        method="POST",
        path="/v1/corpus/reindex",
        id="reindexCorpus",
        tag="corpus",
        summary="Re-embed the caller's corpus with today's embedder, some seconds a call",
        text="Call again with the answer's `cursor` until `state` is not `running`; it may be stopped and begun again at any "
        "time. Until `finished` the corpus answers by words alone and takes no documents; deletes and memos it takes.",
        body=public.ReindexRequest,
        answer=public.ReindexAnswer,
        problems=(*_WRITE[:3], 408, 413, 415, 503),
    ),
    Operation(
        method="GET", path="/healthz", id="getHealth", tag="process", summary="Whether the process lives",
        answer=public.ProbeAnswer, is_open=True,
    ),
    Operation(
        method="GET", path="/readyz", id="getReadiness", tag="process", summary="Whether it may be sent requests",
        text="503 has the same body, and says what is waited for.", answer=public.ProbeAnswer, is_open=True,
    ),
    Operation(
        method="GET", path="/metrics", id="getMetrics", tag="process", summary="Metrics in Prometheus' text format",
        answer_media_type="text/plain", is_open=True,
    ),
)  # fmt: skip
