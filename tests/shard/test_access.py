"""Capabilities: verified once, remembered until they expire, and good for one right on one life of one corpus."""

import pytest
from starlette.datastructures import Headers

from groundplane.errors import Denied
from groundplane.tokens import CAPABILITY_SECONDS, SigningKey, capability_audience
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_shard import access as module
from groundplane_shard.access import Access
from groundplane_shard.mounted_keys import MountedKeys
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.shard_parts import INCARNATION

AUDIENCE = capability_audience(CorpusKey("t-acme"), Incarnation(INCARNATION))


class Door:
    """An `Access` with the key of one router, and a count of signatures checked."""

    def __init__(self, directory):
        self.clock = VirtualClock()
        self.key = SigningKey.generate()
        (directory / f"router-{self.key.id}.pem").write_bytes(self.key.public_pem())
        self.keys = MountedKeys(directory)
        self.access = Access(self.keys, AUDIENCE, self.clock)
        self.verified = 0
        verify = self.keys.verify_capability

        def counted(*arguments, **named):
            self.verified += 1
            return verify(*arguments, **named)

        vars(self.keys)["verify_capability"] = counted

    def token(self, right="read", audience=AUDIENCE):
        return self.key.sign_capability(audience, right, now=self.clock.now())

    def check(self, *headers, rights=("read",)):
        self.access.check(Headers(raw=[(b"authorization", each.encode()) for each in headers]), *rights)


@pytest.fixture
def door(tmp_path):
    return Door(tmp_path)


def test_a_capability_is_verified_once(door):
    """Ed25519 costs as much as a small search."""
    token = door.token()
    for _ in range(5):
        door.check(f"Bearer {token}")

    assert door.verified == 1


def test_a_remembered_capability_ends_with_its_time(door):
    """The memory must not be longer than the capability."""
    token = door.token()
    door.check(f"Bearer {token}")
    door.clock.advance(CAPABILITY_SECONDS + 1)

    with pytest.raises(Denied) as caught:
        door.check(f"Bearer {token}")
    assert caught.value.status == 401


def test_a_remembered_capability_grants_no_other_right(door):
    """What is remembered is what it says, not that it was let in."""
    token = door.token()
    door.check(f"Bearer {token}")

    with pytest.raises(Denied) as caught:
        door.check(f"Bearer {token}", rights=("write",))
    assert caught.value.status == 403


def test_a_refused_token_is_not_remembered(door):
    """Nothing may be let in by having been refused before."""
    other = door.token(audience=capability_audience(CorpusKey("t-other"), Incarnation(INCARNATION)))
    for _ in range(2):
        with pytest.raises(Denied):
            door.check(f"Bearer {other}")

    assert door.verified == 2


@pytest.mark.parametrize(
    "headers", [(), ("Basic YTpi",), ("Bearer",), ("bearer x", "bearer x")], ids=["none", "scheme", "empty", "two"]
)
def test_anything_but_one_bearer_token_is_refused(door, headers):
    """Two headers are how proxies and servers come to disagree about who is calling."""
    with pytest.raises(Denied) as caught:
        door.check(*headers)
    assert (caught.value.status, caught.value.code) == (401, "capability_denied")


def test_what_is_remembered_is_bounded(door, monkeypatch):
    """A router that signs a new token every second must not fill the shard's memory: I20."""
    monkeypatch.setattr(module, "_MAX_CACHED", 4)
    for _ in range(20):
        door.clock.advance(1.0)
        door.check(f"Bearer {door.token()}")

    assert len(door.access._verified) <= 4
