"""Why a process ended is found in its log."""

import pytest

from groundplane.local.child import MAX_WORDS, last_words, refusal

INFO = '{"time":"t","level":"info","component":"shard","event":"shard_ready","sequence":1}'
ERROR = '{"time":"t","level":"error","component":"shard","event":"store_failed","code":"no_space"}'


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(f"{INFO}\n", "", id="an-orderly-event-is-no-reason"),
        pytest.param(f"{INFO}\n{ERROR}\n", "store_failed code=no_space", id="an-error-event"),
        pytest.param("Traceback:\n  line\nImportError: numpy\n\n", "ImportError: numpy", id="a-traceback"),
        pytest.param("", "", id="nothing"),
        pytest.param("x" * 1_000, "x" * MAX_WORDS, id="long"),
    ],
)
def test_the_last_line_counts_if_it_says_why(tmp_path, log, expected):
    """A report that quotes "ready" as the reason of a crash misleads."""
    path = tmp_path / "shard.log"
    path.write_text(log)

    assert last_words(path) == expected


def test_refused_settings_are_quoted_whole_and_of_the_last_start(tmp_path):
    """Two faulty variables are two lines, and those of yesterday are none."""
    path = tmp_path / "shard.log"
    path.write_text(f"groundplane: OLD\n{INFO}\ngroundplane: A=x: expected\nB=y: expected\n")

    assert refusal(path) == "A=x: expected\nB=y: expected"


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    """The report of a crash must not crash."""
    assert last_words(tmp_path / "nowhere.log") == ""
