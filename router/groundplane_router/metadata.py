"""Metadata of a document: what may stand in it, and its canonical bytes."""

import math
from typing import Any, Final

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.public import (
    MAX_METADATA_BYTES,
    MAX_METADATA_DEPTH,
    MAX_METADATA_VALUES,
    RESERVED_METADATA_KEY,
)

_LARGEST_INTEGER: Final = 2**63


def encode_metadata(metadata: dict[str, Any], field: str) -> bytes:
    """Return `metadata` as JSON with sorted keys, a `tenant` key dropped: no document says whose it is.

    field: its path in the request, for the error. Raises InvalidInput: nested too deeply, too large, too many values, a
    number that is not finite or beyond 64 bits.
    """
    kept = {key: value for key, value in metadata.items() if key != RESERVED_METADATA_KEY}
    check_metadata(kept, field)
    encoded = msgspec.json.encode(kept, order="sorted")
    if len(encoded) > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"{field} has {len(encoded)} bytes of JSON: expected at most {MAX_METADATA_BYTES}", field=field
        )
    return encoded


def check_metadata(metadata: Any, field: str) -> None:
    """Raise InvalidInput for values that cannot be stored, or too many of them."""
    count = _checked_values(metadata, field, depth=1)
    if count > MAX_METADATA_VALUES:
        raise InvalidInput(f"{field} has {count} values: expected at most {MAX_METADATA_VALUES}", field=field)


def _checked_values(value: Any, field: str, *, depth: int) -> int:
    """Return how many values `value` holds in all, itself left out. The recursion ends at the depth limit."""
    count = 0
    if isinstance(value, (dict, list)):
        if depth > MAX_METADATA_DEPTH:
            raise InvalidInput(f"{field} is nested deeper than {MAX_METADATA_DEPTH} levels: flatten it", field=field)
        for inner in value.values() if isinstance(value, dict) else value:
            count += 1 + _checked_values(inner, field, depth=depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{field} holds a number that is not finite: expected a finite one", field=field)
    elif isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise InvalidInput(f"{field} holds an integer beyond 64 bits: expected a smaller one", field=field)
    return count
