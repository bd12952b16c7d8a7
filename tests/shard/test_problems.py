"""Failures as the router reads them: kind and code decide, the text is for people."""

import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from groundplane.errors import CorruptData, Denied, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane.process.logs import Log
from groundplane.wire.internal import ShardProblem
from groundplane_shard.problems import ShardProblemHandler

REQUEST = Request({"type": "http", "method": "GET", "path": "/secret", "headers": []})


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "retry_after"),
    [
        pytest.param(
            InvalidInput("no", field="x", status=409), 409, "invalid_input", "invalid_input", None, id="invalid"
        ),
        pytest.param(Denied("no", status=403), 403, "denied", "denied", None, id="denied"),
        pytest.param(OutcomeUnknown("hm"), 503, "outcome_unknown", "outcome_unknown", "1", id="unknown"),
        pytest.param(
            Unavailable("no", code="overloaded", retry_after_seconds=7),
            503,
            "unavailable",
            "overloaded",
            "7",
            id="unavailable",
        ),
        pytest.param(Superseded("no"), 503, "superseded", "superseded", "1", id="superseded"),
        pytest.param(CorruptData("no"), 503, "corrupt_data", "corrupt_data", "1", id="corrupt"),
        pytest.param(HTTPException(404), 404, "invalid_input", "http_error", None, id="http"),
        pytest.param(TypeError("no"), 500, "bug", "internal_error", None, id="bug"),
    ],
)
async def test_each_kind_of_failure_has_its_status_and_code(error, status, kind, code, retry_after):
    """An unknown outcome taken for a plain 503 would be repeated as if nothing had been stored."""
    answer = await ShardProblemHandler(Log("shard"))(REQUEST, error)
    problem = msgspec.msgpack.decode(answer.body, type=ShardProblem)

    assert (answer.status_code, problem.kind, problem.code) == (status, kind, code)
    assert answer.headers.get("retry-after") == retry_after
    assert problem.field == getattr(error, "field", None)
