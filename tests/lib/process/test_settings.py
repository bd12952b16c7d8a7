"""Settings: every fault at once, by name, secrets unquoted."""

from typing import Annotated, Literal

import msgspec
import pytest

from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting, settings_table


def check_name(text):
    if not text.isalpha():
        raise InvalidInput(f"name {text!r}: expected letters")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    path: Annotated[str, setting("EXAMPLE_PATH", "a path")]
    seconds: Annotated[float, setting("EXAMPLE_SECONDS", "at least 0", ge=0)] = 1.5
    level: Annotated[Literal["low", "high"], setting("EXAMPLE_LEVEL", "low or high")] = "low"
    key: Annotated[str | None, setting("EXAMPLE_KEY", "a key of 8 characters", secret=True, min_length=8)] = None
    flag: Annotated[bool, setting("EXAMPLE_FLAG", "true or false")] = False
    name: Annotated[str, setting("EXAMPLE_NAME", "a name", check=check_name)] = "x"
    token: Annotated[str, setting("EXAMPLE_TOKEN", "a token", secret=True, check=check_name)] = "x"


def test_values_are_converted_and_defaults_kept():
    """Text in, types out."""
    settings = read_settings(
        Example, {"EXAMPLE_PATH": "/x", "EXAMPLE_SECONDS": "3", "EXAMPLE_FLAG": "true", "OTHER": "1"}
    )

    assert settings == Example(path="/x", seconds=3.0, flag=True)


def test_an_empty_value_counts_as_unset():
    """A chart writes an empty value where nothing was chosen."""
    assert read_settings(Example, {"EXAMPLE_PATH": "/x", "EXAMPLE_SECONDS": ""}).seconds == 1.5

    with pytest.raises(InvalidInput, match="EXAMPLE_PATH is not set: expected a path"):
        read_settings(Example, {"EXAMPLE_PATH": ""})


def test_all_faults_are_reported_together():
    """Fixing one and meeting the next is a bad evening."""
    with pytest.raises(InvalidInput) as fault:
        read_settings(Example, {"EXAMPLE_SECONDS": "-1", "EXAMPLE_LEVEL": "middle"})

    lines = fault.value.message.splitlines()
    assert [line.split("=")[0].split()[0] for line in lines] == ["EXAMPLE_PATH", "EXAMPLE_SECONDS", "EXAMPLE_LEVEL"]
    assert fault.value.code == "invalid_settings"


def test_a_secret_is_never_quoted():
    """The fault goes to the log of whoever starts it."""
    with pytest.raises(InvalidInput) as fault:
        read_settings(Example, {"EXAMPLE_PATH": "/x", "EXAMPLE_KEY": "canary"})

    assert "EXAMPLE_KEY=(secret)" in fault.value.message
    assert "canary" not in fault.value.message


def test_what_only_its_user_can_judge_is_named_and_told_with_the_rest():
    """A name that no store takes is a fault of the setting, and found where all the others are."""
    with pytest.raises(InvalidInput) as fault:
        read_settings(Example, {"EXAMPLE_NAME": "a/b", "EXAMPLE_LEVEL": "middle", "EXAMPLE_TOKEN": "canary-1"})

    assert fault.value.message.splitlines() == [
        "EXAMPLE_PATH is not set: expected a path",
        "EXAMPLE_LEVEL=middle: expected low or high",
        "EXAMPLE_NAME=a/b: expected letters",
        "EXAMPLE_TOKEN=(secret): expected a token",
    ]


def test_a_long_value_is_cut():
    """A whole file in a variable must not fill the log."""
    with pytest.raises(InvalidInput) as fault:
        read_settings(Example, {"EXAMPLE_PATH": "/x", "EXAMPLE_LEVEL": "x" * 10_000})

    assert len(fault.value.message) < 512


def test_the_table_lists_every_setting_with_its_default():
    """The docs are compared with it."""
    rows = [(row.variable, row.default) for row in settings_table(Example)]

    assert rows == [
        ("EXAMPLE_PATH", "required"), ("EXAMPLE_SECONDS", "1.5"), ("EXAMPLE_LEVEL", "low"), ("EXAMPLE_KEY", ""),
        ("EXAMPLE_FLAG", "False"), ("EXAMPLE_NAME", "x"), ("EXAMPLE_TOKEN", "x"),
    ]  # fmt: skip


def test_a_field_without_a_variable_is_a_bug():
    """Found by the first start, not by the first user."""

    class Wrong(msgspec.Struct):
        field: str = ""

    with pytest.raises(TypeError, match=r"Wrong\.field"):
        read_settings(Wrong, {})
