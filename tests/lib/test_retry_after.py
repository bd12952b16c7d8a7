"""What a foreign server says about time is a small number or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.retry_after import try_retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("0", 0, id="at-once"),
        pytest.param("007", 7, id="zeroes"),
        pytest.param("60", 60, id="most"),
        pytest.param("61", None, id="too-long"),
        pytest.param("", None, id="none"),
        pytest.param("-1", None, id="signed"),
        pytest.param("1.5", None, id="fraction"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", None, id="date"),
        pytest.param("²", None, id="another-digit"),
        pytest.param("٣", None, id="another-script"),
        pytest.param("9" * 5_000, None, id="endless"),
    ],
)
def test_only_a_plain_number_of_seconds_counts(header, seconds):
    """Each of these has come from some proxy."""
    assert try_retry_after(header, most_seconds=60) == seconds


@given(st.text())
def test_nothing_that_a_server_says_is_an_error_of_ours(header):
    """The answer that it stands on still has to be told."""
    seconds = try_retry_after(header, most_seconds=60)

    assert seconds is None or 0 <= seconds <= 60
