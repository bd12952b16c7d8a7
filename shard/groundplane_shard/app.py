"""HTTP of the shard: msgpack in, msgpack out, a capability on every route but the probes.

| route | right | body → answer |
| --- | --- | --- |
| POST /search | read | SearchRequest → SearchAnswer |
| POST /write | write | WriteRequest → WriteResult |
| GET /documents?after=&limit= | read | DocumentPage |
| GET /document?id= | read | StoredDocument |
| POST /known | read | KnownRequest → KnownAnswer |
| GET /pending?after=&chunker= | read | PendingPage |
| GET /memo?name=&fingerprint= | read | StoredMemo |
| GET /status | read or operate | ShardStatus |
| POST /snapshot | operate | ShardStatus |
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from groundplane.errors import Denied, GroundplaneError, InvalidInput
from groundplane.process.bodies import Bodies
from groundplane.process.http import BugBarrier, PatternRoute, decode_msgpack
from groundplane.process.metrics import MetricsEndpoint
from groundplane.tokens import Right
from groundplane.wire.internal import MAX_WRITE_BYTES, KnownRequest, SearchRequest, WriteRequest
from groundplane_shard.access import Access
from groundplane_shard.metrics import OUTCOMES, ShardMetrics
from groundplane_shard.problems import MSGPACK, ShardProblemHandler, msgpack_response
from groundplane_shard.service import Shard

MAX_SEARCH_BYTES = 256 * 1024
MAX_KNOWN_BYTES = 2 * 1024 * 1024  # 500 ids of 512 characters, and a digest each
MAX_PAGE = 1_000

Handler = Callable[[Request], Awaitable[object]]
BodyT = TypeVar("BodyT")


class ObservedMetrics:
    """`GET /metrics` whose gauges are set at the moment they are asked for, so that none can be out of date."""

    def __init__(self, shard: Shard, endpoint: MetricsEndpoint) -> None:
        self._shard = shard
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the current values."""
        self._shard.observe()
        await self._endpoint(scope, receive, send)


class ShardApi:
    """The routes of one shard."""

    def __init__(self, shard: Shard, access: Access, metrics: ShardMetrics, bodies: Bodies) -> None:
        self._shard = shard
        self._access = access
        self._metrics = metrics
        self._bodies = bodies
        metrics.body_bytes.set_function(lambda: bodies.held_bytes)

    def routes(self, metrics_endpoint: MetricsEndpoint) -> list[Route]:
        """Return all routes of the application."""
        return [
            self._route("/search", "search", self._search, "POST", "read"),
            self._route("/write", "write", self._write, "POST", "write"),
            self._route("/documents", "documents", self._documents, "GET", "read"),
            self._route("/document", "document", self._document, "GET", "read"),
            self._route("/known", "known", self._known, "POST", "read"),
            self._route("/pending", "pending", self._pending, "GET", "read"),
            self._route("/memo", "memo", self._memo, "GET", "read"),
            self._route("/snapshot", "snapshot", self._snapshot, "POST", "operate"),
            self._route("/status", "status", self._status, "GET", "read", "operate"),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", ObservedMetrics(self._shard, metrics_endpoint)),
        ]

    def _route(self, path: str, name: str, handler: Handler, method: str, *rights: Right) -> Route:
        counters = {outcome: self._metrics.requests.labels(name, outcome) for outcome in OUTCOMES}

        async def endpoint(request: Request) -> Response:
            try:
                self._access.check(request.headers, *rights)
                answer = await handler(request)
            except GroundplaneError as error:
                counters["refused" if isinstance(error, (InvalidInput, Denied)) else "unavailable"].inc()
                raise
            counters["ok"].inc()
            return msgpack_response(answer)

        return PatternRoute(path, endpoint, methods=[method])

    async def _search(self, request: Request) -> object:
        asked = await self._body(request, SearchRequest, MAX_SEARCH_BYTES)
        with self._metrics.search_seconds.time():
            return await self._shard.search(asked)

    async def _write(self, request: Request) -> object:
        return await self._shard.write(await self._body(request, WriteRequest, MAX_WRITE_BYTES))

    async def _body(self, request: Request, body_type: type[BodyT], max_bytes: int) -> BodyT:
        async with self._bodies.read(request, max_bytes, MSGPACK) as body:
            return decode_msgpack(body_type, body)

    async def _documents(self, request: Request) -> object:
        limit = request.query_params.get("limit", "100")
        if not limit.isdecimal() or len(limit) > len(str(MAX_PAGE)) or not 1 <= int(limit) <= MAX_PAGE:
            raise InvalidInput(f"limit {limit[:32]!r}: expected a number from 1 to {MAX_PAGE}", field="limit")
        return await self._shard.documents(request.query_params.get("after", ""), int(limit))

    async def _document(self, request: Request) -> object:
        return await self._shard.document(_required(request, "id"))

    async def _known(self, request: Request) -> object:
        return await self._shard.known(await self._body(request, KnownRequest, MAX_KNOWN_BYTES))

    async def _pending(self, request: Request) -> object:
        return await self._shard.pending(request.query_params.get("after", ""), _required(request, "chunker"))

    async def _memo(self, request: Request) -> object:
        return self._shard.memo(_required(request, "name"), _required(request, "fingerprint"))

    async def _snapshot(self, _request: Request) -> object:
        return await self._shard.snapshot()

    async def _status(self, _request: Request) -> object:
        return self._shard.status()

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        detail = self._shard.unready_detail
        return PlainTextResponse(
            "ok\n" if detail is None else f"{detail}\n", status_code=200 if detail is None else 503
        )


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if value == "":
        raise InvalidInput(f"query parameter {name} is missing", field=name)
    return value


def build_app(
    api: ShardApi, shard: Shard, metrics_endpoint: MetricsEndpoint, problems: ShardProblemHandler
) -> Starlette:
    """Return the application; its lifespan starts and stops `shard`."""
    handlers = {GroundplaneError: problems, HTTPException: problems}
    barrier = Middleware(BugBarrier, answer=problems)
    routes = api.routes(metrics_endpoint)
    return Starlette(routes=routes, middleware=[barrier], exception_handlers=handlers, lifespan=shard.lifespan)
