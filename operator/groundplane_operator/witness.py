"""The witness of a corpus in its ConfigMap: the highest durable epoch and sequence that a shard reported.

A store that forgot its last objects looks like any other; the shard compares it with this at every start. The witness is
written at most once in WITNESS_SECONDS, and never lowered: of two the higher epoch stands, then the higher sequence.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

WITNESS_SECONDS: Final = 30.0


class Witness(msgspec.Struct, frozen=True, order=True):
    """An epoch and a sequence that were durable; ordered by epoch first."""

    epoch: int
    sequence: int


class Witnessed(msgspec.Struct, frozen=True):
    """A witness and when it was raised to that, RFC 3339."""

    witness: Witness
    at: str


def raise_witness(known: Witnessed | None, reported: Witness | None, now: float) -> Witnessed | None:
    """Return what has to stand in the ConfigMap: `known` itself unless it is old enough and `reported` is higher."""
    if reported is None or (known is not None and reported <= known.witness):
        return known
    if known is not None and 0 <= now - parse_time(known.at) < WITNESS_SECONDS:
        return known
    return Witnessed(reported, format_time(now))


def try_parse_witness(text: str, at: str) -> Witnessed | None:
    """Return what a ConfigMap holds, None if the witness cannot be read: a shard could not read it either.

    A time that cannot be read counts as long ago, so that the witness is kept and may be raised at once.
    """
    try:
        witness = msgspec.json.decode(text, type=Witness)
    except msgspec.DecodeError:
        return None
    try:
        return Witnessed(witness, format_time(parse_time(at)))
    except (ValueError, OverflowError):
        return Witnessed(witness, format_time(0))


def format_time(seconds: float) -> str:
    """Return seconds since 1970 as Kubernetes writes times: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Return an RFC 3339 time as seconds since 1970. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
