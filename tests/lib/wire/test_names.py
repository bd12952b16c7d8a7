"""Names that cross components: keys that cannot collide, positions that read back."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane.wire.names import (
    LARGEST_SEQUENCE,
    PLATFORM_KEY,
    Incarnation,
    corpus_key,
    format_position,
    parse_corpus_key,
    parse_incarnation,
    parse_position,
)

LIFE = Incarnation("20000000-0000-4000-8000-000000000000")
tenants = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        ("", "platform"),
        ("acme", "t-acme"),
        ("a" * 40, "t-" + "a" * 40),
        ("platform", "t-platform"),
        ("t-acme", "t-t-acme"),
        ("0-1", "t-0-1"),
    ],
)
def test_a_dns_label_is_its_own_name(tenant, expected):
    """Whoever looks into the bucket finds the tenant."""
    assert corpus_key(tenant) == expected


@pytest.mark.parametrize(
    "tenant", ["A", "../x", "a" * 41, "-a", "a-", "a.b", "ünï", " ", "a\n", "a/b", "٣", "t" * 300, "\x00"]
)
def test_what_is_no_label_is_hashed(tenant):
    """No id becomes a path."""
    assert re.fullmatch(r"h-[0-9a-f]{40}", corpus_key(tenant))


@given(st.lists(tenants, unique=True, min_size=2, max_size=8))
def test_two_tenants_never_share_a_key(ids):
    """The whole of isolation rests on it."""
    keys = {corpus_key(one) for one in ids}

    assert len(keys) == len(ids)
    assert PLATFORM_KEY not in keys


@given(tenants)
def test_a_key_is_a_safe_path_component_and_label(tenant):
    """It names directories, prefixes and Kubernetes objects."""
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,61}[a-z0-9]", corpus_key(tenant))


@pytest.mark.parametrize("tenant", ["x" * 1_025, "\ud800"], ids=["too-long", "lone-surrogate"])
def test_an_id_that_cannot_be_kept_is_refused(tenant):
    """Before anything is stored under it."""
    with pytest.raises(InvalidInput):
        corpus_key(tenant)


@given(st.integers(min_value=0, max_value=LARGEST_SEQUENCE))
def test_a_position_reads_back(sequence):
    """A write's answer is a read's argument."""
    assert parse_position(format_position(LIFE, sequence)) == (LIFE, sequence)


def try_position(text):
    """Return the position of `text`, or None."""
    try:
        return parse_position(text)
    except InvalidInput:
        return None


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(b"1:" + raw).decode()))
def test_anything_else_is_no_position(text):
    """Refused, never a crash; and there is one text for one position."""
    parsed = try_position(text)

    assert parsed is None or format_position(*parsed) == text


@pytest.mark.parametrize("sequence", [-1, LARGEST_SEQUENCE + 1, 2**64, 10**90])
def test_a_sequence_that_no_log_reaches_makes_no_position(sequence):
    """It would not fit into the message to the shard: a request that anyone can write must not be a bug of ours."""
    with pytest.raises(InvalidInput):
        parse_position(format_position(LIFE, sequence))


@pytest.mark.parametrize("text", ["", "A" * 36, LIFE.upper().replace("2", "A"), LIFE + "\n", LIFE[:-1], "../" + LIFE])
def test_only_a_lowercase_uuid_is_an_incarnation(text):
    """It is part of every storage prefix."""
    with pytest.raises(InvalidInput):
        parse_incarnation(text)


@given(tenant=st.one_of(st.just(""), tenants))
def test_every_corpus_key_is_one(tenant):
    """What one program writes into a setting the other takes."""
    assert parse_corpus_key(corpus_key(tenant)) == corpus_key(tenant)


@pytest.mark.parametrize("text", ["", "acme", "t-", "t-Acme", "t-a/..", "../x", "platform ", "h-12", "t-a\n", "t--a"])
def test_anything_else_is_no_corpus_key(text):
    """It becomes a path."""
    with pytest.raises(InvalidInput):
        parse_corpus_key(text)
