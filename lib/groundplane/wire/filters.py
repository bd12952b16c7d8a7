"""The filter tree of a request: decoded here once, evaluated by the shard on cached columns or as SQL of the table.

A leaf compares one key with one value. The keys `title`, `uri` and `doc_id` are the document's own; every other key is
a single top-level name of its metadata. A missing key, or a value of another type, compares false; `ne` is the negation
of `eq` and so true for a missing key. Numbers are float64, strings compare by code point, true and false are no numbers.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from groundplane.errors import InvalidInput

MAX_FILTER_NODES = 64
MAX_FILTER_DEPTH = 8
DOCUMENT_KEYS = frozenset({"title", "uri", "doc_id"})

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Text = Annotated[str, msgspec.Meta(max_length=1_024)]
Value = bool | int | float | Text
Ordered = int | float | Text


class _Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    pass


class And(_Node, frozen=True, kw_only=True, tag="and"):
    """True when every one of `filters` is."""

    filters: Annotated[tuple["Filter", ...], msgspec.Meta(min_length=1, max_length=MAX_FILTER_NODES)]


class Or(_Node, frozen=True, kw_only=True, tag="or"):
    """True when one of `filters` is."""

    filters: Annotated[tuple["Filter", ...], msgspec.Meta(min_length=1, max_length=MAX_FILTER_NODES)]


class Not(_Node, frozen=True, kw_only=True, tag="not"):
    """True when `filter` is not."""

    filter: "Filter"


class Eq(_Node, frozen=True, kw_only=True, tag="eq"):
    """True when the key's value equals `value` and is of its type."""

    key: Key
    value: Value


class Ne(_Node, frozen=True, kw_only=True, tag="ne"):
    """The negation of `eq`: true for a missing key too."""

    key: Key
    value: Value


class In(_Node, frozen=True, kw_only=True, tag="in"):
    """True when the key's value equals one of `values`."""

    key: Key
    values: Annotated[tuple[Value, ...], msgspec.Meta(min_length=1, max_length=1_000)]


class Gt(_Node, frozen=True, kw_only=True, tag="gt"):
    """True when the key's value is above `value`."""

    key: Key
    value: Ordered


class Gte(_Node, frozen=True, kw_only=True, tag="gte"):
    """True when the key's value is `value` or above."""

    key: Key
    value: Ordered


class Lt(_Node, frozen=True, kw_only=True, tag="lt"):
    """True when the key's value is below `value`."""

    key: Key
    value: Ordered


class Lte(_Node, frozen=True, kw_only=True, tag="lte"):
    """True when the key's value is `value` or below."""

    key: Key
    value: Ordered


class Prefix(_Node, frozen=True, kw_only=True, tag="prefix"):
    """True when the key's value is a string that begins with `value`."""

    key: Key
    value: Text


Filter = And | Or | Not | Eq | Ne | In | Gt | Gte | Lt | Lte | Prefix


def walk(tree: Filter, depth: int = 1) -> Iterator[tuple[Filter, int]]:
    """Yield every node of `tree` with its depth, the root (depth 1) first. Raises InvalidInput below the depth limit."""
    if depth > MAX_FILTER_DEPTH:
        raise InvalidInput(f"filter is nested deeper than {MAX_FILTER_DEPTH} levels: flatten it", field="filter")
    yield tree, depth
    match tree:
        case And() | Or():
            for child in tree.filters:
                yield from walk(child, depth + 1)
        case Not():
            yield from walk(tree.filter, depth + 1)
        case _:
            return


def check_filter(tree: Filter | None) -> None:
    """Raise InvalidInput if `tree` has more nodes or levels than a filter may, or text that UTF-8 cannot carry."""
    if tree is None:
        return
    for count, (node, _) in enumerate(walk(tree), start=1):
        if count > MAX_FILTER_NODES:
            raise InvalidInput(
                f"filter has more than {MAX_FILTER_NODES} nodes: expected fewer; use `in`", field="filter"
            )
        if isinstance(node, (And, Or, Not)):
            continue
        if any(isinstance(value, int) and not -(2**63) <= value < 2**64 for value in leaf_values(node)):
            raise InvalidInput(
                "filter compares with an integer beyond 64 bits: expected a smaller number", field="filter"
            )


def leaf_values(leaf: Eq | Ne | In | Gt | Gte | Lt | Lte | Prefix) -> tuple[Value, ...]:
    """Return the values that `leaf` compares with, one for all but `in`."""
    return leaf.values if isinstance(leaf, In) else (leaf.value,)
