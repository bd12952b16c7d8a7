"""A filter in two forms that agree: a function for rows in memory, and SQL for the table.

Rules (those of `groundplane.wire.filters`): a missing key and a value of another type compare false, `ne` is the
negation of `eq`, numbers are float64, strings compare by code point, true and false are no numbers. So every leaf is
true or false, never unknown, and `not` means what it says.

How the SQL keeps them: `json_get(metadata, key)` takes a key literally, whatever characters it holds (a JSON path would
not), and `json_extract(…, '$')` shows the value as JSON text, in which each type looks different; numbers are compared
after TRY_CAST, which is null for what is none. `json_get_string` and its kin raise as soon as one row holds another
type, hence the CASE around it. Strings are compared in JSON's own escaping where only equality or a prefix matters.
Values and keys enter only as string literals with doubled quotes (LanceDB's SQL has no other escape) or as numbers.

Whoever fetches rows by the SQL checks them once more with the function: that is required where `Sql.exact` is false
(the text then also lets other rows through) and cheap insurance everywhere else.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from groundplane.wire.filters import DOCUMENT_KEYS, And, Eq, Filter, Gt, Gte, In, Lt, Lte, Ne, Not, Or, Prefix, Value

Leaf = Eq | In | Gt | Gte | Lt | Lte | Prefix
Comparison = Gt | Gte | Lt | Lte

_IDS_PER_STATEMENT = 5_000
_MEMOS_PER_STATEMENT = 500
_COMPARE: Mapping[type[Comparison], Callable[[Any, Any], bool]] = {
    Gt: operator.gt,
    Gte: operator.ge,
    Lt: operator.lt,
    Lte: operator.le,
}
_SQL_OPERATORS: Mapping[type[Comparison], str] = {Gt: ">", Gte: ">=", Lt: "<", Lte: "<="}


class DocumentFields(msgspec.Struct, frozen=True):
    """What a filter sees of a document; `metadata` is its JSON object, decoded once."""

    doc_id: str
    title: str | None
    uri: str | None
    metadata: Mapping[str, object]


class Sql(msgspec.Struct, frozen=True):
    """A predicate over `chunks`. Where not `exact`, it lets through more rows than the filter does, never fewer."""

    text: str
    exact: bool


Predicate = Callable[[DocumentFields], bool]
_Item = TypeVar("_Item")
_Test = Callable[[object], bool]


def compile_predicate(tree: Filter) -> Predicate:
    """Return the function that says whether a document passes `tree`; it never raises."""
    match tree:
        case And():
            parts = [compile_predicate(child) for child in tree.filters]
            return lambda document: all(part(document) for part in parts)
        case Or():
            parts = [compile_predicate(child) for child in tree.filters]
            return lambda document: any(part(document) for part in parts)
        case Not():
            inner = compile_predicate(tree.filter)
            return lambda document: not inner(document)
        case Ne():
            inner = compile_predicate(Eq(key=tree.key, value=tree.value))
            return lambda document: not inner(document)
        case _:
            return _on_key(tree.key, _leaf_test(tree))


def to_sql(tree: Filter) -> Sql:
    """Return `tree` as a predicate over the columns of `chunks`, for a query's `where`."""
    return _tree_sql(tree, negated=False)


def sql_string(value: str) -> str:
    """Return `value` as an SQL literal. Only the quote is special to LanceDB, a backslash is not."""
    return "'" + value.replace("'", "''") + "'"


def documents_sql(doc_ids: Collection[str]) -> Iterator[str]:
    """Yield predicates, each of bounded length, that together are true for exactly the chunks of these documents."""
    for part in _parts(sorted(set(doc_ids)), _IDS_PER_STATEMENT):
        yield _in_list("doc_id", map(sql_string, part))


def memos_sql(memos: Collection[tuple[str, str]]) -> Iterator[str]:
    """Yield predicates, each of bounded length, that together are true for exactly the memos (name, fingerprint)."""
    for part in _parts(sorted(set(memos)), _MEMOS_PER_STATEMENT):
        yield " OR ".join(
            f"(name = {sql_string(name)} AND fingerprint = {sql_string(fingerprint)})" for name, fingerprint in part
        )


def _on_key(key: str, test: _Test) -> Predicate:
    match key:
        case "doc_id":
            return lambda document: test(document.doc_id)
        case "title":
            return lambda document: test(document.title)
        case "uri":
            return lambda document: test(document.uri)
        case _:
            return lambda document: test(document.metadata.get(key))


def _leaf_test(leaf: Leaf) -> _Test:
    match leaf:
        case Eq():
            return _membership((leaf.value,))
        case In():
            return _membership(leaf.values)
        case Prefix():
            prefix = leaf.value
            return lambda found: isinstance(found, str) and found.startswith(prefix)
        case _:
            return _order(leaf)


def _membership(values: Iterable[Value]) -> _Test:
    strings, numbers, bools = _by_type(values)

    def test(found: object) -> bool:
        if isinstance(found, str):
            return found in strings
        if isinstance(found, bool):
            return found in bools
        return isinstance(found, int | float) and _float64(found) in numbers

    return test


def _order(leaf: Comparison) -> _Test:
    compare = _COMPARE[type(leaf)]
    if isinstance(leaf.value, str):
        text = leaf.value
        return lambda found: isinstance(found, str) and compare(found, text)
    bound = _float64(leaf.value)

    def test(found: object) -> bool:
        return isinstance(found, int | float) and not isinstance(found, bool) and compare(_float64(found), bound)

    return test


def _by_type(values: Iterable[Value]) -> tuple[set[str], set[float], set[bool]]:
    strings: set[str] = set()
    numbers: set[float] = set()
    bools: set[bool] = set()
    for value in values:
        if isinstance(value, str):
            strings.add(value)
        elif isinstance(value, bool):
            bools.add(value)
        else:
            numbers.add(_float64(value))
    return strings, numbers, bools


def _float64(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _tree_sql(tree: Filter, *, negated: bool) -> Sql:
    """Push `not` down to the leaves, so that an inexact leaf can become `true` whatever stands above it."""
    match tree:
        case And() | Or():
            word = "AND" if isinstance(tree, And) != negated else "OR"
            parts = [_tree_sql(child, negated=negated) for child in tree.filters]
            return Sql(f"({f' {word} '.join(part.text for part in parts)})", all(part.exact for part in parts))
        case Not():
            return _tree_sql(tree.filter, negated=not negated)
        case Ne():
            return _tree_sql(Eq(key=tree.key, value=tree.value), negated=not negated)
        case _:
            text = _leaf_sql(tree)
            if text is None:
                return Sql("true", exact=False)
            return Sql(f"(NOT {text})" if negated else text, exact=True)


def _leaf_sql(leaf: Leaf) -> str | None:
    """Return a parenthesised, never null predicate; None where SQL has no literal for the value (not a finite number)."""
    values = leaf.values if isinstance(leaf, In) else (leaf.value,)
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return None
    return _column_sql(leaf) if leaf.key in DOCUMENT_KEYS else _metadata_sql(leaf)


def _column_sql(leaf: Leaf) -> str:
    match leaf:
        case Eq() | In():
            strings, _, _ = _by_type((leaf.value,) if isinstance(leaf, Eq) else leaf.values)
            condition = _in_list(leaf.key, map(sql_string, sorted(strings)))
        case Prefix():
            condition = f"starts_with({leaf.key}, {sql_string(leaf.value)})"
        case _ if isinstance(leaf.value, str):
            condition = f"{leaf.key} {_SQL_OPERATORS[type(leaf)]} {sql_string(leaf.value)}"
        case _:
            condition = "false"
    # A bare comparison lets LanceDB use its index on doc_id, which is never null.
    return f"({condition})" if leaf.key == "doc_id" or condition == "false" else f"(({condition}) IS TRUE)"


def _metadata_sql(leaf: Leaf) -> str:
    key = sql_string(leaf.key)
    shown = f"json_extract(json_get(metadata, {key}), '$')"
    number = f"TRY_CAST({shown} AS DOUBLE)"
    is_string = f"starts_with({shown}, '\"')"
    match leaf:
        case Eq() | In():
            strings, numbers, bools = _by_type((leaf.value,) if isinstance(leaf, Eq) else leaf.values)
            texts = [*sorted(map(_json_text, strings)), *("true" if value else "false" for value in sorted(bools))]
            return _any_of(_in_list(shown, map(sql_string, texts)), _in_list(number, map(repr, sorted(numbers))))
        case Prefix():
            return f"(starts_with({shown}, {sql_string(_json_text(leaf.value)[:-1])}) IS TRUE)"
        case _ if isinstance(leaf.value, str):
            text = f"coalesce(CASE WHEN {is_string} THEN json_get_string(metadata, {key}) END, '')"
            comparison = f"{text} {_SQL_OPERATORS[type(leaf)]} {sql_string(leaf.value)}"
            return f"(({is_string} AND {comparison}) IS TRUE)"
        case _:
            return f"(({number} {_SQL_OPERATORS[type(leaf)]} {_float64(leaf.value)!r}) IS TRUE)"


def _any_of(*conditions: str) -> str:
    given = [f"({condition}) IS TRUE" for condition in conditions if condition != "false"]
    return f"({' OR '.join(given) or 'false'})"


def _in_list(expression: str, literals: Iterable[str]) -> str:
    listed = ", ".join(literals)
    return f"{expression} IN ({listed})" if listed else "false"


def _json_text(value: str) -> str:
    """Return `value` in the escaping in which LanceDB shows JSON strings: quote, backslash and characters below 32 only."""
    return msgspec.json.encode(value).decode()


def _parts(values: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
