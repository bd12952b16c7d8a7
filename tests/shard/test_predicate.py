"""A filter means the same in memory and in the table."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundplane.wire.filters import And, Eq, Filter, Gt, Gte, In, Lt, Lte, Ne, Not, Or, Prefix
from groundplane_shard.predicate import DocumentFields, compile_predicate, to_sql
from groundplane_shard.schema import canonical_metadata, chunk_schema
from groundplane_shard.table import Table

KEYS = ["a", "b", "a.b", "a'b", 'a"b', "a\\b", "$", "$.a", "[0]", "0", "-1", "*", " ", "é", "\x00", "a') OR true --"]
STRINGS = [
    "",
    "a",
    "A",
    "aé",
    "a'b",
    'a"b',
    "a\\b",
    "a\nb",
    "a\x00",
    "%",
    "a_",
    "true",
    "1",
    "null",
    "é",
    "😀",
    "\uffff",
    "' OR true --",
]
NUMBERS = [0, 1, -1, 0.0, -0.0, 0.1, 1.5, 1e23, 5e-324, 1e308, 2**53, 2**53 + 1, -(2**63), 2**64 - 1, 2**70]
ORDERS = [Gt, Gte, Lt, Lte]

texts = st.sampled_from(STRINGS) | st.text(st.characters(codec="utf-8"), max_size=4)
numbers = st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1)
scalars = st.booleans() | numbers | texts
stored = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)
documents = st.builds(
    dict,
    doc_id=texts,
    title=st.none() | texts,
    uri=st.none() | texts,
    metadata=st.dictionaries(st.sampled_from(KEYS), stored, max_size=5),
)
keys = st.sampled_from([*KEYS, "doc_id", "title", "uri"])
leaves = (
    st.builds(Eq, key=keys, value=scalars)
    | st.builds(Ne, key=keys, value=scalars)
    | st.builds(In, key=keys, values=st.lists(scalars, min_size=1, max_size=4).map(tuple))
    | st.builds(Prefix, key=keys, value=texts)
    | st.builds(lambda kind, key, value: kind(key=key, value=value), st.sampled_from(ORDERS), keys, numbers | texts)
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.builds(And, filters=st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(Or, filters=st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(Not, filter=inner)
    ),
    max_leaves=5,
)


class Shelf:
    """A table whose rows are replaced by a list of documents and then asked with filters."""

    def __init__(self, directory: Path) -> None:
        self._runner = asyncio.Runner()
        self._table = self._runner.run(Table.create(directory, 2))
        self._ids: set[str] = set()

    def rows_passing(self, documents: list[dict], filters: list[Filter]) -> list[set[int]]:
        return self._runner.run(self._rows_passing(documents, filters))

    def close(self) -> None:
        self._runner.close()

    async def _rows_passing(self, documents, filters):
        await self._table.merge(self._ids, _rows(documents), None, [])
        self._ids = {document["doc_id"] for document in documents}
        pin = await self._table.pin()
        vector = np.ones(2, dtype=np.float32)
        answers = [await pin.dense(vector, len(documents) + 1, to_sql(tree).text) for tree in filters]
        pin.release()
        return [set(answer["ordinal"].to_pylist()) for answer in answers]


def _rows(documents):
    count = len(documents)
    columns = {
        "id": [f"{document['doc_id']}#{number}" for number, document in enumerate(documents)],
        "doc_id": [document["doc_id"] for document in documents],
        "ordinal": range(count),
        "start": [0] * count,
        "end": [1] * count,
        "heading": [None] * count,
        "text": ["text"] * count,
        "terms": ["text"] * count,
        "length": [1] * count,
        "vector": [[1.0, 0.5]] * count,
        "title": [document["title"] for document in documents],
        "uri": [document["uri"] for document in documents],
        "metadata": [_metadata(document).decode() for document in documents],
        "chunker": ["c"] * count,
        "content_hash": [b"h"] * count,
        "sequence": [1] * count,
    }
    schema = chunk_schema(2)
    return pa.record_batch([pa.array(list(columns[field.name]), field.type) for field in schema], schema=schema)


def _metadata(document):
    return canonical_metadata(json.dumps(document["metadata"]).encode())


def _fields(document) -> DocumentFields:
    metadata = msgspec.json.decode(_metadata(document))
    return DocumentFields(document["doc_id"], document["title"], document["uri"], metadata)


def _passes(tree: Filter, metadata: dict, **fields) -> bool:
    document = DocumentFields(**{"doc_id": "d", "title": None, "uri": None, **fields}, metadata=metadata)
    return compile_predicate(tree)(document)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path_factory.mktemp("shelf") / "table")
    yield shelf
    shelf.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    rows=st.lists(documents, min_size=1, max_size=20),
    filters=st.lists(trees, min_size=1, max_size=10),
)
def test_table_and_memory_agree_on_every_filter(shelf, rows, filters):
    """A document must not appear or vanish because it moved from memory to the table."""
    found = shelf.rows_passing(rows, filters)

    for tree, passing in zip(filters, found, strict=True):
        predicate = compile_predicate(tree)
        assert to_sql(tree).exact
        assert passing == {number for number, row in enumerate(rows) if predicate(_fields(row))}, tree
