"""Which steps of the protocol were reached: every place in `groundplane_shard.log` where a generator yields.

A waiting dialogue is a chain of generators, each standing at a `yield from`, the innermost at a `yield`. Every link is one
step. The list of all steps is read from the source, so a new one that no seed reaches is named.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import groundplane_shard.log

PACKAGE = Path(groundplane_shard.log.__file__).parent


class Step(NamedTuple):
    """One place where the protocol waits."""

    module: str
    function: str
    line: int
    last_line: int
    source: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}:{self.line} {self.source}"


class Coverage:
    """How often each place was waited at, and how often a process crashed there."""

    def __init__(self) -> None:
        self.reached: Counter[tuple[str, int]] = Counter()
        self.crashed: Counter[tuple[str, int]] = Counter()
        self._names: dict[int, tuple[CodeType, str]] = {}  # by id: hashing code objects is slow

    def note(self, lane: Any) -> None:
        """Count the steps at which this dialogue waits now."""
        self.reached.update(self._places(lane))

    def note_crash(self, lane: Any) -> None:
        """Count the steps at which this dialogue is cut off."""
        self.crashed.update(self._places(lane))

    def add(self, other: "Coverage") -> None:
        """Add what another run reached."""
        self.reached += other.reached
        self.crashed += other.crashed

    def __getstate__(self) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        return self.reached, self.crashed

    def __setstate__(self, state: tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]) -> None:
        self.reached, self.crashed = state
        self._names = {}

    def _places(self, lane: Any) -> Iterator[tuple[str, int]]:
        while lane is not None and (frame := getattr(lane, "gi_frame", None)) is not None:
            code = frame.f_code
            known = self._names.get(id(code))
            if known is None:
                path = Path(code.co_filename)
                known = self._names[id(code)] = (code, path.stem if path.parent == PACKAGE else "")
            if known[1]:
                yield known[1], frame.f_lineno
            lane = lane.gi_yieldfrom


def all_steps() -> list[Step]:
    """Return every step of the protocol, in the order of the source."""
    return [step for path in sorted(PACKAGE.glob("*.py")) for step in _steps_of(path)]


def count_by_step(counts: Counter[tuple[str, int]]) -> dict[Step, int]:
    """Return how often each step was reached."""
    return {
        step: sum(
            count
            for (module, line), count in counts.items()
            if module == step.module and step.line <= line <= step.last_line
        )
        for step in all_steps()
    }


def _steps_of(path: Path) -> Iterator[Step]:
    text = path.read_text(encoding="utf-8")
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in _own_nodes(function):
            if isinstance(node, ast.Yield | ast.YieldFrom):
                source = (ast.get_source_segment(text, node) or "").splitlines()[0]
                yield Step(path.stem, function.name, node.lineno, node.end_lineno or node.lineno, source)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting = [*ast.iter_child_nodes(node), *waiting]
