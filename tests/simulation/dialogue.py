"""A lane of a process as the scheduler sees it: one operation at a time, also where the protocol wants several at once."""

import random
from collections.abc import Iterator
from typing import Any

from groundplane.errors import GroundplaneError
from groundplane_shard.log import operations as ops

Lane = ops.Steps[Any]


class Dialogue:
    """A lane whose parts, while it waits for several of them, take turns as the seed has it."""

    def __init__(self, main: Lane, rng: random.Random) -> None:
        self._main = main
        self._rng = rng
        self._parts: dict[int, tuple[Lane, ops.Operation]] = {}  # those that have not ended, and what they wait for
        self._values: dict[int, Any] = {}
        self._turn = 0

    def begin(self) -> ops.Operation:
        """Return the first operation."""
        return self._operation(next(self._main))

    def send(self, answer: ops.Result) -> ops.Operation:
        """Take the answer to the operation returned last, and return the next. Raises StopIteration at the end."""
        if not self._parts:
            operation = self._main.send(answer)
            return self._hold(operation) if type(operation) is ops.Together else operation
        part, _ = self._parts.pop(self._turn)
        try:
            self._parts[self._turn] = (part, part.send(answer))
        except StopIteration as end:
            self._values[self._turn] = end.value
        except GroundplaneError as error:
            self._close_parts()
            return self._operation(self._main.send(ops.Failed(error)))
        return self._next()

    def close(self) -> None:
        """Break it off."""
        self._close_parts()
        self._main.close()

    def chains(self) -> Iterator[Lane]:
        """Yield the generators that wait now: the lane itself, and the part whose turn it is."""
        yield self._main
        if self._turn in self._parts:
            yield self._parts[self._turn][0]

    def _operation(self, operation: ops.Operation) -> ops.Operation:
        return self._hold(operation) if isinstance(operation, ops.Together) else operation

    def _hold(self, operation: ops.Together) -> ops.Operation:
        """Begin all parts and return what the first one to have its turn wants."""
        self._values = {}
        self._parts = {number: (part, next(part)) for number, part in enumerate(operation.parts)}
        return self._next()

    def _next(self) -> ops.Operation:
        """Let one part have its turn; when all have ended, let the lane itself go on."""
        if not self._parts:
            values = tuple(value for _, value in sorted(self._values.items()))
            return self._operation(self._main.send(ops.Joined(values)))
        waiting = list(self._parts)
        self._turn = waiting[int(self._rng.random() * len(waiting))]
        return self._parts[self._turn][1]

    def _close_parts(self) -> None:
        for part, _ in self._parts.values():
            part.close()
        self._parts = {}
