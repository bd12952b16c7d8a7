"""Restoring and applying: a fresh directory each time, and exact counts of what no snapshot holds."""

import msgspec
import pytest

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.local_state import Lag
from groundplane_shard.log import NO_EMBEDDING, Epoch, Kind, Position, Record, Seq, Snapshot, SnapshotFile
from groundplane_shard.log.operations import Damaged, Restored
from groundplane_shard.payload import encode
from groundplane_shard.stores import MemoryStore
from tests.shard.corpus_model import stored
from tests.shard.shard_parts import local_state
from tests.support.failing_store import FailingStore, failing


def record(sequence, *operations, kind=Kind.BATCH, embedding_id=NO_EMBEDDING):
    payload = encode(operations) if operations else b""
    return Record(kind=kind, epoch=Epoch(1), sequence=Seq(sequence), incarnation=bytes(16), previous=bytes(32),
                  payload=payload, embedding_id=embedding_id)  # fmt: skip


def at(sequence):
    return Position(Seq(sequence), Epoch(1), bytes([sequence]) * 32)


@pytest.fixture
def store():
    return FailingStore(MemoryStore())


@pytest.fixture
async def state(store, tmp_path):
    state = local_state(store, tmp_path)
    await state.restore(None)
    return state


def snapshot(key="snapshots/1-a/file"):
    file = SnapshotFile(path="file", key=key, size=1, sha256="0" * 64)
    return Snapshot(upload_id="1-a", sequence=Seq(5), epoch=Epoch(1), digest="00" * 32, files=(file,))


async def test_nothing_is_served_before_a_restore_and_after_forgetting(state, tmp_path):
    """A request that comes too early or too late is told to come again: 503, not 400."""
    before = local_state(MemoryStore(), tmp_path)
    state.forget()

    for each in (before, state):
        with pytest.raises(Unavailable) as caught:
            _ = each.corpus
        assert caught.value.code == "not_ready"


async def test_every_restore_begins_with_nothing(state):
    """Documents, counts and embedding ids of the state before would be served beside those of the log."""
    old = state.corpus
    await state.apply(record(1, stored("a"), embedding_id=b"\x01" * 16), at(1))
    await state.restore(None)

    assert state.corpus is not old
    assert state.corpus.view().totals.documents == 0
    assert (state.lag, state.corpus.made.embedding_id) == (Lag(0, 0), None)


async def test_a_damaged_snapshot_leaves_no_files(state, tmp_path):
    """The older one needs the room."""
    before = sorted(tmp_path.iterdir())
    answer = await state.restore(snapshot())

    assert isinstance(answer, Damaged)
    assert sorted(tmp_path.iterdir()) == before


async def test_a_snapshot_that_cannot_be_fetched_is_not_damaged(state, store):
    """A store that is down must not make a shard fall back to an older state."""
    store.rule = failing("refused", "download")

    with pytest.raises(Unavailable):
        await state.restore(snapshot())


async def test_a_work_directory_that_takes_no_files_is_unavailable(store, tmp_path):
    """Somebody makes room, and it goes on."""
    (tmp_path / "file").write_text("in the way")
    state = local_state(store, tmp_path / "file")

    with pytest.raises(Unavailable) as caught:
        await state.restore(None)
    assert caught.value.code == "local_disk"


async def test_the_lag_counts_batches_and_their_bytes_since_the_published_place(state):
    """It decides when the next snapshot is due; a barrier is no change."""
    await state.apply(record(1, kind=Kind.BARRIER), at(1))
    first = record(2, stored("a"))
    await state.apply(first, at(2))
    flushed = await state.corpus.flush()
    second = record(3, stored("b"))
    await state.apply(second, at(3))
    before = state.lag
    place = state.place_of(flushed)
    state.published(place)

    assert before == Lag(2, len(first.payload) + len(second.payload))
    assert place.position == at(2)
    assert state.lag == Lag(1, len(second.payload))


async def test_places_are_forgotten_once_nothing_can_end_there(state):
    """A corpus that is flushed must not keep a place for every record for ever."""
    for sequence in range(1, 10):
        await state.apply(record(sequence, stored(f"d{sequence}")), at(sequence))
    state.place_of(9)

    assert list(state._places) == [9]


async def test_an_announced_batch_is_applied_only_for_its_own_record(state):
    """The record decides what is applied, not what somebody said before."""
    mine, other = encode((stored("mine"),)), record(1, stored("other"))
    state.expect(mine, (stored("mine"),))
    await state.apply(other, at(1))

    assert state.corpus.content_hash("mine") is None
    assert state.corpus.content_hash("other") is not None


async def test_an_empty_restore_says_so(store, tmp_path):
    """The protocol goes on with the log from its beginning."""
    assert await local_state(store, tmp_path).restore(None) == Restored()


async def test_a_tail_is_looked_up_in_one_query(state, monkeypatch):
    """One query a record takes 3 ms each at 100,000 chunks: three seconds for a thousand."""
    asked = []

    async def prefetch(_embedding_id, operations):
        asked.append([each.doc_id for each in operations])

    monkeypatch.setattr(state.generations, "prefetch", prefetch)
    await state.foresee([record(1, stored("a"), stored("b")), record(2, kind=Kind.BARRIER), record(3, stored("b"))])

    assert asked == [["a", "b"]]


async def test_what_cannot_be_foreseen_is_left_for_its_turn(state):
    """The record's own fault must be told with its sequence, when it is applied."""
    broken = msgspec.structs.replace(record(1, stored("a")), payload=b"no arrow")

    await state.foresee([broken])
    with pytest.raises(CorruptData):
        await state.apply(broken, at(1))
