"""The public routes' handlers: who is calling → what is asked → the service → JSON.

Every handler identifies the caller before it reads anything else. The corpus comes from the verified caller and from nowhere
else; failures leave as exceptions, which `problems` alone turns into answers.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundplane.errors import InvalidInput
from groundplane.process.bodies import Bodies
from groundplane.process.clock import Clock
from groundplane.process.http import decode_json, json_response
from groundplane.wire.directory import Access
from groundplane.wire.public import (
    MAX_BODY_BYTES,
    MAX_MEMO_BYTES,
    EvidenceRequest,
    GroundRequest,
    IndexRequest,
    MemoInput,
    ReindexRequest,
)
from groundplane_router.admission import Admission
from groundplane_router.corpus import CorpusReports
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.documents import DEFAULT_PAGE, Documents, parse_limit
from groundplane_router.grounding import Grounding
from groundplane_router.identity import Authenticator
from groundplane_router.index_body import check_index_body
from groundplane_router.indexing import Indexer
from groundplane_router.memos import Memos
from groundplane_router.reindexing import Reindexer
from groundplane_router.request_log import note_answer, note_of

JSON: Final = "application/json"
DECODED_AT_ONCE_BYTES: Final = 64 * 1024
"""A larger body is decoded beside the event loop: 8 MiB of small values take half a second, and others are waiting."""

MAX_QUESTION_BYTES: Final = 256 * 1024
MAX_REINDEX_BYTES: Final = 16 * 1024
MAX_MEMO_BODY_BYTES: Final = MAX_MEMO_BYTES + 4_096

BodyT = TypeVar("BodyT")


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds one request and all of them."""

    deadline_seconds: float
    index_deadline_seconds: float
    max_requests: int
    max_index_requests: int


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers call; made once, at start."""

    authenticator: Authenticator
    grounding: Grounding
    indexer: Indexer
    documents: Documents
    memos: Memos
    reindexer: Reindexer
    corpora: CorpusReports


class Api:
    """Handlers of the routes below /v1."""

    def __init__(self, services: Services, limits: ApiLimits, clock: Clock, bodies: Bodies) -> None:
        self._services = services
        self._limits = limits
        self._clock = clock
        self._bodies = bodies
        self._requests = Admission(limits.max_requests)
        self._index_requests = Admission(limits.max_index_requests)

    async def ground(self, request: Request) -> Response:
        """Serve `POST /v1/ground`: the first tier that has an answer; what failed on the way is said in it."""
        note = note_of(request)
        note.is_question = True
        with self._requests.admit():
            grants = await self._identify(request, "read")
            question = await self._body(request, GroundRequest, MAX_QUESTION_BYTES)
            answer = await self._services.grounding.ground(grants, question, self._deadline(), note.query_id)
            note_answer(request, answer)
            return json_response(answer)

    async def evidence(self, request: Request) -> Response:
        """Serve `POST /v1/evidence`: 200 without hits means "searched, nothing to say"; no search is 503, never an empty 200."""
        note = note_of(request)
        note.is_question = True
        with self._requests.admit():
            grants = await self._identify(request, "read")
            question = await self._body(request, EvidenceRequest, MAX_QUESTION_BYTES)
            answer = await self._services.grounding.evidence(grants, question, self._deadline(), note.query_id)
            note_answer(request, answer)
            return json_response(answer)

    async def index_documents(self, request: Request) -> Response:
        """Serve `POST /v1/documents`."""
        with self._index_requests.admit():
            grants = await self._identify(request, "write")
            batch = await self._body(request, IndexRequest, MAX_BODY_BYTES, check_index_body)
            deadline = Deadline(self._clock, self._limits.index_deadline_seconds)
            return json_response(await self._services.indexer.index(grants, batch.documents, deadline))

    async def list_documents(self, request: Request) -> Response:
        """Serve `GET /v1/documents`."""
        with self._requests.admit():
            grants = await self._identify(request, "read")
            _check_query_parameters(request, {"cursor", "limit"})
            limit = parse_limit(request.query_params.get("limit", str(DEFAULT_PAGE)))
            cursor = request.query_params.get("cursor", "")
            return json_response(await self._services.documents.list_page(grants, cursor, limit, self._deadline()))

    async def get_document(self, request: Request) -> Response:
        """Serve `GET /v1/documents/{id}`."""
        with self._requests.admit():
            grants = await self._identify(request, "read")
            _check_query_parameters(request, set())
            doc_id = request.path_params["id"]
            return json_response(await self._services.documents.get(grants, doc_id, self._deadline()))

    async def delete_document(self, request: Request) -> Response:
        """Serve `DELETE /v1/documents/{id}`."""
        with self._requests.admit():
            grants = await self._identify(request, "write")
            _check_query_parameters(request, set())
            doc_id = request.path_params["id"]
            return json_response(await self._services.documents.delete(grants, doc_id, self._deadline()))

    async def put_memo(self, request: Request) -> Response:
        """Serve `PUT /v1/memos/{name}/{fingerprint}`."""
        with self._requests.admit():
            grants = await self._identify(request, "write")
            memo = await self._body(request, MemoInput, MAX_MEMO_BODY_BYTES)
            name, fingerprint = _memo_name(request)
            return json_response(await self._services.memos.put(grants, name, fingerprint, memo, self._deadline()))

    async def get_memo(self, request: Request) -> Response:
        """Serve `GET /v1/memos/{name}/{fingerprint}`."""
        with self._requests.admit():
            grants = await self._identify(request, "read")
            _check_query_parameters(request, set())
            return json_response(await self._services.memos.get(grants, *_memo_name(request), self._deadline()))

    async def delete_memo(self, request: Request) -> Response:
        """Serve `DELETE /v1/memos/{name}/{fingerprint}`."""
        with self._requests.admit():
            grants = await self._identify(request, "write")
            _check_query_parameters(request, set())
            return json_response(await self._services.memos.delete(grants, *_memo_name(request), self._deadline()))

    async def reindex(self, request: Request) -> Response:
        """Serve `POST /v1/corpus/reindex`: some seconds of re-embedding, and how far it is."""
        with self._index_requests.admit():
            grants = await self._identify(request, "write")
            asked = await self._body(request, ReindexRequest, MAX_REINDEX_BYTES)
            deadline = Deadline(self._clock, self._limits.index_deadline_seconds)
            return json_response(await self._services.reindexer.advance(grants, asked, deadline))

    async def corpus(self, request: Request) -> Response:
        """Serve `GET /v1/corpus`."""
        with self._requests.admit():
            grants = await self._identify(request, "read")
            _check_query_parameters(request, set())
            return json_response(await self._services.corpora.report(grants, self._deadline()))

    async def _identify(self, request: Request, needed: Access) -> Grants:
        return await self._services.authenticator.identify(request.headers, needed)

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._limits.deadline_seconds)

    async def _body(
        self, request: Request, body_type: type[BodyT], max_bytes: int, check: Callable[[bytes], None] | None = None
    ) -> BodyT:
        """Return the decoded body. Raises InvalidInput: 400, 408, 413, 415; Unavailable if too much is being read.

        check: raises InvalidInput for a body that must not be decoded.
        """
        _check_query_parameters(request, set())

        def decode(body: bytes) -> BodyT:
            if check is not None:
                check(body)
            return decode_json(body_type, body)

        async with self._bodies.read(request, max_bytes, JSON) as body:
            return decode(body) if len(body) <= DECODED_AT_ONCE_BYTES else await asyncio.to_thread(decode, body)


def _check_query_parameters(request: Request, known: set[str]) -> None:
    """Raise InvalidInput for a parameter that nothing reads: a caller that sends one believes that it does something."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"query parameter {name[:64]!r} is unknown: expected {expected}", field=name[:64])
        if names.count(name) > 1:
            raise InvalidInput(f"query parameter {name} stands twice: expected once", field=name)


def _memo_name(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params["fingerprint"]
