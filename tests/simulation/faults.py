"""What goes wrong between a process and the store, drawn from the seed: which faults this world has, and how often.

A fault is decided for each request. Requests that change something may be lost, applied without an answer, applied late or
again; answers to reads may be damaged, of another object, out of date; a listing may be cut or unordered.
"""

import random
from collections.abc import Sequence
from itertools import accumulate

from groundplane_shard.log import operations as ops

WRITE_FAULTS = ("request lost", "answer lost", "late", "repeated late", "conflict 409", "refused")
READ_FAULTS = ("no answer", "answer damaged", "answer of another object", "answer out of date")
LIST_FAULTS = ("no answer", "listing unordered", "listing incomplete", "listing in pages")
UPLOAD_FAULTS = (*WRITE_FAULTS, "upload damaged")
VERIFY_FAULTS = ("no answer",)
DISASTERS = ("log tail lost", "bucket rolled back", "old MANIFEST put back", "MANIFEST lost")
PROCESS_FAULTS = ("crash", "freeze", "process cut off", "store outage")
CHANGES = ("corpus created again", "corpus restored", "restore into a used prefix", "foreign owner", "snapshot rotten")
ALL_FAULTS = tuple(
    dict.fromkeys((*UPLOAD_FAULTS, *READ_FAULTS, *LIST_FAULTS, *PROCESS_FAULTS, *DISASTERS, *CHANGES, "delete late"))
)
MISLEADING = frozenset(("answer damaged", "answer of another object", "answer out of date", "listing incomplete"))


class Rates:
    """How rough this seed's world is: drawn once, so that seeds differ in kind and not only in detail.

    Chances are per request or per step. `at_barrier` multiplies freezes and crashes between the end of the log and the
    barrier: the moment is short, and what must not happen there is rare.
    """

    def __init__(self, rng: random.Random) -> None:
        choice = rng.choice
        lost = choice((0.0, 0.03, 0.1))
        late = choice((0.0, 0.03, 0.08))
        self.second_corpus = choice(("corpus created again", "corpus restored")) if rng.random() < 0.35 else ""
        self.chances = {
            "request lost": lost / 2,
            "answer lost": lost / 2,
            "no answer": lost,
            "late": late / 2,
            "repeated late": late / 2,
            "conflict 409": choice((0.01, 0.04)),
            "refused": choice((0.0, 0.0, 0.03)),
            "upload damaged": choice((0.0, 0.0, 0.05)),
            "answer damaged": choice((0.0, 0.0, 0.0, 0.06)),
            "answer of another object": choice((0.0, 0.1 if self.second_corpus else 0.0, 0.0, 0.06)),
            "answer out of date": choice((0.0, 0.0, 0.0, 0.08)),
            "listing unordered": choice((0.0, 0.0, 0.1)),
            "listing incomplete": choice((0.0, 0.0, 0.0, 0.2)),
            "listing in pages": choice((0.0, 0.5)),
        }
        self.outage = choice((0.0, 0.006))
        self.store_outage = choice((0.0, 0.0, 0.003))
        self.freeze = choice((0.004, 0.015, 0.04))
        self.crash = choice((0.0, 0.004, 0.012))
        self.processes = choice((3, 4))
        self.take_over = choice((0.3, 0.6, 0.9))
        self.keep = choice((1, 1, 2, 3))
        self.records_per_snapshot = choice((1, 2, 3))
        self.longest_freeze = choice((60, 250))
        self.at_barrier = 8
        self.disaster = choice(DISASTERS) if rng.random() < 0.35 else ""
        if self.disaster and rng.random() < 0.3:
            self.second_corpus = "corpus restored"  # what can be saved
        self.stranger = choice(("restore into a used prefix", "foreign owner")) if rng.random() < 0.2 else ""
        if rng.random() < 0.3:
            self._stall_take_overs()
        self.fates = {
            "write": _fates(WRITE_FAULTS, self.chances),
            "upload": _fates(UPLOAD_FAULTS, self.chances),
            "read": _fates(READ_FAULTS, self.chances),
            "list": _fates(LIST_FAULTS, self.chances),
            "verify": _fates(VERIFY_FAULTS, self.chances),
        }
        self.is_misleading = any(self.chances[name] > 0 for name in MISLEADING)

    def _stall_take_overs(self) -> None:
        """Make it likely that a take-over sleeps while another process takes over, publishes and collects."""
        self.chances = dict.fromkeys(self.chances, 0.0)
        self.chances["conflict 409"] = 0.03
        self.outage = self.store_outage = self.crash = 0.0
        self.freeze, self.at_barrier, self.longest_freeze = 0.03, 20, 600
        self.take_over, self.keep, self.processes = 0.2, 1, 4
        self.disaster = self.second_corpus = self.stranger = ""

    def calm_down(self) -> None:
        """Let nothing go wrong any more."""
        self.fates = dict.fromkeys(self.fates, ((), ()))
        self.outage = self.store_outage = 0.0

    def fate(self, kind: str, draw: float) -> str | None:
        """Return the fault that `draw`, from [0, 1), means for an operation of this kind; None: all goes well."""
        names, limits = self.fates[kind]
        if not limits or draw >= limits[-1]:
            return None
        return next(name for name, limit in zip(names, limits, strict=True) if draw < limit)


KINDS: dict[type[ops.Operation], str] = {
    ops.Get: "read",
    ops.List: "list",
    ops.Verify: "verify",
    ops.Upload: "upload",
    ops.Create: "write",
    ops.Replace: "write",
    ops.Delete: "write",
}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes cut, or with one bit flipped."""
    if rng.random() < 0.5 or not data:
        return data[: rng.randrange(len(data) + 1)]
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _fates(names: Sequence[str], chances: dict[str, float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    reached = [name for name in names if chances[name] > 0]
    return tuple(reached), tuple(accumulate(chances[name] for name in reached))
