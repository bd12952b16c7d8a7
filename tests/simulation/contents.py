"""The tiny key/value model that payloads mean in the simulation; to the protocol they are opaque bytes.

A payload is `<key> <number><+ or ->`: put, with the number as its value, or delete. No two payloads are equal.
"""

import random
import zlib

from groundplane_shard.log.layout import Seq

KEYS = tuple(b"k%d" % number for number in range(8))
KEYS_PER_FILE = 4
FILE_BYTES = 48


class Contents:
    """What a process holds: the live payload of each key, and a checksum over all that was ever applied, in order."""

    __slots__ = ("history", "values")

    def __init__(self, values: dict[bytes, bytes] | None = None, history: int = 0) -> None:
        self.values = values or {}
        self.history = history

    def apply(self, payload: bytes) -> None:
        """Apply one payload."""
        self.history = zlib.crc32(payload, self.history)
        if payload.endswith(b"+"):
            self.values[payload[:2]] = payload
        else:
            self.values.pop(payload[:2], None)

    def copy(self) -> "Contents":
        """Return an equal state that goes its own way."""
        return Contents(dict(self.values), self.history)

    def pack(self) -> list[bytes]:
        """Return the state's files, all of one size: a few keys in each, so that most do not change with a write."""
        groups = [KEYS[start : start + KEYS_PER_FILE] for start in range(0, len(KEYS), KEYS_PER_FILE)]
        values = [b" ".join(b"%b" % self.values[key] for key in group if key in self.values) for group in groups]
        texts = [value.replace(b" ", b":") for value in values]
        return [text.ljust(FILE_BYTES, b"\n") for text in (*texts, b"%d" % self.history)]


def unpack(files: list[bytes]) -> Contents:
    """Return the state in the files, given in the order of their paths; no files are the empty state."""
    if not files:
        return Contents()
    words = [word for text in files[:-1] for word in text.strip().split(b":") if word]
    payloads = [b"%b %b" % pair for pair in zip(words[::2], words[1::2], strict=True)]
    return Contents({payload[:2]: payload for payload in payloads}, int(files[-1]))


def fresh_payload(rng: random.Random, number: int) -> bytes:
    """Return a payload that was not used before."""
    key = KEYS[int(len(KEYS) * rng.random() ** 4)]  # a few are written often, most hardly ever
    return b"%b %d%b" % (key, number, b"-" if rng.random() < 0.2 else b"+")


class History:
    """The state after every sequence of one log."""

    def __init__(self) -> None:
        self._states = [Contents()]

    def append(self, payload: bytes | None) -> None:
        """Add the state after one more record; None: a record that changes nothing."""
        state = self._states[-1]
        if payload is not None:
            state = state.copy()
            state.apply(payload)
        self._states.append(state)

    def at(self, sequence: int) -> Contents:
        """Return the state that holds the log up to `sequence`."""
        return self._states[sequence]

    def cut(self, sequence: Seq | int) -> "History":
        """Return the history up to `sequence`."""
        shorter = History()
        shorter._states = self._states[: sequence + 1]
        return shorter
