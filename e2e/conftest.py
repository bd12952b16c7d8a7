"""The cluster that `python -m e2e` made for the tests."""

import os

import msgspec
import pytest

from e2e.cluster.environment import VARIABLE, Environment


@pytest.fixture(scope="session")
def environment() -> Environment:
    """Give what the tests need to know of their cluster."""
    told = os.environ.get(VARIABLE)
    if told is None:
        pytest.fail("no cluster: these tests are started by `make e2e` or `python -m e2e [pytest arguments]`")
    return msgspec.json.decode(told, type=Environment)
