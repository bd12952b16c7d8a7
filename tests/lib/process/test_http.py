"""HTTP at the edge: bounded bodies, and one problem document for every failure."""

import logging
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
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
from groundplane.process.http import (
    MAX_CONTAINERS,
    BugBarrier,
    PatternRoute,
    ProblemHandler,
    decode_json,
    decode_msgpack,
    problem_of,
    route_of,
)
from groundplane.process.logs import Log


class Body(msgspec.Struct, forbid_unknown_fields=True):
    items: list[int]


class Loose(Body, forbid_unknown_fields=True):
    more: Any = None
    named: dict[Annotated[str, msgspec.Meta(min_length=1)], Any] = {}


@pytest.mark.parametrize(
    ("error", "status", "code", "header"),
    [
        (InvalidInput("x", field="a.b"), 400, "invalid_input", None),
        (InvalidInput("x", code="own", status=422), 422, "own", None),
        (Denied("x"), 401, "denied", "WWW-Authenticate"),
        (Denied("x", status=403), 403, "denied", None),
        (Unavailable("x", reason="embed_error", detail="d", retry_after_seconds=7), 503, "unavailable", "Retry-After"),
        (OutcomeUnknown("x"), 503, "outcome_unknown", "Retry-After"),
        (Superseded("x"), 503, "superseded", None),
        (CorruptData("x"), 503, "corrupt_data", None),
        (HTTPException(404), 404, "not_found", None),
        (HTTPException(405, headers={"Allow": "GET"}), 405, "method_not_allowed", "Allow"),
        (ZeroDivisionError("secret"), 500, "internal_error", None),
    ],
)
def test_each_kind_of_failure_has_its_status_code_and_headers(error, status, code, header):
    """Receivers act by kind; the table is the contract."""
    problem, headers = problem_of(error)

    assert (problem.status, problem.code, problem.type.rpartition("/")[2]) == (status, code, code)
    assert set(headers) == ({header} if header else set())
    assert "secret" not in problem.detail


def test_an_unavailable_problem_carries_reason_detail_and_when_to_come_back():
    """A client decides by them."""
    problem, headers = problem_of(Unavailable("x", reason="embed_error", detail="slow", retry_after_seconds=7))

    assert (problem.reason, problem.unavailable_detail, headers["Retry-After"]) == ("embed_error", "slow", "7")


@pytest.mark.parametrize("decode", [decode_json, decode_msgpack])
def test_a_field_of_the_wrong_type_is_named(decode):
    """Whoever sent it finds it."""
    encode = msgspec.json.encode if decode is decode_json else msgspec.msgpack.encode
    with pytest.raises(InvalidInput) as fault:
        decode(Body, encode({"items": [1, "x"]}))

    assert fault.value.field == "items[1]"
    assert fault.value.message.startswith("items[1]: expected `int`")


@pytest.mark.parametrize("body", [b"", b"\xff", b"{", b"[" * 100_000, b'{"items": [1e999]}', b'{"items": [], "x": 1}'])
def test_what_is_no_json_of_ours_is_invalid_and_nothing_else(body):
    """No body may raise anything that becomes a 500."""
    with pytest.raises(InvalidInput):
        decode_json(Body, body)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"items": [1], "items": [2]}', "items"),
        (b'{"items": [1], "\\u0069tems": [2]}', "items"),
        (b'{"items": [], "more": {"a": [{"b": 1, "c": 2, "b": 1}]}}', "b"),
    ],
    ids=["top", "escaped", "nested"],
)
def test_a_name_that_stands_twice_is_refused(body, name):
    """A proxy that checked the first and a server that reads the last have not checked the same request."""
    with pytest.raises(InvalidInput, match=f"'{name}' stands twice") as fault:
        decode_json(Loose, body)

    assert fault.value.code == "repeated_name"


@given(st.recursive(st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner)))  # fmt: skip
def test_every_other_json_is_read_as_it_is(value):
    """Equal names in two objects, and equal values, are none of our business."""
    body = msgspec.json.encode({"items": [], "more": value})

    assert decode_json(Loose, body) == msgspec.json.decode(body, type=Loose)


@pytest.mark.parametrize("part", [b"{},", b"[],"], ids=["objects", "lists"])
def test_a_body_that_would_fill_memory_with_empty_objects_is_refused_unread(part):
    """8 MiB of them took half a second, in which nobody else was served, and 200 MB."""
    with pytest.raises(InvalidInput) as fault:
        decode_json(Loose, b'{"items": [], "more": [' + part * MAX_CONTAINERS + b"0]}")

    assert (fault.value.status, fault.value.code) == (413, "body_too_large")


def test_a_text_may_hold_many_brackets():
    """Documents are JSON and code too."""
    text = "f([x]) {y} " * 200_000

    assert decode_json(Loose, msgspec.json.encode({"items": [], "more": text})).more == text


def test_an_object_whose_key_is_at_fault_is_named():
    """The client that sent it finds it."""
    with pytest.raises(InvalidInput) as fault:
        decode_json(Loose, b'{"items": [], "named": {"": 1}}')

    assert fault.value.field == "named"


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81", b"\x91" * 100_000, b"\x81\xa1\xff\x01"])
def test_what_is_no_msgpack_of_ours_is_invalid_and_nothing_else(body):
    """As for JSON."""
    with pytest.raises(InvalidInput):
        decode_msgpack(Body, body)


def serve(handler):
    """Return a client of one handler; what the application raises to its server is raised here."""
    problems = ProblemHandler(Log("test"))
    app = Starlette(
        routes=[PatternRoute("/things/{id}", handler, methods=["POST"])],
        exception_handlers={GroundplaneError: problems, HTTPException: problems},
        middleware=[Middleware(BugBarrier, answer=problems)],
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")


async def test_a_bug_is_logged_once_by_its_pattern_and_told_to_nobody(caplog):
    """The path may hold a document's id; the text of the exception may hold anything."""

    async def fail(_request: Request) -> Response:
        raise ZeroDivisionError("secret")

    caplog.set_level(logging.INFO, "groundplane")
    async with serve(fail) as client:
        answer = await client.post("/things/document-id")

    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
    (record,) = [one for one in caplog.records if one.name == "groundplane.test"]
    assert record.groundplane_fields == {"method": "POST", "route": "/things/{id}"}


async def test_a_bug_in_the_middle_of_an_answer_is_logged_once_and_adds_nothing_to_it(caplog):
    """A second head would be read as a part of the body."""

    async def break_off(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, "groundplane")
    sent: list[str] = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message["type"])

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    await BugBarrier(break_off, ProblemHandler(Log("test")))(scope, receive, send)

    assert sent == ["http.response.start"]
    assert [one.message for one in caplog.records] == ["request_failed"]


async def test_a_route_is_known_by_its_pattern():
    """Labels and log lines must be few."""

    async def pattern(request: Request) -> Response:
        return Response(route_of(request))

    async with serve(pattern) as client:
        answer = await client.post("/things/document-id")

    assert answer.text == "/things/{id}"
