"""Failures of the shard as `ShardProblem` in msgpack: the receiver decides by kind and code, people read the message."""

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from groundplane.errors import (
    CorruptData,
    Denied,
    GroundplaneError,
    InvalidInput,
    OutcomeUnknown,
    Superseded,
    Unavailable,
)
from groundplane.process.http import route_of
from groundplane.process.logs import Log
from groundplane.wire.internal import ShardProblem

MSGPACK = "application/msgpack"

_KINDS: tuple[tuple[type[GroundplaneError], str, int], ...] = (
    (OutcomeUnknown, "outcome_unknown", 503),
    (Unavailable, "unavailable", 503),
    (Superseded, "superseded", 503),
    (CorruptData, "corrupt_data", 503),
)


def msgpack_response(answer: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return `answer` encoded as msgpack."""
    return Response(msgspec.msgpack.encode(answer), status_code=status, media_type=MSGPACK, headers=headers)


class ShardProblemHandler:
    """The exception handler of the shard's application."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def __call__(self, request: Request, error: Exception) -> Response:
        """Return the answer for `error`; a bug is logged with its traceback."""
        headers: dict[str, str] = {}
        match error:
            case InvalidInput():
                status, problem = (
                    error.status,
                    ShardProblem(kind="invalid_input", code=error.code, message=error.message, field=error.field),
                )
            case Denied():
                status, problem = error.status, ShardProblem(kind="denied", code=error.code, message=error.message)
            case GroundplaneError():
                status, problem, headers = _unavailable(error)
            case HTTPException():
                status, problem = (
                    error.status_code,
                    ShardProblem(kind="invalid_input", code="http_error", message=str(error.detail)),
                )
                headers = dict(error.headers or {})
            case _:
                self._log.exception("request_failed", method=request.method, route=route_of(request))
                status, problem = (
                    500,
                    ShardProblem(kind="bug", code="internal_error", message="an error of the shard: see its log"),
                )
        return msgpack_response(problem, status=status, headers=headers)


def _unavailable(error: GroundplaneError) -> tuple[int, ShardProblem, dict[str, str]]:
    for kind, name, status in _KINDS:
        if isinstance(error, kind):
            seconds = error.retry_after_seconds if isinstance(error, Unavailable) else None
            return (
                status,
                ShardProblem(kind=name, code=error.code, message=error.message),
                {"Retry-After": str(seconds or 1)},
            )
    return 503, ShardProblem(kind="unavailable", code=error.code, message=error.message), {}
