"""The pages about durability promise what tests show."""

import re
import struct
from pathlib import Path

import msgspec
import pytest

from groundplane_shard import payload
from groundplane_shard.log import Manifest, Snapshot, SnapshotFile
from groundplane_shard.log import record as record_codec
from groundplane_shard.schema import CHUNK_COLUMNS, MEMO_SCHEMA
from groundplane_shard.statistics import TableStatistics

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def test_every_test_that_the_failure_table_names_exists():
    """A row whose test was renamed or removed shows nothing any more."""
    named = NAMED.findall((ROOT / "docs" / "durability.md").read_text())
    sources: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        sources[path.name] = sources.get(path.name, "") + path.read_text()
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in sources.get(file, "")]

    assert missing == []
    assert named


def test_every_row_of_the_failure_table_names_a_test():
    """A claim without a test is a hope."""
    table = (ROOT / "docs" / "durability.md").read_text().split("| --- | --- | --- |")[1]

    assert [row for row in table.strip().splitlines() if not NAMED.search(row)] == []


def test_the_header_in_the_format_page_is_the_one_that_is_written():
    """Whoever writes a decoder has only the page."""
    page = (ROOT / "docs" / "format.md").read_text()
    rows = [(int(offset), int(size)) for offset, size in re.findall(r"^\| (\d+) \| (\d+) \|", page, re.MULTILINE)]
    sizes = [struct.calcsize(f">{field}") for field in re.findall(r"\d*[a-zA-Z]", record_codec._HEADER.format[1:])]

    assert rows == [(sum(sizes[:index]), size) for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name, _ in (*payload._ROW_COLUMNS, *payload._CHUNK_COLUMNS)], id="payload"),
        pytest.param(
            [field.name for kind in (Manifest, Snapshot, SnapshotFile) for field in msgspec.structs.fields(kind)],
            id="manifest",
        ),
        pytest.param([*CHUNK_COLUMNS, *MEMO_SCHEMA.names], id="tables"),
        pytest.param([field.name for field in msgspec.structs.fields(TableStatistics)], id="statistics"),
    ],
)
def test_every_stored_name_is_in_the_format_page(names):
    """A field that was added is to be described."""
    page = (ROOT / "docs" / "format.md").read_text()

    assert [name for name in names if f"`{name}`" not in page] == []
