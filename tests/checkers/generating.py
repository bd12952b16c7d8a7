"""Histories of a system that works, for the checkers to pass: a model with a log, callers that overlap, answers that are lost."""

import random

from tests.checkers.history import Action, Document, Event, OperationId

KEYS = ("a", "b")
OBSERVERS = ("x", "y", "z")


class _Call:
    """One call under way."""

    def __init__(self, operation: OperationId, observer: str, action: Action, key: str, document: Document | None):
        self.operation = operation
        self.observer = observer
        self.action = action
        self.key = key
        self.document = document
        self.sequence = 0
        self.has_happened = False
        self.fails = False

    def event(self, kind: str, *, document: Document | None = None, sequence: int | None = None) -> Event:
        """Return an event of this call."""
        return Event(
            operation=self.operation,
            type=kind,  # type: ignore[arg-type]  # one of the four
            observer=self.observer,
            action=self.action,
            key=self.key,
            document=document,
            sequence=sequence,
        )


class Recorder:
    """A corpus without faults, its callers, and the history that they make."""

    def __init__(self, rng: random.Random) -> None:
        self.history: list[Event] = []
        self._rng = rng
        self._documents: dict[str, Document] = {}
        self._sequence = 0
        self._calls: list[_Call] = []
        self._late: list[_Call] = []
        self._operations = 0

    def run(self, steps: int) -> list[Event]:
        """Let so many things happen; return the history."""
        for _ in range(steps):
            idle = [name for name in OBSERVERS if all(call.observer != name for call in self._calls)]
            roll = self._rng.random()
            if self._late and roll < 0.1:
                self._take_effect(self._late.pop(self._rng.randrange(len(self._late))))
            elif idle and (roll < 0.5 or not self._calls):
                self._begin(self._rng.choice(idle))
            elif self._calls:
                self._go_on(self._rng.choice(self._calls))
        return self.history

    def call(
        self, action: Action, key: str, document: Document | None = None, *, answer: Document | None = None
    ) -> None:
        """Let one more observer make a call alone, from begin to end; `answer` is what a read is said to have found."""
        call = self._new_call("w", action, key, document)
        self._take_effect(call)
        found = answer if action == "read" else None
        self.history.append(call.event("ok", document=found, sequence=call.sequence))

    def current(self, key: str) -> Document | None:
        """Return the document as it is."""
        return self._documents.get(key)

    def fresh_document(self) -> Document:
        """Return a document that was never put."""
        number = self._operations
        return tuple(f"{number}.{part}" for part in range(self._rng.randrange(1, 4)))

    def _begin(self, observer: str) -> None:
        action = self._rng.choice(("put", "put", "read", "read", "delete"))
        document = self.fresh_document() if action == "put" else None
        call = self._new_call(observer, action, self._rng.choice(KEYS), document)  # type: ignore[arg-type]  # chosen from the actions
        call.fails = action != "read" and self._rng.random() < 0.15
        self._calls.append(call)

    def _new_call(self, observer: str, action: Action, key: str, document: Document | None) -> _Call:
        self._operations += 1
        call = _Call(OperationId(self._operations), observer, action, key, document)
        self.history.append(call.event("invoke", document=document))
        return call

    def _go_on(self, call: _Call) -> None:
        if call.fails:
            self._end(call, call.event("fail"))
        elif self._rng.random() < 0.15:
            if not call.has_happened and call.action != "read" and self._rng.random() < 0.5:
                self._late.append(call)  # and it may still happen
            self._end(call, call.event("unknown"))
        elif call.has_happened:
            document = call.document if call.action == "read" else None
            self._end(call, call.event("ok", document=document, sequence=call.sequence))
        else:
            self._take_effect(call)

    def _take_effect(self, call: _Call) -> None:
        if call.action == "read":
            call.document = self._documents.get(call.key)
        else:
            self._sequence += 1
            if call.document is None:
                self._documents.pop(call.key, None)
            else:
                self._documents[call.key] = call.document
        call.sequence = self._sequence
        call.has_happened = True

    def _end(self, call: _Call, event: Event) -> None:
        self._calls.remove(call)
        self.history.append(event)
