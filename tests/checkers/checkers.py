"""Checkers of recorded histories: pure functions from a history to the anomalies in it, none where all is well.

    acknowledged_seen     a document whose write was acknowledged is seen by every later read, until something may have
                          replaced or deleted it
    nothing_unattempted   what is read was asked for, before the read ended, by a write that was not reported as failed
    documents_whole       what is read is one document as it was put, not parts of several
    sequences_monotonic   no observer is told a sequence below one it was told before, and a write that began after another
                          was acknowledged has no lower sequence
    linearizable          each document behaves like one register (see `linearizable`)

The first four say what is wrong in plain words; the last finds whatever else is wrong in the order of things.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

from tests.checkers.history import Anomaly, History, Operation, by_key, operations_of, reads_of
from tests.checkers.linearizable import linearizable

Checker: TypeAlias = Callable[[Sequence[Operation]], list[Anomaly]]


def check(history: History) -> list[Anomaly]:
    """Return everything that any checker finds, in the order of the events that show it."""
    operations = operations_of(history)
    found = [anomaly for checker in CHECKERS for anomaly in checker(operations)]
    return sorted(found, key=lambda anomaly: (anomaly.position, anomaly.checker))


def acknowledged_seen(operations: Sequence[Operation]) -> list[Anomaly]:
    """Return the reads that found nothing although an acknowledged document must be there."""
    found = []
    for key, own in by_key(operations).items():
        for read in reads_of(own):
            if read.document is None and (lost := _must_be_there(own, read)) is not None:
                text = f"{lost.document} was acknowledged at {lost.ended:.0f} and never deleted, yet nothing is read"
                found.append(_anomaly("acknowledged_seen", key, read, text))
    return found


def nothing_unattempted(operations: Sequence[Operation]) -> list[Anomaly]:
    """Return the reads that found a part which no write had asked for, or only writes that failed."""
    found = []
    for key, own in by_key(operations).items():
        for read in reads_of(own):
            attempted = {part for write in _possible_writes(own, read) for part in write.document or ()}
            invented = [part for part in read.document or () if part not in attempted]
            if invented:
                found.append(_anomaly("nothing_unattempted", key, read, f"nobody had asked for {invented}"))
    return found


def documents_whole(operations: Sequence[Operation]) -> list[Anomaly]:
    """Return the reads that found something else than one document as it was put."""
    found = []
    for key, own in by_key(operations).items():
        for read in reads_of(own):
            documents = {write.document for write in _possible_writes(own, read)}
            if read.document is not None and read.document not in documents:
                found.append(_anomaly("documents_whole", key, read, f"{read.document} was never put as one"))
    return found


def sequences_monotonic(operations: Sequence[Operation]) -> list[Anomaly]:
    """Return the answers whose sequence lies below one that was told before."""
    told = sorted((one for one in operations if one.sequence is not None), key=lambda one: one.ended)
    found = []
    highest_of: dict[str, int] = {}
    for answer in told:
        sequence = answer.sequence or 0
        before = highest_of.get(answer.observer, 0)
        if sequence < before:
            text = f"{answer.observer} is told {sequence} after {before}"
            found.append(_anomaly("sequences_monotonic", answer.key, answer, text))
        highest_of[answer.observer] = max(before, sequence)
    return found + _writes_out_of_order(told)


def _writes_out_of_order(told: Sequence[Operation]) -> list[Anomaly]:
    """Return the writes that began after a write with a higher sequence was acknowledged. `told` is in order of the ends."""
    writes = [one for one in told if one.is_write]
    ends = [one.ended for one in writes]
    highest_until = [0, *accumulate((one.sequence or 0 for one in writes), max)]
    found = []
    for write in writes:
        highest = highest_until[bisect_left(ends, write.begun)]
        if (write.sequence or 0) < highest:
            text = f"the write is told {write.sequence} though {highest} was acknowledged before it began"
            found.append(_anomaly("sequences_monotonic", write.key, write, text))
    return found


def _must_be_there(own: Sequence[Operation], read: Operation) -> Operation | None:
    """Return an acknowledged put that ended before the read, after which no deletion can have come; None without one."""
    deletes = [one for one in own if one.action == "delete" and one.may_have_happened and one.begun < read.ended]
    for put in own:
        is_acknowledged = put.action == "put" and put.outcome == "ok" and put.is_before(read)
        if is_acknowledged and all(delete.is_before(put) for delete in deletes):
            return put
    return None


def _possible_writes(own: Sequence[Operation], read: Operation) -> list[Operation]:
    return [one for one in own if one.action == "put" and one.may_have_happened and one.begun < read.ended]


def _anomaly(checker: str, key: str, shown_by: Operation, text: str) -> Anomaly:
    return Anomaly(checker=checker, key=key, position=int(shown_by.ended), text=text)


CHECKERS: tuple[Checker, ...] = (
    acknowledged_seen,
    nothing_unattempted,
    documents_whole,
    sequences_monotonic,
    linearizable,
)
