"""Looking into a store: everything is listed as it was written, and no flipped byte goes unnoticed."""

import hashlib
import uuid

import pytest

from groundplane.errors import CorruptData, InvalidInput
from groundplane_shard.inspection import list_log, list_snapshots, verify
from groundplane_shard.log import Identity, Layout, LocalFile, Replica
from groundplane_shard.log.operations import Restored
from groundplane_shard.stores import MemoryStore, run

LAYOUT = Layout("t-acme", str(uuid.UUID(int=7)))


class NoState:
    """Effects of a process that keeps nothing."""

    async def restore(self, _snapshot):
        return Restored()

    async def apply(self, _record, _position):
        return None

    async def foresee(self, _records):
        return None


async def ask(store, steps):
    return await run(steps, store, NoState())


@pytest.fixture
async def store(tmp_path):
    """A store with five records, a snapshot of the first three, and a second, newer snapshot that shares a file with it."""
    store = MemoryStore()
    replica = Replica(Identity(layout=LAYOUT, owner=LAYOUT.incarnation, writer_id="w1"), keep_snapshots=2)
    await ask(store, replica.open())
    writer = await ask(store, replica.take_over())
    for number in range(2):
        await ask(store, writer.append(b"payload %d" % number, embedding_id=bytes(range(16))))
    await ask(store, writer.publish_snapshot(local_files(tmp_path, "same", "old"), writer.position, token="aaaaaaaa"))
    for number in range(2):
        await ask(store, writer.append(b"more %d" % number))
    await ask(store, writer.publish_snapshot(local_files(tmp_path, "same", "new"), writer.position, token="bbbbbbbb"))
    await ask(store, writer.append(b"the tail"))
    return store


def local_files(directory, *names):
    files = []
    for name in names:
        path = directory / name
        path.write_bytes(f"bytes of {name}".encode())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(LocalFile(path=name, source=str(path), size=path.stat().st_size, sha256=digest))
    return tuple(files)


async def objects(store):
    """Return every key below the incarnation's prefix with its bytes."""
    keys = (await store.list_page(LAYOUT.prefix, "")).keys
    return {key: (await store.get(key)).data for key in keys}


async def overwrite(store, key, data):
    await store.delete(key)
    await store.create(key, data)


async def test_log_and_snapshots_are_listed_as_written(store):
    """An operator decides from these lists what to restore."""
    log = await ask(store, list_log(LAYOUT))
    snapshots = await ask(store, list_snapshots(LAYOUT))

    assert [(entry.sequence, entry.kind) for entry in log] == [(4, "batch"), (5, "batch"), (6, "batch")]
    assert [(entry.sequence, entry.files) for entry in snapshots] == [(3, 2), (5, 2)]


async def test_an_untouched_corpus_has_no_fault(store):
    """Otherwise nobody would believe a fault."""
    found = await ask(store, verify(LAYOUT))

    assert (found.faults, found.sequence, found.snapshots, found.files) == ((), 6, 2, 3)


async def test_every_flipped_byte_is_found(store):
    """Stores and disks do flip bits; a corpus is only as good as the check that finds them (I11)."""
    needed = {key: data for key, data in (await objects(store)).items() if not is_below_oldest_snapshot(key)}
    unnoticed = []
    for key, data in needed.items():
        for position in range(len(data)):
            flipped = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
            await overwrite(store, key, flipped)
            try:
                noticed = bool((await ask(store, verify(LAYOUT))).faults)
            except CorruptData:
                noticed = True
            if not noticed:
                unnoticed.append((key, position))
        await overwrite(store, key, data)

    assert len(needed) == 7
    assert unnoticed == []


@pytest.mark.parametrize("name", ["log/00000000000000000005", "snapshots/"])
async def test_a_missing_object_is_a_fault_that_names_its_key(store, name):
    """A missing record in the middle must never look like the end of the log."""
    key = next(key for key in await objects(store) if key.startswith(LAYOUT.prefix + name))
    await store.delete(key)
    found = await ask(store, verify(LAYOUT))

    assert [fault.key for fault in found.faults] == [key]


async def test_a_record_of_another_corpus_in_its_place_is_a_fault(store):
    """Swapped objects have right checksums; only their place gives them away."""
    data = await objects(store)
    await overwrite(store, LAYOUT.record(5), data[LAYOUT.record(4)])
    found = await ask(store, verify(LAYOUT))

    assert [fault.key for fault in found.faults] == [LAYOUT.record(5)]


async def test_a_corpus_that_is_not_there_is_refused_by_name():
    """A typing error must not look like an empty corpus."""
    with pytest.raises(InvalidInput, match="MANIFEST"):
        await ask(MemoryStore(), verify(LAYOUT))


def is_below_oldest_snapshot(key):
    """Records below the oldest kept snapshot are not needed; they are there until they are collected."""
    sequence = LAYOUT.sequence_of(key)
    return sequence is not None and sequence <= 3
