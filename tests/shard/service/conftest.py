"""Fixtures of the tests of a whole shard."""

import pytest

from groundplane_shard.stores import MemoryStore
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.shard_parts import make_shard
from tests.support.failing_store import FailingStore


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """The protocol's pauses between tries carry no meaning here."""
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)


@pytest.fixture
def store():
    return FailingStore(MemoryStore())


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def shard(store, tmp_path, clock):
    return make_shard(store, tmp_path / "work", clock=clock)
