"""What a corpus leaves in its directory, and what it makes of a directory that is not right."""

import msgspec
import pytest

from groundplane.errors import CorruptData
from groundplane_shard.corpus import Corpus
from groundplane_shard.rows import StoredDelete
from groundplane_shard.statistics import FILE_NAME, read_statistics, write_statistics
from groundplane_shard.table import Table
from tests.shard.corpus_model import (
    BOTH_ENGINES,
    flushed,
    found_ids,
    stored,
    write,
)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "table"


@BOTH_ENGINES
async def test_a_copy_opens_as_what_was_flushed(directory, tmp_path, exact_bytes):
    """A snapshot is this copy: later flushes must not reach into it."""
    corpus = await flushed(directory, stored("a"), exact_bytes=exact_bytes)
    await corpus.copy_to(tmp_path / "copy")
    await write(corpus, StoredDelete("a"), stored("b"))
    await corpus.flush()

    copy = await Corpus.open(tmp_path / "copy", exact_bytes=exact_bytes)

    assert (copy.view().sequence, await found_ids(copy, "pump")) == (1, ["a"])


@BOTH_ENGINES
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"dimension": 4}, id="dimension"),
        pytest.param({"totals": (2, 1, 1)}, id="documents"),
        pytest.param({"totals": (1, 1, 2)}, id="tokens"),
        pytest.param({"format": 2}, id="format"),
    ],
)
async def test_a_table_that_differs_from_its_statistics_is_corrupt(directory, exact_bytes, changes):
    """Statistics that do not fit the rows would rank wrongly for ever, without anybody noticing."""
    await flushed(directory, stored("a"), exact_bytes=exact_bytes)
    statistics = msgspec.structs.replace(read_statistics(directory), **changes)
    write_statistics(directory, statistics)

    with pytest.raises(CorruptData):
        await Corpus.open(directory, exact_bytes=exact_bytes)


async def test_term_frequencies_of_the_exact_engine_are_compared_too(directory):
    """The indexed engine would rely on them after it is crossed over to."""
    await flushed(directory, stored("a"))
    write_statistics(directory, msgspec.structs.replace(read_statistics(directory), frequencies={"pump": 2}))

    with pytest.raises(CorruptData, match="term frequencies"):
        await Corpus.open(directory)


@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
async def test_a_damaged_statistics_file_is_corrupt(directory, damage):
    """A directory without it is not an empty corpus."""
    await flushed(directory, stored("a"))
    path = directory / FILE_NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(content if damage == "flipped" else b"")

    with pytest.raises(CorruptData, match="statistics"):
        await Corpus.open(directory)


async def test_the_statistics_file_is_private(directory):
    """Its terms are the tenant's words."""
    await flushed(directory, stored("a"))

    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_search_indexes_come_with_the_directory(directory, monkeypatch):
    """Building them takes seconds for a large table: a start must find them, not make them."""
    await flushed(directory, stored("a"), exact_bytes=0)

    async def fail(*_):
        raise AssertionError("the indexes were built again")

    monkeypatch.setattr(Table, "build_search_indexes", fail)
    corpus = await Corpus.open(directory, exact_bytes=0)

    assert (corpus.engine, await found_ids(corpus, "pump")) == ("indexed", ["a"])
