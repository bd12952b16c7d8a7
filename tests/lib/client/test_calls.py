"""The core of the client: what is sent, and what each reply means for the caller."""

from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.client import (
    ClientOptions,
    NotAuthorised,
    RequestRefused,
    RetrievalUnavailable,
    ServiceUnreachable,
    WriteOutcomeUnknown,
    calls,
)
from groundplane.client.calls import Reply, Spent
from groundplane.wire.names import Reason
from groundplane.wire.public import DocumentResult, GroundRequest, Problem
from tests.fakes.answers import ground_answer

READ, WRITE = calls.ground("why", {}), calls.delete_document("a")
OPTIONS = ClientOptions(retries=2, max_wait_seconds=5)


def problem(status: int, code: str = "some_code", **more: Any) -> Reply:
    document = Problem(type="about:blank", title="t", status=status, code=code, detail="what happened", **more)
    return Reply(status=status, headers={}, body=msgspec.json.encode(document))


def foreign(status: int, body: bytes = b"<html>") -> Reply:
    return Reply(status=status, headers={}, body=body)


REPLIES = [
    pytest.param(READ, problem(401), NotAuthorised, id="no-token"),
    pytest.param(WRITE, problem(403), NotAuthorised, id="no-access"),
    pytest.param(READ, problem(400), RequestRefused, id="bad-request"),
    pytest.param(READ, problem(404), RequestRefused, id="not-there"),
    pytest.param(READ, problem(409), RequestRefused, id="conflict"),
    pytest.param(READ, problem(503, reason=Reason.SEARCH_FAILED), RetrievalUnavailable, id="search-failed"),
    pytest.param(READ, problem(503), ServiceUnreachable, id="overloaded"),
    pytest.param(WRITE, problem(503), ServiceUnreachable, id="write-shed-before-the-log"),
    pytest.param(WRITE, problem(503, "outcome_unknown"), WriteOutcomeUnknown, id="outcome-unknown"),
    pytest.param(READ, problem(429), ServiceUnreachable, id="too-many"),
    pytest.param(READ, problem(500), ServiceUnreachable, id="bug-while-reading"),
    pytest.param(WRITE, problem(500), WriteOutcomeUnknown, id="bug-while-writing"),
    pytest.param(READ, foreign(502), ServiceUnreachable, id="proxy-while-reading"),
    pytest.param(WRITE, foreign(503), WriteOutcomeUnknown, id="proxy-while-writing"),
    pytest.param(WRITE, foreign(504), WriteOutcomeUnknown, id="proxy-timed-out-while-writing"),
    pytest.param(WRITE, foreign(404), RequestRefused, id="another-service"),
    pytest.param(WRITE, foreign(401), NotAuthorised, id="proxy-wants-login"),
    pytest.param(READ, foreign(302), ServiceUnreachable, id="redirected"),
    pytest.param(READ, foreign(200), ServiceUnreachable, id="page-instead-of-an-answer"),
    pytest.param(WRITE, foreign(200, b"{}"), WriteOutcomeUnknown, id="unreadable-acknowledgement"),
]


@pytest.mark.parametrize(("call", "reply", "expected"), REPLIES)
def test_each_reply_becomes_the_error_that_says_what_to_do(call, reply, expected):
    """A caller tells by the class whether to change the request, to try later or to repeat a write."""
    with pytest.raises(expected) as caught:
        calls.read_reply(call, reply)

    assert type(caught.value) is expected
    assert caught.value.status == reply.status


def test_an_unavailable_search_carries_reason_and_detail():
    """An agent has to say why it could not look, not that it found nothing."""
    reply = problem(503, "search_failed", reason=Reason.SEARCH_FAILED, unavailable_detail="corpus_suspended")

    with pytest.raises(RetrievalUnavailable) as caught:
        calls.read_reply(READ, reply)

    assert (caught.value.reason, caught.value.detail) == (Reason.SEARCH_FAILED, "corpus_suspended")


def test_a_refused_request_names_its_field_and_results():
    """The caller of a batch learns which document is to blame."""
    results = [DocumentResult(id="a", outcome="dropped", reason="dimension_mismatch")]

    with pytest.raises(RequestRefused) as caught:
        calls.read_reply(calls.index([]), problem(422, field="documents[3].id", results=results))

    assert caught.value.field == "documents[3].id"
    assert caught.value.results == tuple(results)


@pytest.mark.parametrize(
    ("call", "was_sent", "expected"),
    [
        pytest.param(READ, False, ServiceUnreachable, id="read-never-left"),
        pytest.param(WRITE, False, ServiceUnreachable, id="write-never-left"),
        pytest.param(READ, True, ServiceUnreachable, id="read-without-reply"),
        pytest.param(WRITE, True, WriteOutcomeUnknown, id="write-without-reply"),
    ],
)
def test_a_write_is_unknown_only_if_it_may_have_arrived(call, was_sent, expected):
    """Saying "unknown" of what cannot have happened would make callers repeat for nothing."""
    assert type(calls.error_without_reply(call, "refused", was_sent=was_sent)) is expected


def retry_after(reply: Reply, seconds: str) -> Reply:
    return msgspec.structs.replace(reply, headers={"retry-after": seconds})


RETRIES = [
    pytest.param(READ, retry_after(problem(503), "1"), 0, 1.0, id="busy-is-asked-again"),
    pytest.param(READ, retry_after(problem(429), "2"), 1, 2.0, id="too-many-is-asked-again"),
    pytest.param(
        READ, retry_after(problem(503, reason=Reason.SEARCH_FAILED), "1"), 0, 1.0, id="failed-search-is-asked-again"
    ),
    pytest.param(
        READ, retry_after(problem(503, reason=Reason.NO_EMBEDDER), "1"), 0, None, id="a-missing-embedder-lasts"
    ),
    pytest.param(READ, retry_after(problem(503), "1"), 2, None, id="not-without-end"),
    pytest.param(READ, retry_after(problem(503), "6"), 0, None, id="not-longer-than-the-caller-waits"),
    pytest.param(READ, retry_after(problem(503), "soon"), 0, None, id="not-without-a-number"),
    pytest.param(READ, retry_after(problem(503), "²"), 0, None, id="not-with-another-digit"),
    pytest.param(READ, problem(503), 0, None, id="not-without-a-time"),
    pytest.param(READ, retry_after(problem(500), "1"), 0, None, id="not-after-a-bug"),
    pytest.param(WRITE, retry_after(problem(503), "1"), 0, None, id="writes-are-the-callers-to-repeat"),
]


@pytest.mark.parametrize(("call", "reply", "attempt", "expected"), RETRIES)
def test_only_reads_are_repeated_and_only_when_a_time_is_named(call, reply, attempt, expected):
    """Retries that nobody asked for multiply the load of a service that is in trouble."""
    spent = Spent(attempt=attempt, last_seconds=0.01, total_seconds=0.01)

    assert calls.retry_delay(call, reply, spent, OPTIONS) == expected


@pytest.mark.parametrize(
    ("total", "last", "expected"),
    [
        pytest.param(4.0, 4.0, 1.0, id="another-fits"),
        pytest.param(5.0, 5.0, None, id="another-would-be-cut-off"),
        pytest.param(9.5, 0.1, None, id="the-wait-alone-is-too-long"),
    ],
)
def test_a_read_is_repeated_only_in_the_time_that_it_has(total, last, expected):
    """A hanging shard costs the router's whole deadline each time; three times that is more than anybody waits."""
    reply, options = retry_after(problem(503, reason=Reason.SEARCH_FAILED), "1"), ClientOptions(read_timeout_seconds=10)

    assert calls.retry_delay(READ, reply, Spent(attempt=0, last_seconds=last, total_seconds=total), options) == expected


def test_an_answer_is_decoded():
    """What the router says arrives as it was meant."""
    answer = ground_answer()

    assert calls.read_reply(READ, Reply(status=200, headers={}, body=msgspec.json.encode(answer))) == answer


def test_an_answer_of_a_newer_router_is_read():
    """A field that we do not know yet is no reason to fail."""
    body = msgspec.json.encode(ground_answer())[:-1] + b', "newer": 1}'

    assert calls.read_reply(READ, Reply(status=200, headers={}, body=body)) == ground_answer()


def test_options_of_a_question_reach_the_body():
    """The typed options are the fields of the wire format."""
    call = calls.ground("why", {"k": 7, "name": "n", "fingerprint": "f", "fresh": True})

    assert call.body is not None
    sent = msgspec.json.decode(call.body, type=GroundRequest)
    assert sent == GroundRequest(query="why", k=7, name="n", fingerprint="f", fresh=True)


@given(doc_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_a_document_id_is_exactly_one_segment_of_the_path(doc_id):
    """An id with a slash, a question mark or dots must not become another route."""
    segment = calls.document(doc_id).path.removeprefix("/v1/documents/")

    assert unquote(segment) == doc_id
    assert not set(segment) & set("/?#\\ ")
    assert segment not in {".", ".."}
