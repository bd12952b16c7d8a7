"""A corpus that a real shard left behind, one byte of it changed: it answers as before, or it does not answer.

LanceDB reads its files without checking them, so nothing but the digests in MANIFEST and in the log stands between a
flipped bit and a wrong answer (I11).
"""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from groundplane.errors import CorruptData
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Identity, Layout, Replica
from groundplane_shard.log.operations import Damaged
from groundplane_shard.stores import MemoryStore, download_snapshot, run
from tests.support.processes import ShardProcess, running
from tests.support.writes import DELETED, DIMENSION, key_of, operation, search_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SEED = 20261201
DOCUMENTS = 5
FLIPS = 1_000
OPENED_EVERY = 5  # of those flips: an opening takes 30 ms and more
EXACT_BYTES = 1 << 30


class Left:
    """The objects that a shard left behind, and what a process that opens them answers."""

    def __init__(self, shard: ShardProcess, store: Path) -> None:
        self.layout = Layout(shard.key, shard.incarnation)
        files = (path for path in store.rglob("*") if path.is_file() and not path.name.startswith("."))
        self.objects = {path.relative_to(store).as_posix(): path.read_bytes() for path in files}
        self._shard = shard
        self._work = store.parent / "opened"
        self._numbers = count()

    def keys(self, part: str) -> list[str]:
        """Return the keys of a part of the corpus, in order."""
        return sorted(key for key in self.objects if part in key)

    def store(self, changed: dict[str, bytes]) -> MemoryStore:
        """Return a store with these objects, some of them changed."""
        store = MemoryStore()
        store.objects = {**self.objects, **changed}
        return store

    async def answers(self, changed: dict[str, bytes]) -> Any:
        """Return everything that can be asked of the corpus after it was opened as every start opens it."""
        store, number = self.store(changed), next(self._numbers)
        state = LocalState(store, self.layout, self._work / str(number), EXACT_BYTES)
        identity = Identity(layout=self.layout, owner=self._shard.incarnation, writer_id=f"opened-{number}")
        replica = Replica(identity)
        await run(replica.open(), store, state)
        await run(replica.take_over(), store, state)
        corpus = state.corpus
        documents = [await corpus.document(corpus.view(), key_of(each)) for each in range(DOCUMENTS)]
        vector = np.ones(DIMENSION, dtype="<f4").tobytes()
        request = msgspec.structs.replace(search_for(self._shard, 0), filter=None, vector=vector)
        return documents, await corpus.search(corpus.view(), request)


def leave(root: Path, settings: dict[str, str], rounds: int) -> Left:
    """Let a shard write some versions of every document, and delete one, then kill it."""
    shard = ShardProcess(root, dimension=DIMENSION, settings=settings)
    with running(shard), httpx.Client(timeout=10.0) as client:
        for version in range(1, rounds + 1):
            for number in range(DOCUMENTS if rounds > 1 else 1):
                shard.write(client, operation(number, version))
            if rounds > 1:
                answer = client.post(f"{shard.url}/snapshot", headers=shard.headers("operate"))
                answer.raise_for_status()
        shard.write(client, operation(1, DELETED), operation(2, rounds + 1))
        shard.kill()
    return Left(shard, root / "store")


@pytest.fixture(scope="module")
def small_log(tmp_path_factory) -> Left:
    """A corpus of a few records and no snapshot."""
    return leave(tmp_path_factory.mktemp("log"), {}, rounds=1)


@pytest.fixture(scope="module")
def with_snapshots(tmp_path_factory) -> Left:
    """A corpus of three snapshots, and records after the newest."""
    return leave(tmp_path_factory.mktemp("snapshots"), {"GROUNDPLANE_SNAPSHOTS_KEEP": "3"}, rounds=3)


async def test_no_byte_of_a_small_log_can_be_changed_without_being_found_and_named(small_log, record_property):
    """A record that fails its digest is not skipped, and is not the end of the log."""
    generator = random.Random(SEED)
    found: Counter[str] = Counter()
    for key, whole in sorted(small_log.objects.items()):
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= generator.randrange(1, 256)
            try:
                await small_log.answers({key: bytes(changed)})
            except CorruptData as error:
                found["named" if key in error.message else f"{key}: {error.message}"] += 1
            else:
                found[f"{key} answers although byte {place} was changed"] += 1
    record_property(
        "figures", f"{found['named']} bytes of {len(small_log.objects)} objects changed, each found and named"
    )

    assert found == {"named": sum(map(len, small_log.objects.values()))}


def flips(left: Left) -> Iterator[tuple[str, bytes]]:
    """Give a thousand objects of snapshots, a bit of each turned over; a file is as likely as it is large."""
    generator = random.Random(SEED)
    keys = left.keys("/snapshots/")
    sizes = [len(left.objects[key]) for key in keys]
    for key in generator.choices(keys, sizes, k=FLIPS):
        changed = bytearray(left.objects[key])
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        yield key, bytes(changed)


async def test_every_flipped_bit_of_a_snapshot_is_found(with_snapshots, tmp_path, record_property):
    """A file is used only with the digest that MANIFEST has of it."""
    manifest = await manifest_of(with_snapshots)
    missed = []
    for number, (key, changed) in enumerate(flips(with_snapshots)):
        store = with_snapshots.store({key: changed})
        holders = [each for each in manifest.snapshots if any(key.endswith(file.key) for file in each.files)]
        for holder in holders[-1:]:
            answer = await download_snapshot(store, with_snapshots.layout, holder, tmp_path / str(number))
            missed += [] if isinstance(answer, Damaged) and key in answer.reason else [key]
    record_property(
        "figures", f"{FLIPS} bits of {len(with_snapshots.keys('/snapshots/'))} files turned over; seed {SEED}"
    )

    assert missed == []


async def test_a_corpus_with_a_flipped_bit_in_a_snapshot_answers_as_before_or_refuses(with_snapshots, record_property):
    """An older snapshot and more of the log give the same corpus, to the last digit; a file that all of them share is missed."""
    expected = await with_snapshots.answers({})
    came_to: Counter[str] = Counter()
    for key, changed in list(flips(with_snapshots))[::OPENED_EVERY]:
        try:
            answers = await with_snapshots.answers({key: changed})
        except CorruptData as error:
            came_to["refused" if "none of the 3 snapshots" in error.message else error.message] += 1
        else:
            came_to["as before" if answers == expected else f"another answer after a change of {key}"] += 1
    record_property("figures", str(dict(came_to)))

    assert came_to.keys() == {"as before", "refused"}


async def manifest_of(left: Left) -> Any:
    """Return the corpus's MANIFEST."""
    identity = Identity(layout=left.layout, owner=left.layout.incarnation, writer_id="reader")
    replica, store = Replica(identity), left.store({})
    await run(replica.cell.refresh(), store, LocalState(store, left.layout, Path("unused"), EXACT_BYTES))
    return replica.manifest
