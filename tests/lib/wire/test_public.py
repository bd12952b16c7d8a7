"""Rules of requests that a type cannot say."""

import msgspec
import pytest

from groundplane.errors import InvalidInput
from groundplane.wire.public import (
    EvidenceRequest,
    GroundRequest,
    check_evidence_request,
    check_identifier,
    check_memo_name,
)


@pytest.mark.parametrize("query", [" ", "\n\t", "\u3000"])
def test_a_blank_query_is_no_question(query):
    """422: well-formed, and nothing can be done with it."""
    with pytest.raises(InvalidInput) as fault:
        check_evidence_request(EvidenceRequest(query=query))

    assert (fault.value.status, fault.value.code, fault.value.field) == (422, "empty_query", "query")


@pytest.mark.parametrize(("given", "missing"), [({"name": "n"}, "fingerprint"), ({"fingerprint": "f"}, "name")])
def test_half_a_memos_name_is_refused(given, missing):
    """It would silently never hit."""
    with pytest.raises(InvalidInput) as fault:
        check_evidence_request(GroundRequest(query="x", **given))

    assert fault.value.field == missing


@pytest.mark.parametrize("text", ["a", "a/b", "..", "'", '"; DROP', "ünï", "a b", "🙂", "x" * 512])
def test_most_text_can_be_an_identifier(text):
    """Ids are the caller's: paths, addresses, quotes and all."""
    assert check_identifier(text, "id") == text


@pytest.mark.parametrize("text", ["", "x" * 513, "a\x00", "a\n", "\x1f", "\x7f", "\ud800"])
def test_what_cannot_be_printed_or_kept_is_no_identifier(text):
    """It would break a log line, a listing or UTF-8."""
    with pytest.raises(InvalidInput) as fault:
        check_identifier(text, "id")

    assert fault.value.field == "id"


@pytest.mark.parametrize("text", ["a/b", "/", "x" * 257])
def test_a_memos_name_fits_into_one_part_of_a_path(text):
    """Both halves stand in one path."""
    with pytest.raises(InvalidInput):
        check_memo_name(text, "name")


def test_answers_may_gain_fields_and_requests_may_not():
    """An older client reads a newer server; a field that a server does not know is never ignored."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"query": "x", "new": 1}', type=EvidenceRequest)
