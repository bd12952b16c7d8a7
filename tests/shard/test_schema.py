"""Metadata that may enter a log record can be stored, and comes back meaning the same."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane.wire.public import MAX_METADATA_BYTES, MAX_METADATA_DEPTH
from groundplane_shard.schema import canonical_metadata
from groundplane_shard.table import Table
from tests.shard.table_rows import chunk_rows

texts = st.text(st.characters(codec="utf-8"), max_size=6)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, values, max_size=4).filter(lambda value: _depth(value) <= MAX_METADATA_DEPTH)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Callable[[list[bytes]], list[str]]:
    directory: Path = tmp_path_factory.mktemp("schema")
    count = iter(range(10_000))

    async def store(all_metadata: list[bytes]) -> list[str]:
        table = await Table.create(directory / str(next(count)), 2)
        ids = [f"d{number:04}" for number in range(len(all_metadata))]
        await table.merge([], chunk_rows(ids, metadata=[metadata.decode() for metadata in all_metadata]), None, [])
        rows = await (await table.pin()).rows_of(ids, ["doc_id", "metadata"])
        return [row["metadata"] for row in sorted(rows.to_pylist(), key=lambda row: row["doc_id"])]

    return lambda all_metadata: asyncio.run(store(all_metadata))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(all_metadata=st.lists(objects, min_size=1, max_size=20))
def test_canonical_metadata_survives_the_table(stored, all_metadata):
    """A committed record that cannot be stored, or is stored as something else, would break every later start."""
    canonical = [canonical_metadata(json.dumps(metadata).encode()) for metadata in all_metadata]

    assert [json.loads(text) for text in stored(canonical)] == [json.loads(text) for text in canonical]


@given(metadata=objects)
def test_canonical_metadata_is_a_fixed_point(metadata):
    """The content hash covers it: the same metadata sent again must count as unchanged."""
    canonical = canonical_metadata(json.dumps(metadata).encode())

    assert canonical_metadata(canonical) == canonical
    assert canonical_metadata(json.dumps(metadata, indent=2, ensure_ascii=False).encode()) == canonical


def test_key_order_and_white_space_do_not_matter():
    """The table sorts keys, so what came in another order would look changed after a flush."""
    assert canonical_metadata(b' {"b": 1, "a": {"d": 2, "c": 3}} ') == b'{"a":{"c":3,"d":2},"b":1}'


def test_last_of_repeated_keys_stays():
    """LanceDB refuses repeated keys, in the middle of a flush."""
    assert canonical_metadata(b'{"a":1,"a":2}') == b'{"a":2}'


def test_deepest_metadata_is_storable(stored):
    """The limit must lie within what LanceDB's parser can take."""
    deepest = b'{"a":' * MAX_METADATA_DEPTH + b"1" + b"}" * MAX_METADATA_DEPTH

    assert stored([canonical_metadata(deepest)]) == [deepest.decode()]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"[1]", id="a-list"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"a":1} x', id="more-than-json"),
        pytest.param(b'{"a":NaN}', id="nan"),
        pytest.param(b'{"a":1e400}', id="beyond-float64"),
        pytest.param(b'{"a":' + b"9" * 400 + b"}", id="integer-beyond-float64"),
        pytest.param(b'{"a":18446744073709551616}', id="integer-beyond-64-bits"),
        pytest.param(b'{"a":"\\ud800"}', id="lone-surrogate"),
        pytest.param(b'{"a":"\xff"}', id="not-utf-8"),
        pytest.param(b'{"a":' + b"[" * 2_000 + b"]" * 2_000 + b"}", id="nesting-that-ends-the-process"),
        pytest.param(b'{"a":' + b"[" * 8_000, id="nesting-without-end"),
        pytest.param(
            b'{"a":' * (MAX_METADATA_DEPTH + 1) + b"1" + b"}" * (MAX_METADATA_DEPTH + 1), id="one-level-too-deep"
        ),
        pytest.param(msgspec.json.encode({"a": "x" * MAX_METADATA_BYTES}), id="too-long"),
    ],
)
def test_unstorable_metadata_is_refused(raw):
    """LanceDB would fail on it, change it or end the process: it must be refused before the log."""
    with pytest.raises(InvalidInput) as caught:
        canonical_metadata(raw)

    assert caught.value.field == "metadata"
