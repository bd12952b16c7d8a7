"""A corpus given another embedding, on a whole shard: complete, atomic, and the same after every restart."""

import asyncio

import msgspec
import pytest

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.clock import SystemClock
from groundplane.wire.internal import TakeReindexStep
from groundplane_shard.generations import TARGET_DIRECTORY
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Identity, Layout, Replica
from groundplane_shard.log.writer import MAX_EMBEDDINGS
from groundplane_shard.restoration import RestoreOrder, restore_corpus
from groundplane_shard.service import Shard
from groundplane_shard.stores import MemoryStore
from groundplane_shard.witness import WitnessFile
from tests.shard.corpus_model import replace, vector_bytes
from tests.shard.shard_parts import (
    INCARNATION,
    LAYOUT,
    delete,
    document,
    identity,
    kill_at_the_end,
    make_shard,
    memo,
    outcome,
    parts,
    running,
    search_request,
    serving_of,
    settled,
    until,
    write_request,
)

OLD, NEW = identity(3), identity(2, number=1)
CHUNKER = "test"


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def open_shard(store, tmp_path):
    """Return a maker of shards over the same store, which end without a snapshot."""
    return lambda: make_shard(store, tmp_path / "work")


async def step(shard, name, embedding=NEW):
    return await shard.write(write_request(TakeReindexStep(step=name), embedding=embedding))


async def remake(shard, *rows, embedding=NEW, text="pump"):
    """Write the documents of these pending rows into the target."""
    operations = [
        msgspec.structs.replace(
            replace(row.doc_id, [text], [(1.0,) + (0.0,) * (embedding.dimension - 1)], chunker=CHUNKER),
            made_from=row.sequence,
        )
        for row in rows
    ]
    return await shard.write(write_request(*operations, embedding=embedding))


async def pending(shard, after="", chunker=CHUNKER):
    return (await shard.pending(after, chunker)).documents


async def filled(shard, *doc_ids):
    await shard.write(write_request(*(document(doc_id) for doc_id in doc_ids or ("a", "b", "c")), memo("m")))


async def begun(shard, *doc_ids):
    """Fill the corpus, begin, and re-embed `a`."""
    await filled(shard, *doc_ids)
    await step(shard, "begin")
    await remake(shard, (await pending(shard))[0])


async def finished(shard):
    await remake(shard, *await pending(shard))
    return await step(shard, "switch")


def progress(shard):
    status = shard.status()
    done = status.reindex
    return status.documents, status.generation, None if done is None else (done.embedding.id, done.documents)


async def doc_ids(shard):
    return [row.doc_id for row in (await shard.documents("", 100)).documents]


async def test_after_the_switch_everything_is_of_the_new_embedding(open_shard):
    """One moment separates the two: searches, identity, generation, and what is refused."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await finished(shard)
        found = await shard.search(search_request(vector=vector_bytes(1, 0), embedding_id=NEW.id))
        old = await outcome(shard.search(search_request(vector=vector_bytes(1, 0, 0), embedding_id=OLD.id)))

        assert progress(shard) == (3, 1, None)
        assert shard.status().embedding == NEW
        assert [each.cosine for each in found.candidates] == [1.0] * 3
        assert isinstance(old, InvalidInput)
        assert old.code == "embedding_mismatch"
        assert shard.memo("m", "f").response == b"1"


async def test_until_the_switch_nothing_of_it_shows(open_shard):
    """The old generation answers as before, its own vectors included, and counts no document twice."""
    async with running(open_shard()) as shard:
        await begun(shard)
        found = await shard.search(search_request(vector=vector_bytes(1, 0, 0), embedding_id=OLD.id))
        words = await shard.search(search_request())

        assert progress(shard) == (3, 0, (NEW.id, 1))
        assert (found.statistics, len(found.candidates)) == (words.statistics, 3)
        assert [row.doc_id for row in await pending(shard)] == ["b", "c"]


@pytest.mark.parametrize("is_published", [False, True], ids=["from-the-log", "from-a-snapshot"])
@pytest.mark.parametrize("stage", ["begun", "switched", "abandoned"])
async def test_every_stage_is_the_same_after_a_crash(open_shard, stage, is_published):
    """A kill at any line, and the next process goes on from where the log ends."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await shard.write(write_request(delete("b")))
        if stage == "switched":
            await finished(shard)
        if stage == "abandoned":
            await step(shard, "abandon")
        if is_published:
            await shard.snapshot()
        before = progress(shard), await doc_ids(shard), await pending(shard), shard.status().embedding
        kill_at_the_end(shard)
    async with running(open_shard()) as again:
        after = progress(again), await doc_ids(again), await pending(again), again.status().embedding

        assert after == before
        assert again.memo("m", "f").response == b"1"


async def test_a_follower_from_an_old_snapshot_ends_where_the_writer_is(open_shard, store, tmp_path):
    """Replaying begin, documents and switch over a table of the old generation makes the new one."""
    async with running(open_shard()) as shard:
        await filled(shard)
        await shard.snapshot()
        await step(shard, "begin")
        await finished(shard)
        before = progress(shard)
        kill_at_the_end(shard)
    async with running(make_shard(store, tmp_path / "elsewhere")) as again:
        assert progress(again) == before
        assert serving_of(again).corpus.dimension == 2


@pytest.mark.parametrize("is_published", [False, True], ids=["from-the-log", "from-a-snapshot"])
async def test_a_restored_incarnation_goes_on_with_it(open_shard, store, tmp_path, is_published):
    """A corpus may be brought back at any moment, one between two models included."""
    async with running(open_shard()) as shard:
        await begun(shard)
        if is_published:
            await shard.snapshot()
        kill_at_the_end(shard)
    layout = Layout(LAYOUT.corpus_key, "00000000-0000-4000-8000-00000000000b")
    order = RestoreOrder(
        target=layout,
        source_incarnation=INCARNATION,
        until=None,
        witness=WitnessFile(),
        work_directory=tmp_path / "copy",
    )
    await restore_corpus(store, order, SystemClock(), lambda _: None)
    own = Replica(Identity(layout=layout, owner=layout.incarnation, writer_id="restored"))
    state = LocalState(store, layout, tmp_path / "restored", exact_bytes=1 << 30)
    async with running(Shard(parts(layout=layout), own, store, state, tmp_path / "restored")) as restored:
        before = progress(restored)
        rows = await pending(restored)
        operations = [
            msgspec.structs.replace(replace(row.doc_id, ["pump"], [(1.0, 0.0)]), made_from=row.sequence) for row in rows
        ]
        asked = write_request(*operations, embedding=NEW, incarnation=layout.incarnation)
        await restored.write(asked)
        await restored.write(msgspec.structs.replace(asked, operations=(TakeReindexStep(step="switch"),)))

        assert before == (3, 0, (NEW.id, 1))
        assert progress(restored) == (3, 1, None)


async def test_a_delete_applies_to_both_generations(open_shard):
    """A document that was re-embedded already must not come back with the switch."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await shard.write(write_request(delete("a"), delete("b")))
        await finished(shard)

        assert await doc_ids(shard) == ["c"]


async def test_a_text_that_was_read_before_its_document_was_deleted_is_not_stored(open_shard):
    """The router reads, embeds for seconds, and writes: only the shard knows what happened meanwhile."""
    async with running(open_shard()) as shard:
        await begun(shard)
        read = await pending(shard)
        await shard.write(write_request(delete("b")))
        done = await remake(shard, *read)
        await step(shard, "switch")

        assert [each.changed for each in done.results] == [False, True]
        assert await doc_ids(shard) == ["a", "c"]


async def test_a_text_that_was_replaced_meanwhile_is_not_stored(open_shard):
    """A router with the old model may go on writing; what it wrote last is what the switch must bring."""
    async with running(open_shard()) as shard:
        await begun(shard)
        read = await pending(shard)
        await shard.write(write_request(document("a", "valve"), document("b", "valve")))
        done = await remake(shard, *read)

        assert [each.changed for each in done.results] == [False, True]
        assert [row.text for row in await pending(shard)] == ["valve", "valve"]


async def test_a_document_of_the_old_embedding_leaves_the_target(open_shard):
    """It was re-embedded in its earlier version: the switch waits until it is so again."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await remake(shard, *await pending(shard))
        await shard.write(write_request(document("a", "valve")))
        early = await outcome(step(shard, "switch"))
        await remake(shard, *await pending(shard), text="valve")
        await step(shard, "switch")

        assert isinstance(early, InvalidInput)
        assert early.code == "reindex_incomplete"
        assert (await shard.document("a")).text == "valve"


async def test_new_documents_of_the_coming_embedding_are_refused_until_it_is_there(open_shard):
    """Stored in the target alone no search would see them: an acknowledged write that is not found."""
    async with running(open_shard()) as shard:
        await begun(shard)
        new = write_request(replace("new", ["pump"], [(1.0, 0.0)]), embedding=NEW)
        refused = await outcome(shard.write(new))
        await finished(shard)
        taken = await shard.write(new)

        assert isinstance(refused, Unavailable)
        assert (refused.code, refused.retry_after_seconds) == ("reindexing", 30)
        assert taken.results[0].changed


async def test_a_request_cannot_bring_a_new_document_in_beside_a_re_embedded_one(open_shard):
    """The target holds nothing that the current generation does not: else the counts would say too early that all is there."""
    async with running(open_shard()) as shard:
        await begun(shard)
        row = (await pending(shard))[0]
        remade = msgspec.structs.replace(replace(row.doc_id, ["pump"], [(1.0, 0.0)]), made_from=row.sequence)
        mixed = write_request(remade, replace("new", ["pump"], [(1.0, 0.0)]), embedding=NEW)
        refused = await outcome(shard.write(mixed))

        assert isinstance(refused, Unavailable)
        assert refused.code == "reindexing"
        assert progress(shard) == (3, 0, (NEW.id, 1))


async def test_a_re_embedded_document_that_comes_after_the_switch_is_refused(open_shard):
    """A second command may still be at work; what it read was the generation before."""
    async with running(open_shard()) as shard:
        await begun(shard, "a")
        late = msgspec.structs.replace(replace("a", ["pump"], [(0.0, 1.0)]), made_from=2)
        await step(shard, "switch")
        refused = await outcome(shard.write(write_request(late, embedding=NEW)))

        assert isinstance(refused, InvalidInput)
        assert refused.code == "reindex_conflict"


async def test_steps_may_be_repeated(open_shard):
    """An answer may be lost: the caller says the same again, and it is not done twice."""
    async with running(open_shard()) as shard:
        await begun(shard)
        again = await step(shard, "begin")
        await finished(shard)
        switched = await step(shard, "switch")
        nothing = await step(shard, "abandon")

        assert [each.results[0].changed for each in (again, switched, nothing)] == [False] * 3
        assert progress(shard) == (3, 1, None)


async def test_another_embedding_does_not_displace_an_unfinished_one(open_shard):
    """Two routers with two models would begin anew for ever; giving up is somebody's decision."""
    async with running(open_shard()) as shard:
        await begun(shard)
        third = identity(4, number=2)
        refused = await outcome(step(shard, "begin", third))
        await step(shard, "abandon")
        await step(shard, "begin", third)

        assert isinstance(refused, InvalidInput)
        assert refused.code == "reindex_conflict"
        assert progress(shard) == (3, 0, (third.id, 0))


async def test_a_corpus_may_return_to_an_embedding_it_had(open_shard):
    """The same id then names another generation: which one follows from the log."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await finished(shard)
        await step(shard, "begin", OLD)
        await remake(shard, *await pending(shard), embedding=OLD)
        await step(shard, "switch", OLD)
        kill_at_the_end(shard)
    async with running(open_shard()) as again:
        assert progress(again) == (3, 2, None)
        assert again.status().embedding == OLD


async def test_a_document_that_waited_over_the_switch_is_refused(open_shard):
    """Its vectors are of the embedding before; in the corpus of now they would be noise (I19)."""
    async with running(open_shard()) as shard:
        await begun(shard, "a")
        serving = serving_of(shard)
        async with serving._committer.exclusive():
            switching = asyncio.create_task(step(shard, "switch"))
            await settled()
            late = asyncio.create_task(outcome(shard.write(write_request(document("late")))))
            await settled()
        await switching
        refused = await late

        assert isinstance(refused, InvalidInput)
        assert refused.code == "embedding_mismatch"
        assert await doc_ids(shard) == ["a"]


async def test_a_search_that_waited_over_the_switch_is_refused(open_shard):
    """Its vector was checked against the embedding before (I19)."""
    async with running(open_shard()) as shard:
        await begun(shard, "a")
        here = shard.status().sequence
        asked = search_request(vector=vector_bytes(1, 0, 0), embedding_id=OLD.id, min_sequence=here + 1)
        searching = asyncio.create_task(outcome(shard.search(asked)))
        await until(lambda: shard._state.arrivals.count == 1)
        await step(shard, "switch")
        refused = await searching

        assert isinstance(refused, InvalidInput)
        assert refused.code == "embedding_mismatch"


async def test_a_snapshot_carries_both_tables_until_the_switch_and_one_after_it(open_shard):
    """The old table is collected like any file that no kept snapshot lists."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await shard.snapshot()
        manifest = serving_of(shard)._writer.manifest
        both = {file.path.startswith(f"{TARGET_DIRECTORY}/") for file in manifest.snapshots[-1].files}
        await finished(shard)
        await shard.snapshot()
        manifest = serving_of(shard)._writer.manifest
        one = {file.path.startswith(f"{TARGET_DIRECTORY}/") for file in manifest.snapshots[-1].files}

        assert (both, one) == ({False, True}, {False})


async def test_the_files_of_the_old_generation_go_after_the_switch(open_shard):
    """A large corpus would fill its disk with a table that nobody reads."""
    async with running(open_shard()) as shard:
        await begun(shard)
        await shard.snapshot()
        old = serving_of(shard).corpus.directory
        was_there = old.exists()
        await finished(shard)

        assert was_there
        await until(lambda: not old.exists())


async def test_what_another_chunker_cut_is_pending_again(open_shard):
    """A router that is upgraded half-way must not leave two ways of cutting behind."""
    async with running(open_shard()) as shard:
        await begun(shard)

        assert [row.doc_id for row in await pending(shard, chunker="another")] == ["a", "b", "c"]


async def test_pages_of_what_is_pending_are_bounded_and_complete(open_shard, monkeypatch):
    """A page of texts must fit into one answer, and the next begins behind it."""
    monkeypatch.setattr("groundplane_shard.pending.PAGE_BYTES", 6)
    monkeypatch.setattr("groundplane_shard.pending.EXAMINED_DOCUMENTS", 3)
    async with running(open_shard()) as shard:
        await begun(shard, *"abcdefgh")
        page = await shard.pending("", CHUNKER)
        pages = [page.documents]
        while page.after is not None:
            page = await shard.pending(page.after, CHUNKER)
            pages.append(page.documents)

        ids = [[row.doc_id for row in documents] for documents in pages]
        assert ids == [["b", "c"], ["d", "e"], ["f", "g"], ["h"]]


async def test_a_step_goes_alone(open_shard):
    """One record is either a switch or operations."""
    async with running(open_shard()) as shard:
        mixed = await outcome(shard.write(write_request(delete("a"), TakeReindexStep(step="begin"), embedding=NEW)))

        assert isinstance(mixed, InvalidInput)
        assert mixed.field == "operations"


async def test_manifest_lists_few_embeddings_and_those_in_use(open_shard):
    """It is read and written whole at every snapshot, so it must not grow with every change of the model."""
    async with running(open_shard()) as shard:
        await filled(shard, "a")
        for number in range(2, MAX_EMBEDDINGS + 5):
            await step(shard, "begin", identity(2, number=number))
            await step(shard, "abandon", identity(2, number=number))
        listed = [each["id"] for each in serving_of(shard)._writer.manifest.embeddings]

        assert len(listed) == MAX_EMBEDDINGS
        assert (listed[0], listed[-1]) == (OLD.id, identity(2, number=MAX_EMBEDDINGS + 4).id)


async def test_an_embedding_that_was_not_brought_along_is_asked_for(open_shard):
    """The shard cannot know what an id stands for."""
    async with running(open_shard()) as shard:
        await filled(shard)
        asked = msgspec.structs.replace(write_request(TakeReindexStep(step="begin"), embedding=NEW), embedding=None)
        refused = await outcome(shard.write(asked))

        assert isinstance(refused, InvalidInput)
        assert refused.code == "embedding_unknown"


async def test_the_metrics_show_generation_and_progress(open_shard):
    """Whoever watches a long re-embedding sees it move."""
    async with running(open_shard()) as shard:
        await begun(shard)
        shard.observe()
        meanwhile = shard._metrics.generation._value.get(), shard._metrics.reindexed_documents._value.get()
        await finished(shard)
        shard.observe()

        assert meanwhile == (0, 1)
        assert (shard._metrics.generation._value.get(), shard._metrics.reindexed_documents._value.get()) == (1, 0)
