"""What callers of a corpus did and were told, recorded from outside: the input of every checker.

A history is a list of events in the order in which one recorder saw them; an event's position is its index. Each operation
has one `invoke` and at most one end: `ok`, `fail` (certainly not done) or `unknown`; without an end it is as unknown as
with one. A document is a tuple of parts (its chunks, say), so that half of one can be told from another one.
"""

import math
from collections.abc import Sequence
from typing import Literal, NewType, TypeAlias

import msgspec

OperationId = NewType("OperationId", int)
Document: TypeAlias = tuple[str, ...]
Action: TypeAlias = Literal["put", "delete", "read"]
Outcome: TypeAlias = Literal["ok", "fail", "unknown"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the record. `document`: what is put (invoke) or what was read (ok; None: no such document)."""

    operation: OperationId
    type: Literal["invoke", "ok", "fail", "unknown"]
    observer: str
    action: Action
    key: str
    document: Document | None = None
    sequence: int | None = None  # of the log, where the answer names one


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call: from where to where it lasted, and what came of it. `ended` is infinite where nobody knows."""

    observer: str
    action: Action
    key: str
    begun: int
    ended: float
    outcome: Outcome
    document: Document | None
    sequence: int | None

    @property
    def is_write(self) -> bool:
        """Whether it would change the document."""
        return self.action != "read"

    @property
    def may_have_happened(self) -> bool:
        """Whether it is a write that was done, or nobody knows that it was not."""
        return self.is_write and self.outcome != "fail"

    def is_before(self, other: "Operation") -> bool:
        """Whether it had ended before the other began."""
        return self.ended < other.begun


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not be in any history. `position` is that of the event that shows it."""

    checker: str
    key: str
    position: int
    text: str


History: TypeAlias = Sequence[Event]


def operations_of(history: History) -> list[Operation]:
    """Return the operations in the order of their beginning. Raises ValueError for a record that is not well formed."""
    begun: dict[OperationId, tuple[int, Event]] = {}
    ended: dict[OperationId, tuple[int, Event]] = {}
    for position, event in enumerate(history):
        is_invoke = event.type == "invoke"
        if (event.operation in begun) == is_invoke or event.operation in ended:
            raise ValueError(f"event {position}: expected one invoke and then at most one end, found {event}")
        (begun if is_invoke else ended)[event.operation] = (position, event)
    return [_operation(*start, ended.get(operation)) for operation, start in begun.items()]


def _operation(begun: int, invoke: Event, end: tuple[int, Event] | None) -> Operation:
    position, event = end or (math.inf, None)
    is_unknown = event is None or event.type == "unknown"
    return Operation(
        observer=invoke.observer,
        action=invoke.action,
        key=invoke.key,
        begun=begun,
        ended=math.inf if is_unknown else position,
        outcome="unknown" if event is None or event.type == "invoke" else event.type,
        document=event.document if event is not None and invoke.action == "read" else invoke.document,
        sequence=event.sequence if event is not None else None,
    )


def by_key(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """Return the operations of each document, in the order of their beginning."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.key, []).append(operation)
    return found


def reads_of(operations: Sequence[Operation]) -> list[Operation]:
    """Return the reads that were answered."""
    return [operation for operation in operations if operation.action == "read" and operation.outcome == "ok"]
