"""HTTP at the edge of a program: typed bodies in, JSON out, and every failure as one problem document.

Only `problem_of` decides which status an error gets:

| error | status |
| --- | --- |
| InvalidInput | its own, 400 unless it says otherwise |
| Denied | 401 with WWW-Authenticate, or 403 |
| Unavailable, OutcomeUnknown | 503 with Retry-After |
| Superseded, CorruptData | 503 |
| anything else | 500, logged with its traceback |
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundplane.errors import CorruptData, Denied, GroundplaneError, InvalidInput, Superseded, Unavailable
from groundplane.process.logs import Log
from groundplane.wire.names import Reason
from groundplane.wire.public import Problem

PROBLEM_TYPE_BASE = "https://groundplane.dev/problems/"
DEFAULT_RETRY_AFTER_SECONDS = 1
MAX_QUOTED_CHARACTERS = 256
MAX_CONTAINERS = 500_000

BodyT = TypeVar("BodyT")
AnswerFailure = Callable[[Request, Exception], Awaitable[Response]]
_PATTERN = "groundplane.pattern"

_TITLES = {400: "invalid request", 401: "not authenticated", 403: "not allowed", 404: "not found", 405: "method not allowed",
           408: "too slow", 409: "conflict", 413: "too large", 415: "unsupported media type", 422: "cannot be processed",
           429: "too many requests", 500: "internal error", 503: "unavailable"}  # fmt: skip


def decode_json(body_type: type[BodyT], body: bytes) -> BodyT:
    """Return `body` as `body_type`. Raises InvalidInput that names the field, also for a name that stands twice.

    An 8 MiB body of nothing but `{},` becomes 200 MB of objects, so those that open too many are refused unread. Which of two equal names wins differs between parsers (RFC 8259, section 4): a proxy may have checked the other one.
    """
    _check_containers(body)
    try:
        decoded = msgspec.json.decode(body, type=body_type)
        _NAME_CHECKER.decode(body.decode())
    except msgspec.ValidationError as error:
        raise _invalid(error) from error
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"body is not valid JSON: {str(error)[:MAX_QUOTED_CHARACTERS]}", code="invalid_json"
        ) from error
    except RecursionError as error:
        raise InvalidInput("body is nested too deeply: flatten it", code="invalid_json") from error
    return decoded


def _check_containers(body: bytes) -> None:
    """Raise InvalidInput (413) for more brackets than a text in the body would plausibly hold too."""
    if len(body) <= MAX_CONTAINERS:
        return
    count = body.count(b"{") + body.count(b"[")
    if count > MAX_CONTAINERS:
        raise InvalidInput(
            f"body opens {count} objects and lists: expected at most {MAX_CONTAINERS}; send less at once",
            code="body_too_large",
            status=413,
        )


def _check_names(members: list[tuple[str, Any]]) -> None:
    """Raise InvalidInput if one object's members hold a name twice."""
    if len(dict(members)) == len(members):
        return
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise InvalidInput(f"{name[:64]!r} stands twice in one object: expected once", code="repeated_name")
        seen.add(name)


_NAME_CHECKER = json.JSONDecoder(object_pairs_hook=_check_names, parse_int=len, parse_float=len)
"""Reads what msgspec has accepted, for its names alone: about 1 µs a question, 2 ms a megabyte of text."""


def decode_msgpack(body_type: type[BodyT], body: bytes) -> BodyT:
    """Return `body` as `body_type`. Raises InvalidInput that names the field."""
    try:
        return msgspec.msgpack.decode(body, type=body_type)
    except msgspec.ValidationError as error:
        raise _invalid(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput("body is not valid msgpack", code="invalid_msgpack") from error


def _invalid(error: msgspec.ValidationError) -> InvalidInput:
    text, _, path = str(error).partition(" - at `")
    path = path.removeprefix("key` in `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".") or None
    text = text[:1].lower() + text[1:]
    message = f"{field}: {text}" if field else text
    return InvalidInput(message[: 2 * MAX_QUOTED_CHARACTERS], code="invalid_body", field=field)


def json_response(answer: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return `answer` encoded as JSON."""
    body = msgspec.json.encode(answer)
    return Response(body, status_code=status, media_type="application/json", headers=dict(headers or {}))


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem document of `error` and the headers that go with it."""
    match error:
        case InvalidInput():
            return _problem(error.status, error.code, error.message, field=error.field), {}
        case Denied():
            headers = {"WWW-Authenticate": 'Bearer realm="groundplane"'} if error.status == 401 else {}
            return _problem(error.status, error.code, error.message), headers
        case Unavailable():
            seconds = error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS
            reason = Reason(error.reason) if error.reason else None
            problem = _problem(503, error.code, error.message, reason=reason, unavailable_detail=error.detail)
            return problem, {"Retry-After": str(seconds)}
        case Superseded() | CorruptData():
            return _problem(503, error.code, error.message), {}
        case HTTPException():
            code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
            return _problem(error.status_code, code, str(error.detail)), dict(error.headers or {})
        case _:
            return _problem(500, "internal_error", "an error of the server: see its log"), {}


def _problem(status: int, code: str, detail: str, **more: Any) -> Problem:
    title = _TITLES.get(status, "error")
    return Problem(type=PROBLEM_TYPE_BASE + code, title=title, status=status, code=code, detail=detail, **more)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return `problem` as `application/problem+json`."""
    body = msgspec.json.encode(problem)
    return Response(
        body, status_code=problem.status, media_type="application/problem+json", headers=dict(headers or {})
    )


class ProblemHandler:
    """The exception handler of an application: every failure leaves as a problem document."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def __call__(self, request: Request, error: Exception) -> Response:
        """Return the answer for `error`; a bug is logged with its traceback."""
        self.log_bug(request, error)
        problem, headers = problem_of(error)
        return problem_response(problem, headers)

    def log_bug(self, request: Request, error: Exception, **fields: Any) -> None:
        """Write the traceback of what is none of the five kinds of failure, and nothing for those that are."""
        if not isinstance(error, (GroundplaneError, HTTPException)):
            self._log.exception("request_failed", method=request.method, route=route_of(request), **fields)


class BugBarrier:
    """Innermost middleware: what no handler expected is answered here and goes no further.

    The framework's own handler of such errors raises them again, and the server would log each a second time.
    """

    def __init__(self, app: ASGIApp, answer: AnswerFailure) -> None:
        """answer: logs the bug and returns what the caller gets."""
        self._app = app
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request; of an answer that broke off in the middle the server ends the connection."""
        has_started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting_start)
        except Exception as bug:
            if scope["type"] != "http":
                raise
            response = await self._answer(Request(scope), bug)
            if not has_started:
                await response(scope, receive, send)


class PatternRoute(Route):
    """A route that leaves its pattern in the request's scope, for logs and metrics."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return what the framework finds, and the pattern with it."""
        match, child_scope = super().matches(scope)
        return match, child_scope if match is Match.NONE else {**child_scope, _PATTERN: self.path}


def route_of(request: HTTPConnection) -> str:
    """Return the pattern of a `PatternRoute`, never the path itself: paths hold document ids."""
    pattern: str = request.scope.get(_PATTERN, "unmatched")
    return pattern
