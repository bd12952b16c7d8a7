"""What only the local store promises: modes, crashes, faults of the disk, several processes."""

import asyncio
import errno
import hashlib
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import Absent, Found, LocalFile, PreconditionFailed, Stored
from groundplane_shard.stores import LocalStore, files

KEY = "t-acme/i/log/00000000000000000001"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(root):
    store = LocalStore(root)
    yield store
    store.close()


def modes(root):
    """Return the mode of everything below and including `root`, by path."""
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in (root, *root.rglob("*"))}


def expected_modes(root):
    """Return the private mode that each of them must have."""
    return {str(path.relative_to(root)): 0o700 if path.is_dir() else 0o600 for path in (root, *root.rglob("*"))}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277], ids=oct)
async def test_modes_are_private_whatever_the_umask(root, umask):
    """Tenants' records lie here; a careless umask must not publish or lock them."""
    before = os.umask(umask)
    try:
        store = LocalStore(root)
        await store.create(KEY, b"one")
        await store.replace(KEY, b"two", hashlib.sha256(b"one").hexdigest())
        store.close()
    finally:
        os.umask(before)

    assert modes(root) == expected_modes(root)


async def test_wrong_modes_are_repaired_at_opening(root, store):
    """A restore by hand or another tool leaves what its umask says."""
    await store.create(KEY, b"one")
    (root / KEY).chmod(0o644)
    (root / "t-acme").chmod(0o755)
    LocalStore(root).close()

    assert modes(root) == expected_modes(root)


CRASHING = """
import asyncio, os, sys
from pathlib import Path
from groundplane_shard.stores import LocalStore, files

calls, deadly = 0, int(sys.argv[2])

def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == deadly:
            os._exit(9)
        return function(*arguments, **options)
    return call

async def main():
    store = LocalStore(Path(sys.argv[1]))
    stored = await store.create("t/old", b"o" * 10_000)
    for name in ("open", "fsync", "link", "rename", "replace", "unlink", "fchmod", "mkdir", "close", "fdopen"):
        setattr(os, name, counted(getattr(os, name)))
    await store.create("t/new/a", b"n" * 10_000)
    await store.replace("t/old", b"r" * 10_000, stored.etag)
    await store.delete("t/new/a")
    print("done", calls)

asyncio.run(main())
"""


def crash_at(root, call):
    """Run the script in a process of its own that dies at this system call; return what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(CRASHING), str(root), str(call)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def test_opening_does_not_mind_what_another_process_removes_meanwhile(root, store, monkeypatch):
    """Shards of one machine share the root: one that starts while another tidies up must not fail."""
    await store.create("a/b", b"1")
    walked: list[tuple[str, list[str], list[str]]] = [(str(root), [], ["gone"]), (str(root / "a"), [], ["b"])]
    monkeypatch.setattr(os, "walk", lambda _root: walked)

    LocalStore(root).close()


async def test_kill_at_any_system_call_leaves_no_half_object(tmp_path):
    """kill -9 and power loss choose their moment; an object is there whole or not at all, and the next start tidies up."""
    total = int(crash_at(tmp_path / "whole", 0).split()[1])
    assert total > 15
    for call in range(1, total + 1):
        root = tmp_path / str(call)
        assert crash_at(root, call) == ""
        store = LocalStore(root)
        new, old = await store.get("t/new/a"), await store.get("t/old")
        store.close()

        assert isinstance(new, Absent) or new.data == b"n" * 10_000
        assert isinstance(old, Found)
        assert old.data in (b"o" * 10_000, b"r" * 10_000)
        assert list((root / ".temporary").iterdir()) == []
        assert modes(root) == expected_modes(root)


async def test_opening_leaves_another_process_its_unfinished_object(root, store):
    """A second process that starts must not take the file from under the first one's pen."""
    with store._writing(root / KEY) as (file, temporary):
        file.write(b"unfinished")
        LocalStore(root).close()

        assert temporary.exists()


async def test_two_stores_on_one_directory_have_one_winner(root, store):
    """Two processes share a directory as two writers share a bucket."""
    other = LocalStore(root)
    first = await store.create(KEY, b"one")

    assert await other.create(KEY, b"two") == PreconditionFailed()
    assert isinstance(await other.replace(KEY, b"two", first.etag), Stored)
    assert await store.replace(KEY, b"three", first.etag) == PreconditionFailed()
    other.close()


REPLACING = """
import asyncio, sys
from pathlib import Path
from groundplane_shard.log.operations import Stored
from groundplane_shard.stores import LocalStore, files

async def main():
    store, won = LocalStore(Path(sys.argv[1])), 0
    while won < 20:
        found = await store.get("t/counter")
        answer = await store.replace("t/counter", b"%d" % (int(found.data) + 1), found.etag)
        won += isinstance(answer, Stored)

asyncio.run(main())
"""


async def test_processes_that_replace_at_once_lose_no_change(root, store):
    """Compare-and-set between processes needs the lock: a lost update is a lost epoch."""
    await store.create("t/counter", b"0")
    processes = [subprocess.Popen([sys.executable, "-c", REPLACING, str(root)]) for _ in range(3)]  # noqa: ASYNC220  # they are waited for
    assert [process.wait(60) for process in processes] == [0, 0, 0]

    assert (await store.get("t/counter")).data == b"60"


def failing(error_number, only=lambda descriptor: True):
    """Return an fsync that fails with this error on descriptors that `only` selects."""
    real = os.fsync

    def fsync(descriptor):
        if only(descriptor):
            raise OSError(error_number, os.strerror(error_number))
        real(descriptor)

    return fsync


async def test_bytes_are_durable_before_the_name_and_the_name_before_the_answer(store, monkeypatch):
    """After a power loss an acknowledged object is there, and no name leads to bytes that are not."""
    created = await store.create(f"{KEY}0", b"makes the directory")
    order = []
    for name in ("fsync", "link", "rename", "replace"):
        real = getattr(os, name)

        def noted(*arguments, name=name, real=real, **options):
            order.append("fsync directory" if name == "fsync" and is_directory(arguments[0]) else name)
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, noted)
    await store.create(KEY, b"one")
    await store.replace(f"{KEY}0", b"two", created.etag)

    assert order == ["fsync", "link", "fsync directory", "fsync", "replace", "fsync directory"]


def is_directory(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["io", "no-space"])
async def test_failed_fsync_ends_all_writing_until_the_next_start(root, store, monkeypatch, number):
    """After it nobody knows what the disk holds; a second fsync that succeeds proves nothing."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing(number))
        with pytest.raises(Unavailable):
            await store.create(KEY, b"one")
    with pytest.raises(Unavailable, match="restart"):
        await store.create(KEY, b"one")
    with pytest.raises(Unavailable, match="restart"):
        await store.replace(KEY, b"one", "e")

    assert await store.get(KEY) == Absent()
    restarted = LocalStore(root)
    assert isinstance(await restarted.create(KEY, b"one"), Stored)
    restarted.close()


async def test_failed_fsync_of_the_directory_is_an_unknown_outcome(store, monkeypatch):
    """The name exists now and may be gone after a power loss: neither success nor failure."""
    await store.create(f"{KEY}0", b"makes the directory")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO, only=is_directory))

    with pytest.raises(OutcomeUnknown):
        await store.create(KEY, b"one")


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EROFS, "read_only"), (errno.EMFILE, "store_io")],
    ids=["no-space", "quota", "read-only", "descriptors"],
)
async def test_fault_of_the_system_refuses_the_write_and_passes(store, monkeypatch, number, code):
    """Nothing was stored, the text says what to do, and the next write works when the cause is gone."""
    with monkeypatch.context() as patched:

        def refuse(*arguments):
            raise OSError(number, os.strerror(number))

        patched.setattr(os, "fchmod", refuse)
        with pytest.raises(Unavailable) as refusal:
            await store.create(KEY, b"one")

    assert (refusal.value.code, type(refusal.value)) == (code, Unavailable)
    assert isinstance(await store.create(KEY, b"one"), Stored)


async def test_link_in_place_of_an_object_is_not_followed(root, store, tmp_path):
    """A link placed by somebody else must not lead reading out of the store."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    (root / "t-acme/i/log").mkdir(parents=True)
    (root / KEY).symlink_to(outside)

    with pytest.raises(Unavailable):
        await store.get(KEY)


async def test_root_that_cannot_be_made_is_refused(tmp_path):
    """A wrong path is told at start, with the path."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Unavailable, match="file/store"):
        LocalStore(tmp_path / "file" / "store")


async def test_directories_that_become_empty_are_removed(root, store):
    """Every snapshot has a directory of its own; they must not pile up."""
    await store.create("t-acme/i/snapshots/u1/data/a", b"x")
    await store.create("t-acme/i/snapshots/u2/a", b"x")
    await store.delete("t-acme/i/snapshots/u1/data/a")

    assert sorted(path.name for path in Path(root / "t-acme/i/snapshots").iterdir()) == ["u2"]  # noqa: ASYNC240  # a test


async def test_large_files_do_not_keep_the_log_waiting(store, tmp_path, monkeypatch):
    """A snapshot uploads several files at a time; a write must not wait until one of them is through."""
    released = threading.Event()
    copy = files.copy_hashed

    def held(source, target):
        released.wait(10)
        return copy(source, target)

    monkeypatch.setattr(files, "copy_hashed", held)
    source = tmp_path / "source"
    source.write_bytes(b"x")
    local = LocalFile(path="a", source=str(source), size=1, sha256=hashlib.sha256(b"x").hexdigest())
    uploads = [asyncio.create_task(store.upload(f"t-acme/i/snapshots/{number}", local)) for number in range(8)]
    await asyncio.sleep(0)  # they begin
    try:
        async with asyncio.timeout(5):
            written = await store.create("t-acme/i/log/1", b"record")
    finally:
        released.set()

    assert isinstance(written, Stored)
    assert all(isinstance(each, Stored) for each in await asyncio.gather(*uploads))
