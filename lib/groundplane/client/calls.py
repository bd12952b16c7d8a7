"""The core of the client: requests as values, and replies read into answers or errors. It does no I/O.

A `Call` knows how to be sent and what it brings back; `read_reply` and `error_without_reply` decide what a reply, or
the lack of one, means; `retry_delay` decides whether to ask again. Both shells do exactly what these functions say.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

import msgspec

from groundplane.client.errors import (
    ClientError,
    NotAuthorised,
    RequestRefused,
    RetrievalUnavailable,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.client.options import ClientOptions
from groundplane.retry_after import try_retry_after
from groundplane.wire.filters import Filter
from groundplane.wire.names import Reason
from groundplane.wire.public import (
    Basis,
    CorpusAnswer,
    DocumentAnswer,
    DocumentInput,
    DocumentList,
    EvidenceAnswer,
    EvidenceRequest,
    GroundAnswer,
    GroundRequest,
    IndexAnswer,
    IndexRequest,
    MemoAnswer,
    Problem,
    ReindexAnswer,
    ReindexRequest,
    WriteAnswer,
)

AnswerT = TypeVar("AnswerT")

_LASTING = frozenset({Reason.NO_CORPUS, Reason.NO_EMBEDDER, Reason.DIMENSION_MISMATCH, Reason.ZERO_VECTOR})
_MAX_QUOTED = 256


class Call(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """One request. `is_write` decides what a lost reply means and how long to wait for one."""

    method: str
    path: str
    answer_type: type[AnswerT]
    body: bytes | None = None
    is_write: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """How far a call has come. `attempt` counts from 0; `last_seconds` is what the last attempt took."""

    attempt: int
    last_seconds: float
    total_seconds: float


class GroundOptions(TypedDict, total=False):
    """What may be said about a question besides the question; the defaults are those of `GroundRequest`."""

    name: str
    fingerprint: str
    k: int
    filter: Filter | None
    min_position: str | None
    fresh: bool
    explain: bool


class EvidenceOptions(TypedDict, total=False):
    """What may be said about a search besides its query; the defaults are those of `EvidenceRequest`."""

    k: int
    filter: Filter | None
    min_position: str | None
    partial: Any  # "allow" or None
    explain: bool


def ground(query: str, options: GroundOptions) -> Call[GroundAnswer]:
    """Return the call that asks all tiers."""
    body = msgspec.json.encode(GroundRequest(query=query, **options))
    return Call(method="POST", path="/v1/ground", answer_type=GroundAnswer, body=body)


def evidence(query: str, options: EvidenceOptions) -> Call[EvidenceAnswer]:
    """Return the call that searches the corpora alone."""
    body = msgspec.json.encode(EvidenceRequest(query=query, **options))
    return Call(method="POST", path="/v1/evidence", answer_type=EvidenceAnswer, body=body)


def index(documents: Sequence[DocumentInput]) -> Call[IndexAnswer]:
    """Return the call that indexes one batch."""
    body = msgspec.json.encode(IndexRequest(documents=list(documents)))
    return Call(method="POST", path="/v1/documents", answer_type=IndexAnswer, body=body, is_write=True)


def documents(cursor: str | None, limit: int) -> Call[DocumentList]:
    """Return the call that lists one page of the caller's corpus."""
    query = f"?limit={limit}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
    return Call(method="GET", path=f"/v1/documents{query}", answer_type=DocumentList)


def document(doc_id: str) -> Call[DocumentAnswer]:
    """Return the call that fetches one document as it was indexed."""
    return Call(method="GET", path=f"/v1/documents/{_segment(doc_id)}", answer_type=DocumentAnswer)


def delete_document(doc_id: str) -> Call[WriteAnswer]:
    """Return the call that deletes exactly this document."""
    return Call(method="DELETE", path=f"/v1/documents/{_segment(doc_id)}", answer_type=WriteAnswer, is_write=True)


def put_memo(name: str, fingerprint: str, response: Any, basis: Basis | None) -> Call[WriteAnswer]:
    """Return the call that stores `response`, any JSON, under (name, fingerprint)."""
    body = msgspec.json.encode({"response": response, "basis": basis})  # a MemoInput, checked by the router
    path = _memo_path(name, fingerprint)
    return Call(method="PUT", path=path, answer_type=WriteAnswer, body=body, is_write=True)


def memo(name: str, fingerprint: str) -> Call[MemoAnswer]:
    """Return the call that fetches one memo."""
    return Call(method="GET", path=_memo_path(name, fingerprint), answer_type=MemoAnswer)


def delete_memo(name: str, fingerprint: str) -> Call[WriteAnswer]:
    """Return the call that deletes one memo."""
    return Call(method="DELETE", path=_memo_path(name, fingerprint), answer_type=WriteAnswer, is_write=True)


def corpus() -> Call[CorpusAnswer]:
    """Return the call that asks how the caller's corpus and the platform's are."""
    return Call(method="GET", path="/v1/corpus", answer_type=CorpusAnswer)


def reindex(cursor: str | None, *, abandon: bool = False) -> Call[ReindexAnswer]:
    """Return the call that re-embeds the caller's corpus for some seconds, or abandons it."""
    body = msgspec.json.encode(ReindexRequest(cursor=cursor, abandon=abandon))
    return Call(method="POST", path="/v1/corpus/reindex", answer_type=ReindexAnswer, body=body, is_write=True)


def request_headers(call: Call[Any], token: str) -> dict[str, str]:
    """Return the headers of `call`."""
    headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
    return headers if call.body is None else {**headers, "content-type": "application/json"}


def read_reply(call: Call[AnswerT], reply: Reply) -> AnswerT:
    """Return the answer that `reply` carries. Raises the ClientError that it stands for instead."""
    if not 200 <= reply.status < 300:
        raise _error_of(call, reply)
    try:
        return msgspec.json.decode(reply.body, type=call.answer_type)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        message = f"answer to {call.method} {_route(call)} cannot be read: {str(error)[:_MAX_QUOTED]}"
        raise _no_answer(call, f"{message}; is this address a Groundplane router?", reply.status) from error


def error_without_reply(call: Call[Any], problem: str, *, was_sent: bool) -> ClientError:
    """Return the error of a request that brought no reply; `was_sent` is false if it cannot have arrived."""
    if not was_sent:
        return ServiceUnreachable(f"the router cannot be reached: {problem}")
    return _no_answer(call, f"the router did not answer {call.method} {_route(call)}: {problem}", None)


def call_seconds(call: Call[Any], options: ClientOptions) -> float:
    """Return how long `call` may take, repetitions included."""
    return options.write_timeout_seconds if call.is_write else options.read_timeout_seconds


def retry_delay(call: Call[Any], reply: Reply, spent: Spent, options: ClientOptions) -> float | None:
    """Return how long to wait before `call` is sent again, None if it is not.

    Only reads are, on 429 and 503 that name a time within `max_wait_seconds`, never for a cause that lasts, and never
    where the next attempt would be cut off: the reason that this reply gives says more than a timeout.
    """
    if call.is_write or spent.attempt >= options.retries or reply.status not in {429, 503}:
        return None
    seconds = try_retry_after(reply.headers.get("retry-after", ""), most_seconds=options.max_wait_seconds)
    if seconds is None or spent.total_seconds + seconds + spent.last_seconds > call_seconds(call, options):
        return None
    problem = _problem_of(reply)
    return None if problem is not None and problem.reason in _LASTING else seconds


def _error_of(call: Call[Any], reply: Reply) -> ClientError:
    problem = _problem_of(reply)
    if problem is None:
        return _foreign_error(call, reply)
    text, code, status = problem.detail, problem.code, reply.status
    if status in {401, 403}:
        return NotAuthorised(text, code=code, status=status)
    if problem.reason is not None:
        return RetrievalUnavailable(
            text, reason=problem.reason, detail=problem.unavailable_detail, code=code, status=status
        )
    if code == WriteOutcomeUnknown.default_code:
        return WriteOutcomeUnknown(text, code=code, status=status)  # the text says what to do
    if status in {429, 503}:
        return ServiceUnreachable(text, code=code, status=status)
    if 400 <= status < 500:
        results = tuple(problem.results or ())
        return RequestRefused(text, code=code, status=status, field=problem.field, results=results)
    return _no_answer(call, text, status, code)


def _foreign_error(call: Call[Any], reply: Reply) -> ClientError:
    """Return the error of a reply that is no problem document: a proxy's, or another service's."""
    message = (
        f"HTTP {reply.status} to {call.method} {_route(call)} without a problem document: ask whoever runs the proxy"
    )
    if reply.status in {401, 403}:
        return NotAuthorised(message, status=reply.status)
    if reply.status >= 500 or reply.status == 408:
        return _no_answer(call, message, reply.status)
    if reply.status == 429 or reply.status < 400:
        return ServiceUnreachable(message, status=reply.status)
    return RequestRefused(message, status=reply.status)


def _no_answer(call: Call[Any], message: str, status: int | None, code: str | None = None) -> ClientError:
    if call.is_write:
        return WriteOutcomeUnknown(f"{message}; the write may have happened: repeat the call", status=status)
    return ServiceUnreachable(message, code=code, status=status)


def _problem_of(reply: Reply) -> Problem | None:
    try:
        return msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def _memo_path(name: str, fingerprint: str) -> str:
    return f"/v1/memos/{_segment(name)}/{_segment(fingerprint)}"


def _segment(text: str) -> str:
    """Return `text` as one path segment; `.` and `..` are encoded too, which no client or proxy then resolves."""
    return quote(text, safe="").replace(".", "%2E") if text in {".", ".."} else quote(text, safe="")


def _route(call: Call[Any]) -> str:
    """Return the part of the path that names no document."""
    return "/".join(call.path.partition("?")[0].split("/")[:3])
