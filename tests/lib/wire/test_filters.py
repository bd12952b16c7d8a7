"""Decoding a filter: the grammar, its bounds, and nothing beside it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import InvalidInput
from groundplane.wire.filters import MAX_FILTER_DEPTH, MAX_FILTER_NODES, Eq, Filter, Not, check_filter, walk

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.booleans() | numbers | texts
leaves = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["eq", "ne"]), "key": keys, "value": values}),
    st.fixed_dictionaries({"op": st.sampled_from(["gt", "gte", "lt", "lte"]), "key": keys, "value": numbers | texts}),
    st.fixed_dictionaries({"op": st.just("prefix"), "key": keys, "value": texts}),
    st.fixed_dictionaries({"op": st.just("in"), "key": keys, "values": st.lists(values, min_size=1, max_size=3)}),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.fixed_dictionaries({"op": st.just("not"), "filter": inner})
        | st.fixed_dictionaries(
            {"op": st.sampled_from(["and", "or"]), "filters": st.lists(inner, min_size=1, max_size=3)}
        )
    ),
    max_leaves=6,
)


def decode(tree):
    return msgspec.convert(tree, Filter)


@given(trees)
def test_every_tree_of_the_grammar_survives_the_way_to_a_shard(tree):
    """JSON to the router, msgpack to the shard: the same filter."""
    decoded = msgspec.json.decode(msgspec.json.encode(tree), type=Filter)
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(decoded), type=Filter)

    assert carried == decoded
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == tree


@pytest.mark.parametrize(
    "tree",
    [
        {"op": "sql", "key": "a", "value": "1=1"},
        {"key": "a", "value": 1},
        {"op": "eq", "key": "a"},
        {"op": "eq", "key": "a", "value": None},
        {"op": "eq", "key": "a", "value": [1]},
        {"op": "eq", "key": "a", "value": 1, "tenant": "b"},
        {"op": "eq", "key": "", "value": 1},
        {"op": "eq", "key": "x" * 129, "value": 1},
        {"op": "eq", "key": "a", "value": "x" * 1_025},
        {"op": "in", "key": "a", "values": []},
        {"op": "in", "key": "a", "values": [1] * 1_001},
        {"op": "and", "filters": []},
        {"op": "gt", "key": "a", "value": True},
        {"op": "prefix", "key": "a", "value": 1},
        {"op": "not", "filter": []},
        "title = 'x'",
        [],
    ],
    ids=str,
)
def test_what_is_outside_the_grammar_is_refused(tree):
    """There is no escape from the tree into a query language."""
    with pytest.raises(msgspec.ValidationError):
        decode(tree)


def nested(depth):
    tree: Filter = Eq(key="a", value=1)
    for _ in range(depth - 1):
        tree = Not(filter=tree)
    return tree


def test_depth_is_bounded():
    """Recursion is never the caller's to choose."""
    check_filter(nested(MAX_FILTER_DEPTH))

    with pytest.raises(InvalidInput, match="nested deeper"):
        check_filter(nested(MAX_FILTER_DEPTH + 1))


def test_the_number_of_nodes_is_bounded():
    """Each node is evaluated for every document."""
    leaf = {"op": "eq", "key": "a", "value": 1}
    check_filter(decode({"op": "and", "filters": [leaf] * (MAX_FILTER_NODES - 1)}))

    with pytest.raises(InvalidInput, match="more than"):
        check_filter(decode({"op": "and", "filters": [leaf] * MAX_FILTER_NODES}))


def test_no_filter_is_fine():
    """The usual case."""
    check_filter(None)


def test_walk_yields_every_node_once_with_its_depth():
    """Everything that is checked or compiled goes this way."""
    leaf = {"op": "eq", "key": "a", "value": 1}
    tree = decode({"op": "or", "filters": [{"op": "not", "filter": leaf}, leaf]})

    assert [(type(node).__name__, depth) for node, depth in walk(tree)] == [("Or", 1), ("Not", 2), ("Eq", 3), ("Eq", 2)]
