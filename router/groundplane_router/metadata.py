"""Metadata of a document: what may stand in it, and its canonical bytes."""

import math
from typing import Any, Final

import msgspec

from groundplane.errors import InvalidInput
from groundplane.wire.public import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, RESERVED_METADATA_KEY

_LARGEST_INTEGER: Final = 2**63


def encode_metadata(metadata: dict[str, Any], field: str) -> bytes:
    """Return `metadata` as JSON with sorted keys, a `tenant` key dropped: no document says whose it is.

    field: its path in the request, for the error. Raises InvalidInput: nested too deeply, too large, a number that is not
    finite or beyond 64 bits.
    """
    kept = {key: value for key, value in metadata.items() if key != RESERVED_METADATA_KEY}
    _check_value(kept, field, depth=1)
    encoded = msgspec.json.encode(kept, order="sorted")
    if len(encoded) > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"{field} has {len(encoded)} bytes of JSON: expected at most {MAX_METADATA_BYTES}", field=field
        )
    return encoded


def _check_value(value: Any, field: str, *, depth: int) -> None:
    """Raise InvalidInput for what cannot be stored. The recursion ends at the depth limit."""
    if isinstance(value, (dict, list)):
        if depth > MAX_METADATA_DEPTH:
            raise InvalidInput(f"{field} is nested deeper than {MAX_METADATA_DEPTH} levels: flatten it", field=field)
        for inner in value.values() if isinstance(value, dict) else value:
            _check_value(inner, field, depth=depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{field} holds a number that is not finite: expected a finite one", field=field)
    elif isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise InvalidInput(f"{field} holds an integer beyond 64 bits: expected a smaller one", field=field)
