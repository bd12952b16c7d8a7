"""The signing key may be replaced while the router runs, and no request is refused because of it."""

import pytest

from groundplane.errors import Denied, InvalidInput
from groundplane.tokens import SigningKey, VerifyingKeys, capability_audience
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import CorpusKey, Incarnation, TenantId
from groundplane_router.capabilities import Capabilities, SigningKeyFile
from tests.fakes.clock import ManualClock
from tests.fakes.installation import Installation, private_pem

CORPUS = CorpusEntry(
    key=CorpusKey("t-acme"),
    name="acme",
    tenant=TenantId("acme"),
    incarnation=Incarnation("20000000-0000-4000-8000-000000000000"),
    endpoint="http://shard:1",
    state="ready",
    grants=(),
)
AUDIENCE = capability_audience(CORPUS.key, CORPUS.incarnation)


class Rotation:
    """A router with its key file, and a shard that knows some public keys."""

    def __init__(self, directory):
        self.clock = ManualClock()
        self.path = directory / "signing.pem"
        self.old, self.new = SigningKey.generate(), SigningKey.generate()
        self.write(private_pem(self.old))
        self.capabilities = Capabilities(SigningKey.load(self.path), self.clock)
        self.file = SigningKeyFile(self.path, self.capabilities, self.clock)

    def write(self, content):
        partial = self.path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.rename(self.path)

    def is_accepted(self, *published):
        keys = VerifyingKeys({key.id: ("router", key._key.public_key()) for key in published})
        token = self.capabilities.header(CORPUS, "read").removeprefix("Bearer ")
        try:
            keys.verify_capability(token, AUDIENCE, now=self.clock.now())
        except Denied:
            return False
        return True


@pytest.fixture
def rotation(tmp_path):
    return Rotation(tmp_path)


def test_a_rotation_refuses_no_request(rotation):
    """Publish, switch, remove: at each step what is signed is known to every shard."""
    assert rotation.is_accepted(rotation.old, rotation.new)
    rotation.write(private_pem(rotation.new))
    assert rotation.is_accepted(rotation.old, rotation.new)
    rotation.file.refresh()
    assert rotation.is_accepted(rotation.old, rotation.new)

    assert rotation.is_accepted(rotation.new)


def test_nothing_of_the_old_key_is_shown_after_the_switch(rotation):
    """Its public half goes; a cached capability of it would be refused for half a minute."""
    rotation.capabilities.header(CORPUS, "read")
    rotation.write(private_pem(rotation.new))
    rotation.file.refresh()

    assert not rotation.is_accepted(rotation.old)
    assert rotation.capabilities.key_id == rotation.new.id


def test_an_unchanged_file_signs_nothing_anew(rotation):
    """Signing takes longer than searching."""
    header = rotation.capabilities.header(CORPUS, "read")
    rotation.file.refresh()

    assert rotation.capabilities.header(CORPUS, "read") == header


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN"], ids=["missing", "empty", "half"])
def test_a_file_that_cannot_be_used_keeps_the_last_key(rotation, content, caplog):
    """As a mount that is being replaced shows for a moment; said once, without the key."""
    if content is None:
        rotation.path.unlink()
    else:
        rotation.write(content)
    rotation.file.refresh()
    rotation.file.refresh()

    assert rotation.is_accepted(rotation.old)
    assert [record.message for record in caplog.records] == ["signing_key_not_read"]


def test_a_repaired_file_is_taken(rotation):
    """Recovery needs no restart."""
    rotation.write(b"")
    rotation.file.refresh()
    rotation.write(private_pem(rotation.new))
    rotation.file.refresh()

    assert rotation.is_accepted(rotation.new)


def test_a_router_does_not_start_without_its_key(tmp_path):
    """It could ask no shard."""
    with pytest.raises(InvalidInput):
        SigningKey.load(tmp_path / "none.pem")


async def test_a_running_router_signs_with_the_new_key(tmp_path):
    """The whole way: file, poll, capability, shard."""
    async with Installation(tmp_path) as running:
        await running.index(a="pumps and valves")
        new = SigningKey.generate()
        for shard in running.shards.values():
            shard._keys = VerifyingKeys({new.id: ("router", new._key.public_key())})
        partial = tmp_path / "router.partial"
        partial.write_bytes(private_pem(new))
        partial.rename(tmp_path / "router.pem")

        async def is_served():
            return (await running.evidence("pumps and valves")).status_code == 200

        await running.until(is_served)
