"""A filter means the same in memory and in the table."""

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundplane.wire.filters import And, Eq, Filter, Gt, Gte, In, Lt, Lte, Ne, Not, Or, Prefix
from groundplane_shard.predicate import DocumentFields, compile_predicate, documents_sql, memos_sql, to_sql
from groundplane_shard.schema import canonical_metadata
from groundplane_shard.table import Table
from tests.shard.table_rows import chunk_rows

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
NUMBERS = [0, 1, -1, 0.0, -0.0, 0.1, 1.5, 1e23, 5e-324, 1e308, 2**53, 2**53 + 1, -(2**63), 2**64 - 1, float(2**70)]
HOSTILE = [
    "'",
    "''",
    "\\'",
    '"',
    '\\"',
    "' OR true --",
    "') OR (true",
    "x') OR doc_id IS NOT NULL --",
    "%",
    "_",
    "\x00",
    "\n",
    "$.key",
    ";",
]
ORDERS = [Gt, Gte, Lt, Lte]


class Document(msgspec.Struct, frozen=True):
    """A document as a caller sends it."""

    doc_id: str
    title: str | None
    uri: str | None
    metadata: dict[str, Any]

    @property
    def stored_metadata(self) -> bytes:
        return canonical_metadata(json.dumps(self.metadata).encode())

    @property
    def fields(self) -> DocumentFields:
        return DocumentFields(self.doc_id, self.title, self.uri, msgspec.json.decode(self.stored_metadata))


texts = st.sampled_from(STRINGS) | st.text(st.characters(codec="utf-8"), max_size=4)
numbers = st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1)
scalars = st.booleans() | numbers | texts
stored = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)
documents: st.SearchStrategy[Document] = st.builds(
    Document,
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

    def rows_passing(self, documents: list[Document], conditions: list[str]) -> list[set[int]]:
        """Return, for each SQL condition, the numbers of the documents that pass it."""
        return self._runner.run(self._rows_passing(documents, conditions))

    def close(self) -> None:
        self._runner.close()

    async def _rows_passing(self, documents: list[Document], conditions: list[str]) -> list[set[int]]:
        await self._table.merge(self._ids, _rows(documents), None, [])
        self._ids = {document.doc_id for document in documents}
        pin = await self._table.pin()
        vector = np.ones(2, dtype=np.float32)
        answers = [await pin.dense(vector, len(documents) + 1, condition) for condition in conditions]
        pin.release()
        return [{int(chunk_id.rpartition("#")[2]) for chunk_id in answer["id"].to_pylist()} for answer in answers]


def _rows(documents: list[Document]) -> pa.RecordBatch:
    return chunk_rows(
        [document.doc_id for document in documents],
        id=[f"{document.doc_id}#{number}" for number, document in enumerate(documents)],
        title=[document.title for document in documents],
        uri=[document.uri for document in documents],
        metadata=[document.stored_metadata.decode() for document in documents],
    )


def passes(tree: Filter, **metadata: Any) -> bool:
    return compile_predicate(tree)(DocumentFields("d", None, None, metadata))


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
    found = shelf.rows_passing(rows, [to_sql(tree).text for tree in filters])

    for tree, passing in zip(filters, found, strict=True):
        predicate = compile_predicate(tree)
        assert to_sql(tree).exact
        assert passing == {number for number, row in enumerate(rows) if predicate(row.fields)}, tree


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_matches_only_itself(shelf, text):
    """Quotes and SQL in a key or value must neither widen an answer nor make the query fail."""
    plain = Document("plain", "plain", "plain", {"key": "plain"})
    hostile = Document(text, text, text, {"key": text, text: "value"})
    filters: list[Filter] = [
        *(Eq(key=key, value=text) for key in ("doc_id", "title", "uri", "key")),
        *(Prefix(key=key, value=text) for key in ("doc_id", "title", "uri", "key")),
        In(key="key", values=(text, "nowhere")),
        Eq(key=text, value="value"),
        Gte(key=text, value="value"),
        Prefix(key=text, value="val"),
    ]

    found = shelf.rows_passing([plain, hostile], [to_sql(tree).text for tree in filters])
    assert found == [{1}] * len(filters)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan], ids=str)
@pytest.mark.parametrize("kind", [Eq, Ne, *ORDERS])
@pytest.mark.parametrize("is_negated", [False, True], ids=["plain", "negated"])
def test_number_without_literal_lets_more_rows_through_never_fewer(shelf, kind, value, is_negated):
    """What SQL cannot say is rechecked in memory, which cannot bring back a row that the table withheld."""
    leaf = kind(key="a", value=value)
    tree = Not(filter=leaf) if is_negated else leaf
    rows = [Document(f"d{number}", None, None, {"a": found}) for number, found in enumerate([1, "a", None, True])]

    (passing,) = shelf.rows_passing(rows, [to_sql(tree).text])
    predicate = compile_predicate(tree)
    assert not to_sql(tree).exact
    assert passing >= {number for number, row in enumerate(rows) if predicate(row.fields)}


@pytest.mark.parametrize(
    ("tree", "metadata", "expected"),
    [
        pytest.param(Eq(key="a", value=1), {"a": 1.0}, True, id="numbers-are-float64"),
        pytest.param(Eq(key="a", value=2**53), {"a": 2**53 + 1}, True, id="beyond-53-bits-numbers-round"),
        pytest.param(Eq(key="a", value=1), {"a": True}, False, id="true-is-no-number"),
        pytest.param(Eq(key="a", value=True), {"a": 1}, False, id="one-is-not-true"),
        pytest.param(In(key="a", values=(0, 2)), {"a": False}, False, id="false-is-in-no-numbers"),
        pytest.param(Gte(key="a", value=0), {"a": True}, False, id="true-is-not-above-zero"),
        pytest.param(Eq(key="a", value="1"), {"a": 1}, False, id="another-type-is-unequal"),
        pytest.param(Ne(key="a", value=1), {}, True, id="missing-is-not-equal"),
        pytest.param(Ne(key="a", value=1), {"a": "1"}, True, id="another-type-is-not-equal"),
        pytest.param(Lt(key="a", value=1), {}, False, id="missing-is-not-below"),
        pytest.param(Not(filter=Lt(key="a", value=1)), {}, True, id="not-below-holds-for-missing"),
        pytest.param(Lt(key="a", value="\U0001f600"), {"a": "\uffff"}, True, id="strings-compare-by-code-point"),
        pytest.param(Eq(key="a", value="x"), {"a": ["x"]}, False, id="a-list-equals-nothing"),
        pytest.param(Eq(key="a.b", value=1), {"a": {"b": 1}}, False, id="keys-are-no-paths"),
        pytest.param(Eq(key="a.b", value=1), {"a.b": 1}, True, id="a-dot-is-part-of-the-key"),
        pytest.param(Prefix(key="a", value=""), {"a": "x"}, True, id="every-string-begins-with-nothing"),
        pytest.param(Prefix(key="a", value=""), {"a": 1}, False, id="a-number-has-no-prefix"),
    ],
)
def test_filters_mean_what_the_design_says(tree, metadata, expected):
    """The two evaluators could agree and both be wrong."""
    assert passes(tree, **metadata) is expected


def test_document_keys_are_not_metadata():
    """A metadata key of that name must not stand in for the document's own title."""
    document = DocumentFields("d", None, "u", {"title": "t", "doc_id": "other", "uri": "other"})

    assert not compile_predicate(Eq(key="title", value="t"))(document)
    assert compile_predicate(And(filters=(Eq(key="doc_id", value="d"), Eq(key="uri", value="u"))))(document)


def test_conditions_over_many_names_are_split():
    """LanceDB parses a statement in one piece: its length must not follow the size of a flush."""
    statements = [list(documents_sql([f"d{number}" for number in range(20_001)]))]
    statements.append(list(memos_sql([(f"n{number}", "f") for number in range(2_001)])))

    assert [len(parts) for parts in statements] == [5, 5]
    assert list(documents_sql([])) == []
