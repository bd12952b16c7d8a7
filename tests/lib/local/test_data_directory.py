"""The data directory is private, and what is made once stays."""

import errno
import os
import socket
import stat
import subprocess
import sys
import uuid

import pytest

from groundplane.errors import InvalidInput
from groundplane.local.identity import prepare_incarnations, prepare_keys, read_incarnation, switch_incarnation
from groundplane.local.layout import DataDirectory, Running, write_private
from groundplane.local.lock import hold_lock
from groundplane.local.ports import claim_port, free_ports
from groundplane.local.system import announce, hold_data_directory, prepare_system
from groundplane.tokens import SigningKey, VerifyingKeys, load_public_key, verify_caller
from groundplane.wire.names import CorpusKey, Incarnation

ACME, GLOBEX = CorpusKey("t-acme"), CorpusKey("t-globex")


@pytest.fixture
def data(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    return directory


def test_directories_are_private_whatever_the_umask(tmp_path):
    """Keys and documents of all tenants lie there."""
    before = os.umask(0)
    try:
        directory = DataDirectory(tmp_path / "data")
        directory.prepare()
        prepare_keys(directory)
        write_private(directory.directory, b"{}")
    finally:
        os.umask(before)

    paths = [directory.root, *directory.root.rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()}
    files = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()}
    assert (modes, files) == ({0o700}, {0o600})


def test_a_directory_that_others_could_read_is_closed_to_them(tmp_path):
    """`mkdir` before `up --data` must not leave the keys readable."""
    (tmp_path / "data").mkdir(mode=0o755)

    DataDirectory(tmp_path / "data").prepare()

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_keys_are_made_once_and_fit_together(data):
    """A restart must not invalidate tokens, and shards must verify the router that signs."""
    prepare_keys(data)
    first = SigningKey.load(data.caller_key).id
    prepare_keys(data)

    key = SigningKey.load(data.caller_key)
    assert key.id == first
    token = key.sign_caller("system:serviceaccount:agents:a", now=0, seconds=60)
    assert verify_caller(token, load_public_key(data.caller_public_key), now=1).subject.endswith(":a")
    assert VerifyingKeys.load(data.public_keys).ids == [SigningKey.load(data.router_key).id]


def test_an_incarnation_is_made_once(data):
    """Another one would hide every document that was indexed."""
    first = prepare_incarnations(data, [ACME])
    second = prepare_incarnations(data, [GLOBEX])

    assert prepare_incarnations(data, [ACME, GLOBEX]) == {**first, **second}
    assert all(str(uuid.UUID(value)) == value for value in {**first, **second}.values())


@pytest.mark.parametrize("content", [b"", b"{", b'{"t-acme": "x"}', b"[]"])
def test_damaged_incarnations_stop_the_start(data, content):
    """Making new ones would look like an empty installation."""
    data.incarnations.write_bytes(content)

    with pytest.raises(InvalidInput, match="restore it"):
        prepare_incarnations(data, [ACME])


HOLD = "import sys; from pathlib import Path; from groundplane.local.lock import hold_lock\nwith hold_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


def test_a_data_directory_is_held_by_one_process(data):
    """Two supervisors would start two writers for each corpus."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        with pytest.raises(InvalidInput, match="in use by another groundplane up"), hold_lock(data.lock):
            pass

        holder.kill()
        holder.wait()
        with hold_lock(data.lock):
            pass


def test_what_runs_is_announced_only_while_it_is_held(data):
    """The other commands must not be sent to a router that has gone."""
    running = Running(url="http://127.0.0.1:1", pid=1)
    with hold_data_directory(data):
        announce(data, running)
        assert data.read_running() == running

    assert data.read_running() is None


def test_a_port_in_use_is_refused_with_what_to_do():
    """Port 8080 is often taken."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()

        with pytest.raises(InvalidInput, match="--port 0"):
            claim_port(holder.getsockname()[1])


def test_free_ports_are_different():
    """Two shards cannot share one."""
    assert len(set(free_ports(20))) == 20


@pytest.mark.parametrize("name", ["incarnations.json", "directory.json", "keys/caller-public.pem"])
def test_a_file_that_cannot_be_used_is_named(data, name):
    """Read-only, full, or a directory in its place: a sentence for whoever has to mend it, no traceback."""
    (data.root / name).mkdir()

    with pytest.raises(InvalidInput, match=f"{data.root} cannot be used: {name}: Is a directory"):
        prepare_system(data, [], 0, {})


def test_a_disk_that_is_full_is_named(data):
    """The commonest fault of all."""
    with (
        pytest.raises(InvalidInput, match=r"cannot be used: keys/caller\.pem: No space left on device"),
        data.named_faults(),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(data.caller_key))


def test_a_lock_that_cannot_be_made_is_no_other_up(data):
    """ "In use" would send the user looking for a process that does not exist."""
    data.lock.mkdir()

    with pytest.raises(InvalidInput, match=r"up\.lock cannot be held: Is a directory"), hold_lock(data.lock):
        pass


def test_another_incarnation_is_that_of_one_corpus_and_of_every_later_start(data):
    """A restore of one tenant must not move another's, nor be forgotten."""
    before = prepare_incarnations(data, [ACME, GLOBEX])
    fresh = Incarnation(str(uuid.UUID(int=1)))
    switch_incarnation(data, ACME, fresh)

    assert prepare_incarnations(data, [ACME, GLOBEX]) == {ACME: fresh, GLOBEX: before[GLOBEX]}
    assert read_incarnation(data, ACME) == fresh


def test_a_corpus_that_was_never_started_has_no_incarnation(data):
    """One made up here would name nothing in the store."""
    with pytest.raises(InvalidInput, match="start groundplane up with it first"):
        read_incarnation(data, ACME)
