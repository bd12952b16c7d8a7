"""Heads that only one reading fits pass; nothing that was sent is said back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.process.heads import STANDING_ONCE, head_fault

NAMES = st.sampled_from([*STANDING_ONCE, b"content-length", b"connection", b"upgrade", b"accept", b"x-a"])
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"x", b"chunked", b"upgrade", b"a b", b"a,b", b"5"])))


@pytest.mark.parametrize(
    "host",
    [b"", b"x", b"router.agents.svc:8080", b"127.0.0.1:80", b"[::1]:8080", b"xn--bcher-kva.example"],
)
def test_every_kind_of_host_passes(host):
    """A refused name would cut off whoever reaches the router under it."""
    assert head_fault("1.1", [(b"host", host)]) is None


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([(b"transfer-encoding", b"Chunked")], id="chunked"),
        pytest.param([(b"accept", b"a"), (b"accept", b"b")], id="lists-may-stand-twice"),
        pytest.param([(b"upgrade", b"h2c")], id="upgrade-for-another-hop"),
        pytest.param([(b"connection", b"upgrade")], id="upgrade-to-nothing"),
    ],
)
def test_what_everybody_reads_alike_passes(headers):
    """Strict is not hostile."""
    assert head_fault("1.1", [(b"host", b"x"), *headers]) is None


def test_chunks_of_http_1_0_are_a_fault():
    """That version has none: a program of it reads to the end of the connection."""
    assert head_fault("1.0", [(b"transfer-encoding", b"chunked")]) is not None


@given(headers=HEADERS, extra=st.sampled_from(STANDING_ONCE))
def test_a_second_header_of_a_kind_that_stands_once_is_always_a_fault(headers, extra):
    """Whatever else the head holds, and wherever the two stand in it."""
    assert head_fault("1.1", [(extra, b"a"), *headers, (extra, b"a")]) is not None


@given(headers=HEADERS)
def test_a_fault_quotes_no_value(headers):
    """Values are tokens and names of tenants' hosts, and faults are logged."""
    secret = [(name, b"@SECRET@" + value) for name, value in headers]

    assert "SECRET" not in (head_fault("1.1", secret) or "")
