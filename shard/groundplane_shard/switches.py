"""The payload of a switch record: one step of giving a corpus another embedding.

`begin` opens the next generation, `switch` puts it in the place of the present one, `abandon` drops it. JSON, with the ids of
both embeddings; that of the next one stands in the record's header too. Raises `CorruptData` for bytes that `encode` did
not write. Never change a field: a new layout needs a new format version of the log record.
"""

from typing import Literal

import msgspec

from groundplane.errors import CorruptData

Step = Literal["begin", "switch", "abandon"]


class Switch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step. `current` and `target` are the embedding ids (32 hex digits) of the present generation and of the next."""

    step: Step
    current: str | None  # None: the present generation has no embedding yet
    target: str


def encode(switch: Switch) -> bytes:
    """Return the payload of a switch record."""
    return msgspec.json.encode(switch)


def decode(payload: bytes, *, key: str) -> Switch:
    """Return the step in `payload`. `key` is the record's, for the error."""
    try:
        return msgspec.json.decode(payload, type=Switch)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"switch record {key} cannot be read: expected a step of this version") from error
