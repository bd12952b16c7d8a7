"""A shard accepts the keys that its directory holds now, and reports them, without a restart."""

import pytest

from groundplane.errors import Denied, InvalidInput
from groundplane.tokens import SigningKey
from groundplane_shard.mounted_keys import MountedKeys

NOW = 1_700_000_000.0
AUDIENCE = "t-acme/0b51a2ab-6a1f-4a54-8f6e-0a5a1c4d9c11"


def _publish(directory, key):
    (directory / f"router-{key.id}.pem").write_bytes(key.public_pem())


def _verify(keys, key):
    return keys.verify_capability(key.sign_capability(AUDIENCE, "read", now=NOW), AUDIENCE, now=NOW)


def test_a_key_that_is_published_later_is_accepted_and_reported(tmp_path):
    """The operator switches the signer once every shard has reported the new key."""
    old, new = SigningKey.generate(), SigningKey.generate()
    _publish(tmp_path, old)
    keys = MountedKeys(tmp_path)
    with pytest.raises(Denied):
        _verify(keys, new)

    _publish(tmp_path, new)

    assert _verify(keys, new).right == "read"
    assert keys.ids == sorted([old.id, new.id])


def test_a_key_that_is_removed_is_refused(tmp_path):
    """A key that was taken out of service opens nothing any more."""
    old, new = SigningKey.generate(), SigningKey.generate()
    _publish(tmp_path, old)
    _publish(tmp_path, new)
    keys = MountedKeys(tmp_path)
    assert _verify(keys, old).right == "read"

    (tmp_path / f"router-{old.id}.pem").unlink()

    with pytest.raises(Denied):
        _verify(keys, old)


@pytest.mark.parametrize("break_it", [lambda path: path.unlink(), lambda path: path.write_text("no key")])
def test_keys_that_cannot_be_read_change_nothing(tmp_path, break_it):
    """A fault of the mount must not lock every caller out."""
    key = SigningKey.generate()
    _publish(tmp_path, key)
    keys = MountedKeys(tmp_path)

    break_it(tmp_path / f"router-{key.id}.pem")

    assert _verify(keys, key).right == "read"
    assert keys.ids == [key.id]


def test_a_shard_does_not_start_without_keys(tmp_path):
    """It would refuse everyone, and say so to nobody."""
    with pytest.raises(InvalidInput, match=r"holds no router-\*\.pem"):
        MountedKeys(tmp_path)
