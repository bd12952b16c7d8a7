"""One log line and one count a request. Never in either: query text, document ids, tenants, subjects, tokens."""

import secrets
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundplane.process.http import route_of
from groundplane.process.logs import Log
from groundplane.wire.public import EvidenceAnswer, GroundAnswer, Problem
from groundplane_router.metrics import RequestOutcome, RouterMetrics

QUIET_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_NOTE: Final = "groundplane.note"


class Note(msgspec.Struct, kw_only=True):
    """What the handlers of one request leave for its log line."""

    tier: str = "none"
    outcome: RequestOutcome = "done"
    reason: str | None = None
    code: str | None = None
    query_id: str
    """Of every request, so that a failed one can be found too."""

    is_question: bool = False


def note_of(request: HTTPConnection) -> Note:
    """Return the note of this request."""
    note: Note = request.scope[_NOTE]
    return note


def note_answer(request: Request, answer: EvidenceAnswer | GroundAnswer) -> None:
    """Note what a question came to."""
    note = note_of(request)
    if isinstance(answer, EvidenceAnswer):
        note.tier, note.outcome = "hybrid", "hits" if answer.hits else "empty"
        return
    note.tier = answer.tier
    note.reason = answer.unavailable.reason.value if answer.unavailable else None
    if answer.tier != "none":
        note.outcome = "hits"
    else:
        note.outcome = "empty" if answer.status == "nothing" else "unavailable"


def note_problem(request: Request, problem: Problem) -> None:
    """Note that the request failed."""
    note = note_of(request)
    note.code = problem.code
    note.reason = problem.reason.value if problem.reason else None
    note.outcome = _outcome_of(problem)


def _outcome_of(problem: Problem) -> RequestOutcome:
    if problem.code == "overloaded":
        return "overloaded"
    if problem.status in {401, 403}:
        return "denied"
    if problem.status == 503:
        return "unavailable"
    return "failed" if problem.status >= 500 else "invalid"


class RequestLog:
    """Middleware around everything but the probes."""

    def __init__(self, app: ASGIApp, metrics: RouterMetrics, log: Log) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, then write its line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = Note(query_id=secrets.token_hex(8))
        scope[_NOTE] = note
        if scope["path"] in QUIET_PATHS:
            await self._app(scope, receive, send)
            return
        sent: dict[str, Any] = {"status": 500}

        async def send_noting_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
            await send(message)

        watch = self._metrics.stopwatch()
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            self._metrics.in_flight.dec()
            self._write(scope, note, sent["status"], watch.seconds)

    def _write(self, scope: Scope, note: Note, status: int, seconds: float) -> None:
        if status == 500:
            note.outcome = "failed"
        self._metrics.requests.labels(note.tier, note.outcome).inc()
        if note.is_question:
            self._metrics.request_seconds.labels(note.tier).observe(seconds)
        self._log.info(
            "request",
            method=scope["method"],
            route=route_of(HTTPConnection(scope)),
            status=status,
            tier=note.tier,
            reason=note.reason,
            code=note.code,
            ms=round(seconds * 1_000, 2),
            query_id=note.query_id,
        )
