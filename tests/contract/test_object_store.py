"""One suite for every object store: what `stores/protocol.py` promises, no more and no less."""

import asyncio
import hashlib
import os
import string
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundplane.errors import InvalidInput, Unavailable
from groundplane_shard.log import LocalFile
from groundplane_shard.log.operations import Absent, Damaged, Found, PreconditionFailed, Stored, Verified
from groundplane_shard.stores import LocalStore, MemoryStore, ObjectStore, check_conditions
from groundplane_shard.stores.s3 import S3Store, credential_source
from tests.support.seaweedfs import S3Server

LOG = "t-acme/i/log/"


@pytest.fixture(params=["local", "memory", "s3"])
async def store(request, tmp_path) -> AsyncIterator[ObjectStore]:
    """Give an empty store of each kind; `s3` is a prefix of a real server's bucket."""
    if request.param == "memory":
        yield MemoryStore()
        return
    opened = (
        LocalStore(tmp_path / "store") if request.param == "local" else open_s3(request.getfixturevalue("s3_server"))
    )
    yield opened
    opened.close()


def open_s3(server: S3Server) -> S3Store:
    """Return a store below a prefix that is still empty."""
    return S3Store(server.location(), server.settings, credential_source(server.settings))


def local_file(directory: Path, content: bytes, path: str = "data/part-0.lance") -> LocalFile:
    """Return a file on the disk, as the table would name it."""
    source = directory / hashlib.sha256(content).hexdigest()[:8]
    source.write_bytes(content)
    return LocalFile(path=path, source=str(source), size=len(content), sha256=hashlib.sha256(content).hexdigest())


async def test_object_is_read_as_it_was_created(store):
    """Also if it is empty."""
    for number, data in enumerate((b"", b"\0binary\xff", b"x" * 3_000_000)):
        stored = await store.create(f"{LOG}{number}", data)

        assert await store.get(f"{LOG}{number}") == Found(data, stored.etag)


async def test_absent_object_is_absent(store):
    """Not an error, and not an empty object."""
    assert await store.get(f"{LOG}1") == Absent()


async def test_key_is_created_once(store):
    """The log rests on this."""
    await store.create(f"{LOG}1", b"first")

    assert await store.create(f"{LOG}1", b"second") == PreconditionFailed()
    assert (await store.get(f"{LOG}1")).data == b"first"


async def test_of_32_concurrent_creates_one_wins(store):
    """Two winners would be two writers."""
    answers = await asyncio.gather(*(store.create(f"{LOG}1", b"%d" % number) for number in range(32)))
    winners = [number for number, answer in enumerate(answers) if isinstance(answer, Stored)]

    assert len(winners) == 1
    assert (await store.get(f"{LOG}1")).data == b"%d" % winners[0]


async def test_version_that_was_read_is_replaced(store):
    """The way MANIFEST changes."""
    first = await store.create("t-acme/i/MANIFEST", b"one")
    second = await store.replace("t-acme/i/MANIFEST", b"two", first.etag)

    assert await store.get("t-acme/i/MANIFEST") == Found(b"two", second.etag)


async def test_stale_version_is_not_replaced(store):
    """A writer that read an old MANIFEST must not undo a newer one."""
    first = await store.create("t-acme/i/MANIFEST", b"one")
    await store.replace("t-acme/i/MANIFEST", b"two", first.etag)

    assert await store.replace("t-acme/i/MANIFEST", b"three", first.etag) == PreconditionFailed()
    assert (await store.get("t-acme/i/MANIFEST")).data == b"two"


async def test_absent_object_is_not_replaced(store):
    """Some stores made this a create, which would bring a deleted MANIFEST back."""
    assert await store.replace("t-acme/i/MANIFEST", b"one", "e3b0") == PreconditionFailed()
    assert await store.get("t-acme/i/MANIFEST") == Absent()


async def test_of_32_concurrent_replacements_one_wins(store):
    """Two take-overs must not both raise the epoch."""
    first = await store.create("t-acme/i/MANIFEST", b"one")
    answers = await asyncio.gather(
        *(store.replace("t-acme/i/MANIFEST", b"%d" % number, first.etag) for number in range(32))
    )

    assert sum(isinstance(answer, Stored) for answer in answers) == 1


async def test_keys_are_listed_in_order_below_the_prefix(store):
    """The order of names is the order of the log."""
    for key in (
        "t-acme/i/log/3",
        "t-acme/i/log/1",
        "t-acme/i/log/20",
        "t-acme/i/logs",
        "t-acme/i/MANIFEST",
        "t-other/i/log/1",
    ):
        await store.create(key, b"x")

    assert (await store.list_page(LOG, "")).keys == (f"{LOG}1", f"{LOG}20", f"{LOG}3")
    assert (await store.list_page(LOG, f"{LOG}1")).keys == (f"{LOG}20", f"{LOG}3")
    assert (await store.list_page("t-acme/i/lo", "")).keys[-1] == "t-acme/i/logs"
    assert (await store.list_page("t-none/", "")).keys == ()


async def test_long_listing_comes_in_pages_that_join_without_gap(store, monkeypatch):
    """A page that silently ends is an overlooked record."""
    monkeypatch.setattr(f"{type(store).__module__}.PAGE_KEYS", 7)
    keys = [f"{LOG}{number:020d}" for number in range(1, 31)]
    for key in keys:
        await store.create(key, b"x")

    page = await store.list_page(LOG, "")
    found = list(page.keys)
    while page.more:
        page = await store.list_page(LOG, found[-1])
        found += page.keys
    assert found == keys


async def test_delete_is_idempotent(store):
    """A late or repeated delete is no fault."""
    await store.create(f"{LOG}1", b"x")
    await store.delete(f"{LOG}1")
    await store.delete(f"{LOG}1")

    assert await store.get(f"{LOG}1") == Absent()
    assert (await store.list_page(LOG, "")).keys == ()


async def test_deleted_key_can_be_created_again(store):
    """The protocol reckons with it, so every store must do it alike."""
    await store.create(f"{LOG}1", b"x")
    await store.delete(f"{LOG}1")

    assert isinstance(await store.create(f"{LOG}1", b"y"), Stored)


async def test_uploaded_file_is_downloaded_as_it_was(store, tmp_path):
    """A snapshot is bytes, whatever their number."""
    content = os.urandom(3 * 1024 * 1024 + 1)
    file = local_file(tmp_path, content)
    await store.upload("t-acme/i/snapshots/u/data/part-0.lance", file)
    target = tmp_path / "fresh" / "data" / "part-0.lance"

    assert (
        await store.download("t-acme/i/snapshots/u/data/part-0.lance", target, size=file.size, sha256=file.sha256)
        == Verified()
    )
    assert target.read_bytes() == content
    assert target.stat().st_mode & 0o777 == 0o600


async def test_upload_does_not_overwrite(store, tmp_path):
    """A snapshot file's name is used once."""
    await store.upload("t-acme/i/snapshots/u/a", local_file(tmp_path, b"first"))

    assert await store.upload("t-acme/i/snapshots/u/a", local_file(tmp_path, b"second")) == PreconditionFailed()


async def test_local_file_that_changed_is_not_uploaded(store, tmp_path):
    """A file that is rewritten while it is copied would be stored as something nobody has."""
    file = local_file(tmp_path, b"as announced")
    changed = msgspec.structs.replace(file, source=local_file(tmp_path, b"as it is now").source)

    with pytest.raises(Unavailable):
        await store.upload("t-acme/i/snapshots/u/a", changed)
    assert await store.get("t-acme/i/snapshots/u/a") == Absent()


@pytest.mark.parametrize("stored", [None, b"other", b"as announced, and more"], ids=["absent", "other", "longer"])
async def test_object_with_other_bytes_is_damaged_and_leaves_no_file(store, tmp_path, stored):
    """Only verified bytes reach the directory that the table is opened from."""
    if stored is not None:
        await store.create("t-acme/i/snapshots/u/a", stored)
    expected = {"size": 12, "sha256": hashlib.sha256(b"as announced").hexdigest()}

    assert isinstance(await store.verify("t-acme/i/snapshots/u/a", **expected), Damaged)
    assert isinstance(await store.download("t-acme/i/snapshots/u/a", tmp_path / "target", **expected), Damaged)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.", ".lock", ".temporary/x", "a\0b", "a b", "a\\b", "ä", "a\n"],
)
async def test_key_that_is_no_plain_path_is_refused(store, key):
    """A key must not reach anything but objects."""
    with pytest.raises(InvalidInput):
        await store.get(key)
    with pytest.raises(InvalidInput):
        await store.create(key, b"x")


async def test_store_passes_the_check_of_its_conditions(store):
    """The check at every start must not keep a sound store from being used, nor leave anything behind."""
    await check_conditions(store, "t-acme/i/", token=uuid.uuid4().hex)

    assert (await store.list_page("t-acme/", "")).keys == ()


component = st.text(string.ascii_letters + string.digits + "_.=+@~-", min_size=1, max_size=8).filter(
    lambda part: not part.startswith(".")
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=st.sets(component, min_size=1, max_size=8), cut=st.integers(0, 8))
async def test_listing_equals_sorting_the_keys(tmp_path, names, cut):
    """Both stores order by code point, whatever the file system does."""
    local, memory = LocalStore(tmp_path / uuid.uuid4().hex), MemoryStore()
    keys = sorted(f"t/{name}/x" for name in names)
    for key in keys:
        await local.create(key, b"")
        await memory.create(key, b"")
    after = keys[cut] if cut < len(keys) else ""

    assert (await local.list_page("t/", after)).keys == (await memory.list_page("t/", after)).keys
    assert (await memory.list_page("t/", after)).keys == tuple(key for key in keys if key > after)
    local.close()
