"""The keys of a bucket: where they come from, when they are read again, and where they never appear."""

import pytest

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.settings import read_settings
from groundplane_shard.stores.s3 import Credentials, MountedCredentials, S3Settings, credential_source


def mount(directory, generation, **keys):
    """Write a Secret as Kubernetes mounts it, or replace it as Kubernetes rotates it: by one swap of a link."""
    versions = directory / f"..{generation}"
    versions.mkdir()
    for name, value in keys.items():
        (versions / name.replace("_", "-")).write_text(value)
        link = directory / name.replace("_", "-")
        if not link.is_symlink():
            link.symlink_to(f"..data/{link.name}")
    (directory / "..data_tmp").symlink_to(versions.name)
    (directory / "..data_tmp").rename(directory / "..data")
    return directory


def test_keys_come_from_the_environment():
    """The simple case."""
    settings = read_settings(S3Settings, {"GROUNDPLANE_S3_ACCESS_KEY": "a", "GROUNDPLANE_S3_SECRET_KEY": "s"})

    assert credential_source(settings).current() == Credentials("a", "s", "")


def test_mounted_keys_are_read_without_the_newline_at_their_end(tmp_path):
    """Most editors and `echo` put one there."""
    mount(tmp_path, "1", access_key="a\n", secret_key="s\n", session_token="t\n")

    assert credential_source(S3Settings(credentials_directory=str(tmp_path))).current() == Credentials("a", "s", "t")


def test_rotated_keys_are_read_at_the_next_request(tmp_path):
    """A Secret is rotated without a restart."""
    source = MountedCredentials(mount(tmp_path, "1", access_key="a1", secret_key="s1"))
    before = source.current()
    mount(tmp_path, "2", access_key="a2", secret_key="s2")

    assert (before, source.current()) == (Credentials("a1", "s1"), Credentials("a2", "s2"))


def test_keys_are_never_of_two_rotations(tmp_path, monkeypatch):
    """An access key with another one's secret is refused, and looks like a theft."""
    source = MountedCredentials(mount(tmp_path, "1", access_key="a1", secret_key="s1"))
    read = source._content

    def rotated_meanwhile(name):
        content = read(name)
        if content == "a1" and name == "access-key":
            mount(tmp_path, "2", access_key="a2", secret_key="s2")
        return content

    monkeypatch.setattr(source, "_content", rotated_meanwhile)

    assert source.current() == Credentials("a2", "s2")


def test_reload_says_whether_there_are_other_keys(tmp_path):
    """Only then is it worth asking the store again."""
    source = MountedCredentials(mount(tmp_path, "1", access_key="a1", secret_key="s1"))
    refused = source.current()
    unchanged = source.reload(refused)
    mount(tmp_path, "2", access_key="a2", secret_key="s2")

    assert (unchanged, source.reload(refused)) == (False, True)


@pytest.mark.parametrize(
    "keys",
    [{}, {"access_key": "a"}, {"access_key": "a", "secret_key": "\n"}, {"access_key": "a", "secret_key": "two words"}],
    ids=["nothing", "no-secret", "empty", "not-a-key"],
)
def test_secret_that_is_not_there_yet_is_unavailable(tmp_path, keys):
    """The Secret may be mounted later; the process waits and says what it misses, not what it found."""
    with pytest.raises(Unavailable) as refusal:
        MountedCredentials(mount(tmp_path, "1", **keys)).current()
    assert refusal.value.code == "store_denied"
    assert "two words" not in refusal.value.message


@pytest.mark.parametrize(
    "settings",
    [
        S3Settings(),
        S3Settings(access_key="a"),
        S3Settings(secret_key="5ecret"),
        S3Settings(access_key="a", secret_key="5ecret", credentials_directory="/run/secrets"),
        S3Settings(session_token="5ecret", credentials_directory="/run/secrets"),
        S3Settings(access_key="a", secret_key="5ecret\r\nx-evil: 1"),
    ],
    ids=["none", "no-secret", "no-access-key", "both", "token-beside-directory", "newline"],
)
def test_settings_that_name_no_keys_or_two_are_refused(settings):
    """A guess would use keys that nobody meant."""
    with pytest.raises(InvalidInput) as refusal:
        credential_source(settings)
    assert "5ecret" not in refusal.value.message


def test_keys_are_not_shown():
    """Whatever logs an object must not log its keys."""
    credentials = Credentials("access", "5ecret", "t0ken")

    assert not any(part in f"{credentials!r} {credentials}" for part in ("access", "5ecret", "t0ken"))
