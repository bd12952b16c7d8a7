"""The client of the shards: one method a route, and every failure as one of the five kinds.

What a caller may rely on: an answer is of the incarnation that was asked, of an epoch not below the highest seen, whole and
decoded; anything else raises. `Unavailable.reason` is `no_corpus` where the directory already says that the corpus cannot be
searched, else `search_failed`; `detail` is the shard's own code or one of the `*` codes below. Reads are repeated once when the
connection failed (a GET once more by aiohttp itself); writes never: once sent, a lost answer is `OutcomeUnknown`, for the caller to repeat the call as it is.
"""

from collections.abc import Mapping
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec

from groundplane.errors import InvalidInput, OutcomeUnknown, Unavailable
from groundplane.process.clock import Clock
from groundplane.retry_after import try_retry_after
from groundplane.tokens import Right
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.internal import (
    DocumentPage,
    KnownAnswer,
    KnownRequest,
    PendingPage,
    SearchAnswer,
    SearchRequest,
    ShardProblem,
    ShardStatus,
    StoredDocument,
    StoredMemo,
    WriteRequest,
    WriteResult,
)
from groundplane_router.capabilities import Capabilities
from groundplane_router.deadline import Deadline
from groundplane_router.directory import READY_STATE
from groundplane_router.embedders.fit import UNAVAILABLE_CODE
from groundplane_router.health import ShardHealth

MEDIA_TYPE: Final = "application/msgpack"
CONNECT_SECONDS: Final = 1.0
LONGEST_CALL_SECONDS: Final = 30.0
"""No single call takes longer, however much time a batch of documents has."""

CONNECTIONS_PER_SHARD: Final = 64
KEEP_ALIVE_SECONDS: Final = 15.0
"""Well below the shard's own 60 s, so that a connection is hardly ever reused while the shard closes it."""

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
MAX_RETRY_AFTER_SECONDS: Final = 9_999
"""Nobody is asked to wait for longer."""


UNREACHABLE: Final = "shard_unreachable"
TIMED_OUT: Final = "shard_timeout"
BAD_ANSWER: Final = "shard_bad_answer"
FOREIGN_INCARNATION: Final = "shard_foreign_incarnation"
SUPERSEDED_EPOCH: Final = "shard_superseded_epoch"
SHARD_ERROR: Final = "shard_error"
SHARD_CODES: Final = frozenset(
    {
        "analyser_mismatch",
        "capability_denied",
        "dimension_mismatch",
        "disk_full",
        "embedding_mismatch",
        "embedding_unknown",
        "not_ready",
        "outcome_unknown",
        "overloaded",
        "reindex_conflict",
        "reindex_incomplete",
        "reindexing",
        "sequence_not_reached",
        "store_denied",
        "store_unavailable",
        "superseded",
        "wrong_incarnation",
    }
)
"""Codes of `ShardProblem` that are passed on as `detail`; any other becomes `shard_error`."""

NOT_DONE_KINDS: Final = frozenset({"unavailable", "invalid_input", "denied"})
"""Kinds of `ShardProblem` after which a write certainly did nothing; after any other its outcome is unknown."""

UNWELL_CODES: Final = frozenset({"capability_denied", "not_ready", "superseded", "wrong_incarnation", SHARD_ERROR})
"""Codes of a shard that serves nobody; with the others it is up, and only this request cannot be served."""

AnswerT = TypeVar(
    "AnswerT",
    SearchAnswer,
    WriteResult,
    DocumentPage,
    KnownAnswer,
    PendingPage,
    StoredDocument,
    StoredMemo,
    ShardStatus,
)


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a shard."""

    method: str
    path: str
    right: Right
    query: Mapping[str, str] = {}
    body: bytes | None = None


class _Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    retry_after_seconds: int | None


class Shards:
    """Talks to every shard of the installation over one pool of connections. An asynchronous context manager."""

    def __init__(self, capabilities: Capabilities, health: ShardHealth, clock: Clock) -> None:
        self._capabilities = capabilities
        self._health = health
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=0, limit_per_host=CONNECTIONS_PER_SHARD, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=5
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, raise_for_status=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def search(self, corpus: CorpusEntry, request: SearchRequest, deadline: Deadline) -> SearchAnswer:
        """Return the candidates of one corpus. Raises Unavailable, or InvalidInput for a filter the shard refuses."""
        call = _Call(method="POST", path="/search", right="read", body=msgspec.msgpack.encode(request))
        return await self._read(corpus, call, SearchAnswer, deadline)

    async def documents(self, corpus: CorpusEntry, after: str, limit: int, deadline: Deadline) -> DocumentPage:
        """Return the documents whose id comes after `after`, at most `limit` of them. Raises Unavailable."""
        call = _Call(method="GET", path="/documents", right="read", query={"after": after, "limit": str(limit)})
        page = await self._read(corpus, call, DocumentPage, deadline)
        if page.more and not page.documents:  # a listing that went on from there would look complete
            raise _bad_answer(corpus, call, BAD_ANSWER)
        return page

    async def document(self, corpus: CorpusEntry, doc_id: str, deadline: Deadline) -> StoredDocument:
        """Return one document, its row null where there is none. Raises Unavailable."""
        call = _Call(method="GET", path="/document", right="read", query={"id": doc_id})
        return await self._read(corpus, call, StoredDocument, deadline)

    async def known(self, corpus: CorpusEntry, request: KnownRequest, deadline: Deadline) -> KnownAnswer:
        """Return which documents are stored just so. Raises Unavailable."""
        call = _Call(method="POST", path="/known", right="read", body=msgspec.msgpack.encode(request))
        answer = await self._read(corpus, call, KnownAnswer, deadline)
        if len(answer.chunks) != len(request.documents):
            raise _bad_answer(corpus, call, BAD_ANSWER)
        return answer

    async def pending(self, corpus: CorpusEntry, after: str, chunker: str, deadline: Deadline) -> PendingPage:
        """Return documents with an id above `after` that are still to be re-embedded. Raises Unavailable."""
        call = _Call(method="GET", path="/pending", right="read", query={"after": after, "chunker": chunker})
        return await self._read(corpus, call, PendingPage, deadline)

    async def memo(self, corpus: CorpusEntry, name: str, fingerprint: str, deadline: Deadline) -> StoredMemo:
        """Return one memo, its response null where there is none. Raises Unavailable."""
        call = _Call(method="GET", path="/memo", right="read", query={"name": name, "fingerprint": fingerprint})
        return await self._read(corpus, call, StoredMemo, deadline)

    async def status(self, corpus: CorpusEntry, deadline: Deadline) -> ShardStatus:
        """Return what the shard says of itself. Raises Unavailable."""
        return await self._read(corpus, _Call(method="GET", path="/status", right="read"), ShardStatus, deadline)

    async def write(self, corpus: CorpusEntry, request: WriteRequest, deadline: Deadline) -> WriteResult:
        """Return what became of the operations, all durable. Raises Unavailable (nothing happened), OutcomeUnknown, InvalidInput."""
        call = _Call(method="POST", path="/write", right="write", body=msgspec.msgpack.encode(request))
        try:
            result = await self._exchange(corpus, call, WriteResult, deadline)
        except aiohttp.ClientConnectorError as error:
            raise _failed(corpus, UNREACHABLE) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise _failed(corpus, TIMED_OUT) from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise _outcome_unknown() from error
        if len(result.results) != len(request.operations):
            raise _outcome_unknown()
        return result

    async def _read(self, corpus: CorpusEntry, call: _Call, kind: type[AnswerT], deadline: Deadline) -> AnswerT:
        try:
            try:
                return await self._exchange(corpus, call, kind, deadline)
            except aiohttp.ClientConnectionError as error:
                if isinstance(error, TimeoutError):
                    raise
                return await self._exchange(corpus, call, kind, deadline)
        except TimeoutError as error:
            raise _failed(corpus, TIMED_OUT) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _failed(corpus, UNREACHABLE) from error

    async def _exchange(self, corpus: CorpusEntry, call: _Call, kind: type[AnswerT], deadline: Deadline) -> AnswerT:
        """Send once and check the answer; the caller says what a failed connection means."""
        endpoint = _endpoint_of(corpus)
        try:
            reply = await self._send(endpoint, corpus, call, deadline)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self._health.failed(corpus)
            raise
        if reply.status != 200:
            self._refused(corpus, call, reply)
        answer = _decode(corpus, call, reply.body, kind)
        self._check_version(corpus, call, answer)
        self._health.answered(corpus, answer.epoch)
        return answer

    async def _send(self, endpoint: str, corpus: CorpusEntry, call: _Call, deadline: Deadline) -> _Reply:
        if self._session is None:
            raise Unavailable("the router is not started yet", reason="search_failed", detail="starting")
        seconds = min(deadline.remaining_seconds, LONGEST_CALL_SECONDS)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))
        headers = {"Authorization": self._capabilities.header(corpus, call.right), "Content-Type": MEDIA_TYPE}
        async with self._session.request(
            call.method,
            endpoint + call.path,
            params=call.query or None,
            data=call.body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            body = await _read_bounded(response)
            return _Reply(
                response.status,
                body,
                try_retry_after(response.headers.get("Retry-After", ""), most_seconds=MAX_RETRY_AFTER_SECONDS),
            )

    def _refused(self, corpus: CorpusEntry, call: _Call, reply: _Reply) -> None:
        """Raise what the shard's problem means to the caller."""
        try:
            problem = msgspec.msgpack.decode(reply.body, type=ShardProblem)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._health.failed(corpus)
            raise _bad_answer(corpus, call, BAD_ANSWER) from error
        if problem.code == "capability_denied":
            self._capabilities.forget(corpus, call.right)
        if problem.kind == "invalid_input" and reply.status in {400, 413, 422}:
            raise InvalidInput(problem.message[:512], code="invalid_input", field=problem.field, status=reply.status)
        detail = problem.code if problem.code in SHARD_CODES else SHARD_ERROR
        if call.right == "write" and problem.kind not in NOT_DONE_KINDS:
            raise _outcome_unknown()
        if detail in UNWELL_CODES:
            self._health.failed(corpus)
        raise _failed(corpus, detail, retry_after_seconds=reply.retry_after_seconds)

    def _check_version(self, corpus: CorpusEntry, call: _Call, answer: Any) -> None:
        if answer.incarnation != corpus.incarnation:
            self._health.failed(corpus)
            raise _bad_answer(corpus, call, FOREIGN_INCARNATION)
        if answer.epoch < self._health.highest_epoch(corpus):
            self._health.failed(corpus)
            raise _bad_answer(corpus, call, SUPERSEDED_EPOCH)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """Return the body. Raises ClientPayloadError past `MAX_ANSWER_BYTES`, before it is in memory."""
    declared = response.content_length
    if declared is not None and declared <= MAX_ANSWER_BYTES:
        return await response.read()
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            response.close()
            raise aiohttp.ClientPayloadError("answer is too large")
        parts.append(part)
    return b"".join(parts)


def _endpoint_of(corpus: CorpusEntry) -> str:
    """Return where the corpus's shard answers. Raises Unavailable (`no_corpus`) where the directory says that none does."""
    if corpus.state == READY_STATE and corpus.endpoint is not None:
        return corpus.endpoint.rstrip("/")
    detail = corpus.state if corpus.state != READY_STATE else "no_endpoint"
    raise Unavailable(
        f"corpus {corpus.key} is not ready ({detail}): see the status of its TenantCorpus",
        code=UNAVAILABLE_CODE,
        reason="no_corpus",
        detail=detail,
    )


def _decode(corpus: CorpusEntry, call: _Call, body: bytes, kind: type[AnswerT]) -> AnswerT:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_answer(corpus, call, BAD_ANSWER) from error


def _bad_answer(corpus: CorpusEntry, call: _Call, detail: str) -> Unavailable:
    """Return the failure of an answer that cannot be used. After a write nobody knows what it did."""
    return _outcome_unknown() if call.right == "write" else _failed(corpus, detail)


def _failed(corpus: CorpusEntry, detail: str, *, retry_after_seconds: int | None = None) -> Unavailable:
    return Unavailable(
        f"shard of corpus {corpus.key} did not answer the request ({detail}): try again",
        code=UNAVAILABLE_CODE,
        reason="search_failed",
        detail=detail,
        retry_after_seconds=retry_after_seconds,
    )


def _outcome_unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the write was sent but its answer was lost: repeat the call as it is, writing twice changes nothing"
    )
