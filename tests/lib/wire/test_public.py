"""Rules of requests that a type cannot say."""

import msgspec
import pytest

from groundplane.client.calls import put_memo
from groundplane.errors import InvalidInput
from groundplane.wire.public import (
    Basis,
    EvidenceRequest,
    GroundRequest,
    MemoInput,
    ScopeBasis,
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


SCOPE_BASIS = b'{"incarnation": "20000000-0000-4000-8000-000000000000", "sequence": 7, "new": 1}'


@pytest.mark.parametrize(
    ("request_type", "body"),
    [
        (EvidenceRequest, b'{"query": "x", "new": 1}'),
        (MemoInput, b'{"response": 1, "basis": {"new": {}}}'),
        (MemoInput, b'{"response": 1, "basis": {"tenant": ' + SCOPE_BASIS + b"}}"),
    ],
    ids=["top", "basis", "scope-basis"],
)
def test_requests_gain_no_fields_at_any_depth(request_type, body):
    """A field that a server does not know is never ignored: its sender believes that it does something."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=request_type)


@pytest.mark.parametrize(
    ("answer_type", "body"),
    [(ScopeBasis, SCOPE_BASIS), (Basis, b'{"tenant": ' + SCOPE_BASIS + b', "new": 1}')],
    ids=["scope-basis", "basis"],
)
def test_answers_may_gain_fields_at_every_depth(answer_type, body):
    """An older client reads a newer server."""
    decoded = msgspec.json.decode(body, type=answer_type)

    assert getattr(decoded, "tenant", decoded).sequence == 7


def test_a_basis_goes_back_as_it_came():
    """What an answer rested on is sent with the memo that was made of it."""
    basis = Basis(tenant=ScopeBasis(incarnation="20000000-0000-4000-8000-000000000000", sequence=7))
    body = put_memo("n", "f", {"a": [1]}, basis).body

    memo = msgspec.json.decode(body or b"", type=MemoInput)
    assert bytes(memo.response) == b'{"a":[1]}'
    assert msgspec.to_builtins(memo.basis) == msgspec.to_builtins(basis)


BEYOND = SCOPE_BASIS.replace(b"7", b"9223372036854775808").replace(b', "new": 1', b"")


def test_a_sequence_that_no_log_reaches_is_refused():
    """It would not fit into the message to the shard."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"response": 1, "basis": {"tenant": ' + BEYOND + b"}}", type=MemoInput)


def test_a_basis_that_is_stored_is_read_without_bounds():
    """A shard decodes the memos of its log with this type: a rule that came later must not keep it from starting."""
    stored = msgspec.json.decode(b'{"tenant": ' + BEYOND + b"}", type=Basis)

    assert stored.tenant is not None
    assert stored.tenant.sequence == 2**63
