"""Recording what callers of a corpus do and are told, for the checkers of tests/checkers."""

import threading
from itertools import count

from tests.checkers.history import Action, Document, Event, OperationId


class Recorder:
    """One history, written by any number of threads in the order in which things happen to them."""

    def __init__(self) -> None:
        self.history: list[Event] = []
        self.acknowledged = 0  # writes
        self.reads = 0  # that were answered
        self._numbers = count(1)
        self._lock = threading.Lock()

    def begin(self, observer: str, action: Action, key: str, document: Document | None = None) -> "Call":
        """Note that a call is about to be made, and return it for noting its end."""
        begun = Event(
            operation=OperationId(next(self._numbers)),
            type="invoke",
            observer=observer,
            action=action,
            key=key,
            document=document,
        )
        self.note(begun)
        return Call(self, begun)

    def note(self, event: Event) -> None:
        """Add one event."""
        with self._lock:
            self.history.append(event)
            if event.type == "ok":
                self.reads += event.action == "read"
                self.acknowledged += event.action != "read"


class Call:
    """One call under way. At most one of its ends is noted; a call without an end is as unknown as one that is said to be."""

    def __init__(self, recorder: Recorder, begun: Event) -> None:
        self._recorder = recorder
        self._begun = begun

    def ok(self, *, sequence: int, document: Document | None = None) -> None:
        """It was done; `document` is what a read found."""
        begun = self._begun
        self._recorder.note(
            Event(
                operation=begun.operation,
                type="ok",
                observer=begun.observer,
                action=begun.action,
                key=begun.key,
                document=document,
                sequence=sequence,
            )
        )

    def fail(self) -> None:
        """It was certainly not done, so whoever answered promised."""
        begun = self._begun
        self._recorder.note(
            Event(operation=begun.operation, type="fail", observer=begun.observer, action=begun.action, key=begun.key)
        )
