"""Logs: one JSON object a line, whatever is in it."""

import io
import json
import logging

import pytest

from groundplane.process.logs import Log, configure_logs


@pytest.fixture
def stream():
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    written = io.StringIO()
    configure_logs("info", written)
    yield written
    root.handlers[:], root.level = kept


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_fields(stream):
    """Events with fields can be counted; sentences cannot."""
    Log("shard").info("snapshot_published", sequence=38, seconds=0.4)
    (line,) = lines(stream)

    assert {name: line[name] for name in ("level", "component", "event", "sequence", "seconds")} == {
        "level": "info", "component": "shard", "event": "snapshot_published", "sequence": 38, "seconds": 0.4,
    }  # fmt: skip
    assert line["time"].endswith("+00:00")


def test_a_line_break_in_a_value_stays_in_its_line(stream):
    """Nobody forges a log line with a file name."""
    Log("x").warning("event", name='a\n{"level":"error"}\r\n\u2028b')

    assert stream.getvalue().count("\n") == 1
    assert "\r" not in stream.getvalue()


def test_long_values_and_tracebacks_are_cut(stream):
    """One bad value must not fill a disk."""
    Log("x").error("event", value="x" * 1_000_000)
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError:
        Log("x").exception("bug")

    assert all(len(line) < 20_000 for line in stream.getvalue().splitlines())


def test_a_value_of_any_type_is_written(stream):
    """A log line that fails hides the event."""
    Log("x").info("event", value={"a": {1, 2}}, other=object())

    assert lines(stream)[0]["event"] == "event"


def test_foreign_libraries_take_the_same_shape(stream):
    """One parser for everything in the pod."""
    logging.getLogger("somebody").warning("said %s", "this")

    assert lines(stream)[0] | {"time": ""} == {
        "time": "", "level": "warning", "component": "somebody", "event": "said this",
    }  # fmt: skip


def test_a_client_library_does_not_write_addresses(stream):
    """Its lines hold paths, and paths hold document ids."""
    logging.getLogger("httpx").info("HTTP Request: GET http://x/v1/documents/secret")

    assert stream.getvalue() == ""


def test_below_the_level_nothing_is_written(stream):
    """`info` is what an operator reads."""
    logging.getLogger("groundplane.x").debug("noise")

    assert stream.getvalue() == ""


def test_a_traceback_says_where_and_what_kind_and_quotes_nothing(stream):
    """Texts of foreign errors hold what they choked on: a tenant's document, or its id."""
    document, title = "secret document", "secret title"
    try:
        try:
            dict[str, str]()[document]
        except KeyError as error:
            raise ValueError(title) from error
    except ValueError:
        Log("x").exception("bug")

    (line,) = lines(stream)
    assert "secret" not in stream.getvalue()
    assert line["traceback"].index("builtins.KeyError") < line["traceback"].index("builtins.ValueError")
    assert "test_logs.py" in line["traceback"]
