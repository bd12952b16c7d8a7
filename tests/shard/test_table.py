"""The table merges whole flushes, keeps pinned versions readable, finds candidates by both legs and cleans up."""

import asyncio
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard import table as table_module
from groundplane_shard.schema import CHUNK_COLUMNS, MEMO_SCHEMA
from groundplane_shard.table import CANDIDATE_COLUMNS, MAX_FRAGMENTS, MIN_UNINDEXED_ROWS, Pin, Table
from tests.shard.table_rows import chunk_rows, memo_rows

QUERY = np.array([1.0, 0.0], dtype=np.float32)
HOSTILE_IDS = ["it's", "''", "\\'", 'a"b', "' OR true --", "x') OR ('1'='1", "é😀", "a\x00b", "%", "a\nb"]


@pytest.fixture
async def table(tmp_path) -> Table:
    return await Table.create(tmp_path / "table", 2)


async def doc_ids(pin: Pin) -> set[str]:
    return {doc_id async for batch in pin.scan(CHUNK_COLUMNS) for doc_id in batch["doc_id"].to_pylist()}


async def pinned_doc_ids(table: Table) -> set[str]:
    pin = await table.pin()
    found = await doc_ids(pin)
    pin.release()
    return found


def clustered_vectors(count: int, dimension: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    centres = generator.standard_normal((20, dimension))
    vectors = centres[generator.integers(0, 20, count)] + generator.standard_normal((count, dimension))
    return vectors.astype(np.float32)


async def test_merge_replaces_what_it_supersedes(table):
    """A flush of a changed document must leave its new chunks only."""
    await table.merge([], chunk_rows(["kept", "changed", "gone"]), None, [])

    await table.merge(["changed", "gone"], chunk_rows(["changed"], text=["new"]), None, [])

    pin = await table.pin()
    assert await doc_ids(pin) == {"kept", "changed"}
    assert (await pin.rows_of(["changed"], ["text"]))["text"].to_pylist() == ["new"]


@pytest.mark.parametrize("doc_id", HOSTILE_IDS, ids=ascii)
async def test_superseding_removes_exactly_that_document(table, doc_id):
    """An id is text of the tenant's: quotes in it must neither fail nor reach other documents."""
    await table.merge([], chunk_rows(["other", *HOSTILE_IDS]), None, [])

    await table.merge([doc_id], None, None, [])

    assert await pinned_doc_ids(table) == {"other", *HOSTILE_IDS} - {doc_id}


async def test_merge_removes_thousands_of_documents(table):
    """A memtable of 64 MiB may supersede more documents than one statement takes."""
    names = [f"document '{number}'" for number in range(12_000)]
    await table.merge([], chunk_rows([*names, "kept"]), None, [])

    await table.merge(names, None, None, [])

    assert await pinned_doc_ids(table) == {"kept"}


async def test_merge_replaces_and_removes_memos(table):
    """Memos share the flush with the documents, under the same rules."""
    await table.merge([], None, memo_rows(["kept", "it's", "gone"]), [])

    await table.merge([], None, memo_rows(["it's"], sequence=2), [("it's", "f"), ("gone", "f"), ("kept", "other")])

    memos = await (await table.pin()).memos()
    assert {(memo["name"], memo["sequence"]) for memo in memos.to_pylist()} == {("kept", 1), ("it's", 2)}


async def test_pin_sees_nothing_of_later_merges_and_clean_ups(table):
    """A view must stay whole until its last query has ended."""
    await table.merge([], chunk_rows(["first"]), memo_rows(["memo"]), [])
    pin = await table.pin()
    for number in range(2 * MAX_FRAGMENTS + 2):
        await table.merge(["first"], chunk_rows([f"d{number}"]), memo_rows(["memo"]), [("memo", "f")])
        await table.maintain()
        await table.maintain()

    assert (pin.rows, await doc_ids(pin)) == (1, {"first"})
    assert (await pin.dense(QUERY, 5))["id"].to_pylist() == ["first#0"]
    assert (await pin.keywords(["text"], 5))["id"].to_pylist() == ["first#0"]
    assert (await pin.memos()).num_rows == 1


async def test_maintenance_bounds_files_and_versions(table, tmp_path):
    """Thousands of flushes must not fill the disk nor slow every query down."""
    pin = await table.pin()
    for number in range(3 * MAX_FRAGMENTS):
        await table.merge([f"d{number - 1}"], chunk_rows([f"d{number}", f"stays{number}"]), None, [])
        if await table.maintain():
            pin.release()
            pin = await table.pin()
            await table.maintain()

    assert pin.rows > MAX_FRAGMENTS
    assert len(list((tmp_path / "table" / "chunks.lance" / "_versions").iterdir())) < 3 * MAX_FRAGMENTS
    assert len(list((tmp_path / "table" / "chunks.lance" / "data").iterdir())) <= MAX_FRAGMENTS + 1


async def test_merge_adds_one_fragment_and_two_versions(table):
    """What a flush leaves behind decides how often the table must be rewritten."""
    await table.merge([], chunk_rows(["a", "b"]), None, [])
    before = await table.pin()

    await table.merge(["a"], chunk_rows(["a", "c"]), None, [])

    after = await table.pin()
    assert after.version - before.version == 2


async def test_release_twice_frees_once(table):
    """A second release must not take away the version of another reader."""
    await table.merge([], chunk_rows(["a"]), None, [])
    first, second = await table.pin(), await table.pin()
    first.release()
    first.release()
    for number in range(MAX_FRAGMENTS + 1):
        await table.merge(["a"], chunk_rows([f"d{number}"]), None, [])
    await table.maintain()
    await table.maintain()

    assert await doc_ids(second) == {"a"}


async def test_half_merge_is_never_seen_and_is_undone(table, tmp_path):
    """A merge that fails after its deletes must not lose documents, or show them lost, or leave them in a copy."""
    await table.merge([], chunk_rows(["a", "b"]), memo_rows(["memo"]), [])
    misfit = pa.record_batch({"name": ["memo"]})
    with pytest.raises(RuntimeError, match="different schema"):
        await table.merge(["a"], chunk_rows(["c"]), misfit, [("memo", "f")])

    with pytest.raises(Unavailable) as pinning:
        await table.pin()
    with pytest.raises(Unavailable):
        await table.copy_to(tmp_path / "copy")
    await table.merge(["a"], chunk_rows(["c"]), None, [])
    pin = await table.pin()

    assert pinning.value.code == "table_incomplete"
    assert not (tmp_path / "copy").exists()
    assert (pin.rows, await doc_ids(pin), (await pin.memos()).num_rows) == (2, {"b", "c"}, 1)


async def test_copy_opens_and_stays_as_it_was(table, tmp_path):
    """A snapshot is uploaded while the table goes on."""
    await table.merge([], chunk_rows(["a"]), memo_rows(["memo"]), [])
    await table.copy_to(tmp_path / "copy")
    await table.merge(["a"], chunk_rows(["b"]), None, [("memo", "f")])
    shutil.rmtree(tmp_path / "table")

    copy = await Table.open(tmp_path / "copy")
    pin = await copy.pin()
    assert (copy.dimension, await doc_ids(pin), (await pin.memos()).num_rows) == (2, {"a"}, 1)


async def test_copy_waits_for_a_running_merge(table, tmp_path):
    """A copy of half a merge would be a snapshot without the documents that were being replaced."""
    names = [f"d{number}" for number in range(12_000)]
    await table.merge([], chunk_rows(names), None, [])
    whole = await table._chunks.version()
    merge = asyncio.create_task(table.merge(names, chunk_rows(names), None, []))
    while await table._chunks.version() == whole:
        assert not merge.done()
    was_running = not merge.done()

    await table.copy_to(tmp_path / "copy")

    await merge
    assert was_running
    assert await pinned_doc_ids(await Table.open(tmp_path / "copy")) == set(names)


async def test_merging_into_a_copy_leaves_the_original(table, tmp_path):
    """The files of a copy are the original's: neither may change the other's."""
    await table.merge([], chunk_rows(["a"]), None, [])
    await table.copy_to(tmp_path / "copy")

    copy = await Table.open(tmp_path / "copy")
    await copy.merge(["a"], chunk_rows(["b"]), None, [])
    await copy.build_search_indexes()
    await copy.maintain()

    assert await pinned_doc_ids(await Table.open(tmp_path / "table")) == {"a"}


@pytest.mark.parametrize("is_indexed", [False, True], ids=["unindexed", "indexed"])
async def test_terms_are_matched_as_the_analyser_made_them(table, is_indexed):
    """A tokenizer that folds, stems or drops words would hide chunks that the statistics count."""
    terms = ["the", "Running", "running", "x" * 64, "東京", "ümlaut", "umlaut"]
    await table.merge([], chunk_rows([f"d{n}" for n in range(len(terms))], terms=terms), None, [])
    if is_indexed:
        await table.build_search_indexes()
    pin = await table.pin()

    found = {term: (await pin.keywords([term], 10))["terms"].to_pylist() for term in [*terms, "run", "tokyo"]}
    assert found == {**{term: [term] for term in terms}, "run": [], "tokyo": []}


async def test_keywords_match_any_term(table):
    """BM25 candidates are chunks with at least one of the question's terms."""
    await table.merge([], chunk_rows(["a", "b", "c"], terms=["red fox", "blue fox", "green"]), None, [])
    pin = await table.pin()

    assert set((await pin.keywords(["red", "blue", "nowhere"], 10))["id"].to_pylist()) == {"a#0", "b#0"}
    assert (await pin.keywords([], 10)).num_rows == 0


@pytest.mark.parametrize("is_indexed", [False, True], ids=["unindexed", "indexed"])
async def test_dense_ranks_by_cosine(table, is_indexed):
    """The dot product or the Euclidean distance would rank long vectors otherwise."""
    vectors = [[0.1, 0.0], [50.0, 50.0], [0.0, 3.0]]
    await table.merge([], chunk_rows(["same", "near", "far"], vector=vectors), None, [])
    if is_indexed:
        await table.build_search_indexes()

    found = await (await table.pin()).dense(QUERY, 3)
    assert found["id"].to_pylist() == ["same#0", "near#0", "far#0"]
    assert found["_distance"].to_pylist() == pytest.approx([0.0, 1 - 0.5**0.5, 1.0], abs=0.02)


async def test_both_legs_return_what_completes_a_candidate_and_honour_the_filter(table):
    """Scores are completed from the returned rows, and filters apply before candidates are taken."""
    rows = chunk_rows(["a", "b"], title=["A", "B"], metadata=['{"k":1}', '{"k":2}'])
    await table.merge([], rows, None, [])
    pin = await table.pin()

    dense, keywords = await pin.dense(QUERY, 1, "title = 'B'"), await pin.keywords(["text"], 1, "title = 'B'")
    assert dense.column_names == [*CANDIDATE_COLUMNS, "_distance"]
    assert keywords.column_names == [*CANDIDATE_COLUMNS, "_score"]
    assert dense.drop_columns(["_distance"]).to_pylist() == keywords.drop_columns(["_score"]).to_pylist()
    assert dense["metadata"].to_pylist() == ['{"k":2}']


async def test_indexed_search_finds_nearly_what_exact_search_finds(tmp_path):
    """Candidates of the index are rescored exactly, so what it misses is lost."""
    table = await Table.create(tmp_path / "table", 16)
    vectors = clustered_vectors(4_000, 16)
    rows = chunk_rows([f"d{number}" for number in range(len(vectors))], vector=vectors.tolist())
    await table.merge([], rows, None, [])
    exact, queries = await table.pin(), vectors[::200] + 0.1
    expected = [set((await exact.dense(query, 5))["id"].to_pylist()) for query in queries]

    await table.build_search_indexes()

    indexed = await table.pin()
    found = [set((await indexed.dense(query, 20))["id"].to_pylist()) for query in queries]
    assert sum(len(near & near_exact) for near, near_exact in zip(found, expected, strict=True)) >= 0.98 * 5 * len(
        queries
    )


async def test_indexed_search_finds_all_behind_a_narrow_filter(tmp_path):
    """Rows that pass a filter may lie in any partition of the index, far from the question."""
    table = await Table.create(tmp_path / "table", 16)
    vectors = clustered_vectors(40_000, 16)
    titles = ["rare" if number % 4_000 == 0 else "common" for number in range(len(vectors))]
    rows = chunk_rows([f"d{number}" for number in range(len(vectors))], vector=vectors.tolist(), title=titles)
    await table.merge([], rows, None, [])
    await table.build_search_indexes()
    pin = await table.pin()

    expected = {f"d{number}#0" for number in range(0, len(vectors), 4_000)}
    assert set((await pin.dense(vectors[1], 20, "title = 'rare'"))["id"].to_pylist()) == expected
    assert set((await pin.keywords(["text"], 20, "title = 'rare'"))["id"].to_pylist()) == expected


async def test_rows_that_no_index_covers_are_found(table):
    """A flush is searchable at once, long before the indexes are brought up to it."""
    await table.merge([], chunk_rows([f"d{number}" for number in range(300)]), None, [])
    await table.build_search_indexes()
    await table.merge([], chunk_rows(["late"], terms=["novel"], vector=[[-1.0, 0.0]]), None, [])
    pin = await table.pin()

    assert (await pin.keywords(["novel"], 5))["id"].to_pylist() == ["late#0"]
    assert (await pin.dense(-QUERY, 1))["id"].to_pylist() == ["late#0"]


async def test_indexes_catch_up_before_rows_without_them_slow_searches_down(table):
    """The keyword leg reads every row that its index does not cover: at 5,000 such rows a search takes three times as long."""
    await table.merge([], chunk_rows([f"d{number}" for number in range(300)]), None, [])
    await table.build_search_indexes()
    await table.maintain()

    await table.merge([], chunk_rows([f"more{number}" for number in range(MIN_UNINDEXED_ROWS)]), None, [])
    assert not await table.maintain()
    await table.merge([], chunk_rows(["one too many"]), None, [])
    assert await table.maintain()


async def test_rows_of_returns_all_chunks_of_the_documents_asked_for(table):
    """Statistics are corrected by the old chunks of what a write replaces."""
    rows = chunk_rows(["a", "a", "b"], id=["a#0", "a#1", "b#0"], ordinal=[0, 1, 0])
    await table.merge([], rows, None, [])
    pin = await table.pin()

    assert sorted((await pin.rows_of(["a", "unknown"], ["id"]))["id"].to_pylist()) == ["a#0", "a#1"]
    assert (await pin.rows_of([], ["id", "terms"])).column_names == ["id", "terms"]


async def test_opening_nothing_is_corrupt_data(tmp_path):
    """A directory that was not restored must not look like an empty corpus."""
    with pytest.raises(CorruptData):
        await Table.open(tmp_path / "absent")


@pytest.mark.parametrize("folder", ["data", "_versions"])
async def test_truncated_files_are_corrupt_data(table, tmp_path, folder):
    """The shard restores on CorruptData and crashes on anything else."""
    await table.merge([], chunk_rows([f"d{number}" for number in range(100)]), None, [])
    for file in (tmp_path / "table" / "chunks.lance" / folder).iterdir():
        os.truncate(file, file.stat().st_size // 2)

    with pytest.raises(CorruptData):
        await pinned_doc_ids(await Table.open(tmp_path / "table"))


async def test_other_layout_is_corrupt_data(table, tmp_path, monkeypatch):
    """A table of another version of this program is not read by guesswork."""
    monkeypatch.setattr(
        table_module, "chunk_schema", lambda dimension: MEMO_SCHEMA.append(pa.field("terms", pa.string()))
    )

    async def no_indexes(chunks: object) -> None:
        return

    monkeypatch.setattr(table_module, "_build_lookup_indexes", no_indexes)

    with pytest.raises(CorruptData, match="columns"):
        await Table.create(tmp_path / "other", 2)


async def create_and_copy(directory: Path) -> None:
    table = await Table.create(directory / "private", 2)
    await table.merge([], chunk_rows(["a"]), memo_rows(["m"]), [])
    await table.copy_to(directory / "copy")


def test_files_follow_the_umask(tmp_path):
    """The process sets umask 077; a mode of LanceDB's own would show tenants' text to other users."""
    previous = os.umask(0o077)
    try:
        asyncio.run(create_and_copy(tmp_path))
    finally:
        os.umask(previous)

    assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")} == {0}
