"""The witness that the operator keeps: never lower, rarely written, in the shard's own format."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_operator.children import next_witness
from groundplane_operator.observed import ChildKind
from groundplane_operator.render.config_map import render_config_map
from groundplane_operator.witness import (
    WITNESS_SECONDS,
    Witness,
    Witnessed,
    format_time,
    parse_time,
    raise_witness,
    try_parse_witness,
)
from groundplane_shard.log import Witness as ShardWitness
from tests.operator.parts import IN_BUCKET, KEYS, NOW, SHARD, accepted, corpus_of, seen_of

WITNESSES = st.builds(Witness, st.integers(0, 5), st.integers(0, 9))
REPORTS = st.lists(st.tuples(WITNESSES, st.floats(0, 100)), max_size=12)


@given(REPORTS)
@settings(deadline=None)
def test_a_witness_is_never_lowered_and_never_written_twice_in_thirty_seconds(reports):
    """A lower one would hide a loss; a shard that is behind reports what it has."""
    known, now, written = None, NOW, []
    for reported, passed in reports:
        now += passed
        after = raise_witness(known, reported, now)
        assert after is not None
        if after is not known:
            assert known is None or after.witness > known.witness
            written.append(now)
        known = after

    # times are kept in whole seconds
    assert all(later - earlier >= WITNESS_SECONDS - 1 for earlier, later in pairwise(written))


@given(WITNESSES, WITNESSES)
@settings(deadline=None)
def test_after_thirty_seconds_the_higher_of_two_stands(known, reported):
    """Epoch first, as the shard compares them."""
    after = raise_witness(Witnessed(known, format_time(NOW)), reported, NOW + WITNESS_SECONDS)

    assert after is not None
    assert after.witness == max(known, reported)


def test_a_clock_that_went_back_does_not_stop_the_witness():
    """No rule may rest on a clock."""
    after = raise_witness(Witnessed(Witness(1, 1), format_time(NOW + 9_999)), Witness(1, 2), NOW)

    assert after is not None
    assert after.witness == Witness(1, 2)


def test_the_shard_reads_what_the_operator_writes():
    """The format is declared in both programs, since they never import each other."""
    rendered = render_config_map(corpus_of(IN_BUCKET), KEYS, Witnessed(Witness(3, 94), format_time(NOW)))
    text = rendered["data"]["witness.json"]

    assert msgspec.json.decode(text, type=ShardWitness) == ShardWitness(3, 94)  # type: ignore[arg-type]  # plain numbers
    assert text == '{"epoch":3,"sequence":94}'


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        pytest.param(
            '{"epoch":1,"sequence":2}', format_time(NOW), Witnessed(Witness(1, 2), format_time(NOW)), id="ours"
        ),
        pytest.param('{"epoch":1,"sequence":2}', "x", Witnessed(Witness(1, 2), format_time(0)), id="time-was-edited"),
        pytest.param('{"epoch":1}', format_time(NOW), None, id="half"),
        pytest.param("", "", None, id="none"),
    ],
)
def test_what_stands_in_the_config_map_is_read_or_not_believed(text, at, expected):
    """Somebody may have edited it."""
    assert try_parse_witness(text, at) == expected


def test_a_config_map_that_was_deleted_gets_the_last_known_sequence_back():
    """Deleting it by hand, while the shard is down, must not open the door to a store that lost its end."""
    resource = accepted(IN_BUCKET)
    known = msgspec.structs.replace(resource, status=msgspec.structs.replace(resource.status, sequence=40))

    assert next_witness(seen_of(known), NOW) == Witnessed(Witness(0, 40), format_time(0))
    found = next_witness(seen_of(known, shard=SHARD), NOW)
    assert found is not None
    assert found.witness == Witness(2, 40)


def test_a_witness_that_is_there_counts_more_than_the_status():
    """It has the epoch."""
    config_map = render_config_map(corpus_of(IN_BUCKET), KEYS, Witnessed(Witness(3, 94), format_time(NOW)))
    found = next_witness(seen_of(accepted(IN_BUCKET), children={ChildKind.CONFIG_MAP: config_map}), NOW)

    assert found == Witnessed(Witness(3, 94), format_time(NOW))


def test_times_are_written_as_kubernetes_does():
    """They stand in status and annotations."""
    assert format_time(NOW + 0.9) == "2026-09-21T14:13:20Z"
    assert parse_time("2026-09-21T14:13:20Z") == NOW
