"""Settings that may be unset."""

from typing import Annotated

import msgspec
import pytest

from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[int | None, setting("SIZE", "a size from 1 to 9", ge=1, le=9)] = None


def test_an_optional_setting_is_read_and_bounded():
    """A bound on `int | None` must hold, and must not stop the program that declares it."""
    assert read_settings(Optional, {}).size is None
    assert read_settings(Optional, {"SIZE": "7"}).size == 7


@pytest.mark.parametrize("raw", ["0", "10", "null", "x"])
def test_an_optional_setting_out_of_bounds_names_its_variable(raw):
    """Whoever set it sees which one and what it may be."""
    with pytest.raises(InvalidInput, match=f"SIZE={raw}: .*a size from 1 to 9"):
        read_settings(Optional, {"SIZE": raw})
