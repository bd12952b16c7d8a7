"""Whether each document behaves like one register: every operation takes effect at one moment between its two events.

A depth-first search over the order of effects, which remembers the states it has been in (Wing and Gong 1993; Lowe 2017,
"Testing for linearizability"). A write with an unknown outcome may take effect at any time after its beginning, or never.
Documents are independent of each other, so each is searched alone. The search is bounded: a history that would need more
states raises `Undecided`, which is not the same as sound.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.checkers.history import Anomaly, Document, Operation, by_key, reads_of

MAX_STATES = 200_000


class Undecided(Exception):
    """The search was given up; make the history shorter, or with fewer unknown outcomes."""


class _State(msgspec.Struct, frozen=True):
    """Which operations have taken effect, as bits, and what the register holds."""

    done: int
    document: Document | None


def linearizable(operations: Sequence[Operation], *, max_states: int = MAX_STATES) -> list[Anomaly]:
    """Return one anomaly for each document that behaves like no register. Raises Undecided."""
    found = []
    for key, own in by_key(operations).items():
        relevant = _relevant(own)
        last = _furthest(relevant, max_states)
        if last is not None:
            text = "no order of effects explains what was read up to here"
            found.append(Anomaly(checker="linearizable", key=key, position=int(last), text=text))
    return found


def _relevant(own: Sequence[Operation]) -> list[Operation]:
    """Leave out what cannot change the verdict: what failed, reads without answer, unknown puts that nobody saw."""
    seen = {read.document for read in reads_of(own)}
    return [
        one
        for one in own
        if (one.outcome == "ok") or (one.may_have_happened and (one.action == "delete" or one.document in seen))
    ]


def _furthest(own: Sequence[Operation], max_states: int) -> float | None:
    """Return None if some order explains all, else the end of the operation at which every order breaks off."""
    required = sum(1 << number for number, one in enumerate(own) if one.outcome == "ok")
    start = _State(0, None)
    visited, waiting = {start}, [start]
    furthest = 0.0
    while waiting:
        state = waiting.pop()
        if state.done & required == required:
            return None
        if len(visited) > max_states:
            raise Undecided(f"{len(own)} operations on {own[0].key}: more than {max_states} states")
        deadline = _deadline(own, state.done)
        furthest = max(furthest, deadline)
        for follower in _followers(own, state, deadline):
            if follower not in visited:
                visited.add(follower)
                waiting.append(follower)
    return furthest


def _deadline(own: Sequence[Operation], done: int) -> float:
    """Return the first end among the operations still to take effect: nothing that begins later may come before it."""
    return min(one.ended for number, one in enumerate(own) if one.outcome == "ok" and not done >> number & 1)


def _followers(own: Sequence[Operation], state: _State, deadline: float) -> Iterator[_State]:
    for number, one in enumerate(own):
        if one.begun > deadline:
            return
        if state.done >> number & 1:
            continue
        if one.is_write:
            document = one.document if one.action == "put" else None
            yield _State(state.done | 1 << number, document)
        elif one.document == state.document:
            yield _State(state.done | 1 << number, state.document)
