"""Quantities and durations mean what they mean to Kubernetes and Go."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.api.formats import parse_duration_seconds, parse_quantity, parse_size_bytes
from groundplane.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("4Gi", 4 * 2**30, id="binary"),
        pytest.param("1.5G", 1_500_000_000, id="decimal-fraction"),
        pytest.param("500m", Fraction(1, 2), id="milli"),
        pytest.param("2", 2, id="bare"),
        pytest.param(7, 7, id="integer-of-yaml"),
        pytest.param("1e3", 1_000, id="exponent"),
        pytest.param("1E", 10**18, id="exa-is-no-exponent"),
    ],
)
def test_quantities_have_their_kubernetes_value(text, expected):
    """A size read otherwise than the API server reads it makes a volume of another size."""
    assert parse_quantity(text, "size") == expected


@pytest.mark.parametrize("text", ["", "-1", "4GiB", "4 Gi", "Gi", "1e", "٣", "1\n", "9" * 40])
def test_other_texts_are_no_quantities(text):
    """A typing error must not become a number."""
    with pytest.raises(InvalidInput) as caught:
        parse_quantity(text, "spec.storage.size")

    assert caught.value.field == "spec.storage.size"


def test_sizes_round_up_to_whole_bytes():
    """Half a byte asked for is a byte, as Kubernetes rounds."""
    assert parse_size_bytes("1500m", "size") == 2


@pytest.mark.parametrize("text", ["0", "9Ei"])
def test_sizes_outside_64_bits_are_refused(text):
    """They could not be handed to the API server."""
    with pytest.raises(InvalidInput):
        parse_size_bytes(text, "size")


@given(hours=st.integers(0, 99), minutes=st.integers(0, 999), seconds=st.integers(0, 9_999))
def test_durations_are_the_sum_of_their_parts(hours, minutes, seconds):
    """1h30m is 5,400 seconds whatever the units are that it is written in."""
    assert parse_duration_seconds(f"{hours}h{minutes}m{seconds}s", "every") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize("text", ["", "10", "10 m", "m", "-1s", "1d", "1m\n"])
def test_other_texts_are_no_durations(text):
    """A bare number has no unit, and guessing one is wrong by a factor of 60."""
    with pytest.raises(InvalidInput):
        parse_duration_seconds(text, "every")
