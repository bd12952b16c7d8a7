"""Two generations of a corpus against a model of dictionaries, through flushes, steps in the middle of them, and restarts."""

import asyncio
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groundplane.errors import CorruptData
from groundplane.wire.public import Basis
from groundplane_shard.generations import Generations, open_generations
from groundplane_shard.payload import decode, encode
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredMemo, StoredOperation
from groundplane_shard.switches import Step, Switch
from tests.shard.corpus_model import stepwise, stored

DOC_IDS = ("a", "b", "c", "d")
EXACT, INDEXED = 1 << 30, 0


def embedding(number: int) -> str:
    """Return the id of the embedding of one generation; each has vectors of another size."""
    return f"{number:032x}"


class Logged(NamedTuple):
    """One record: a switch, or a payload under an embedding."""

    embedding_id: str | None
    payload: bytes
    switch: Switch | None = None


def document(doc_id: str, text: str, dimension: int) -> StoredDocument:
    return stored(doc_id, (text,), ((1.0,) + (0.5,) * (dimension - 1),))


def opened(directory: Path, exact_bytes: int = EXACT):
    numbers = count(1)
    return open_generations(directory, lambda: directory.with_name(f"{directory.name}-{next(numbers)}"), exact_bytes)


async def replay(generations: Generations, sequence: int, record: Logged) -> None:
    if record.switch is not None:
        await generations.take_step(sequence, record.switch)
        return
    dimension = generations.of_embedding(record.embedding_id).dimension
    operations = decode(record.payload, dimension) if record.payload else ()
    await generations.apply(sequence, record.embedding_id, operations)


class GenerationsMachine(RuleBasedStateMachine):
    """What is searched, what is re-embedded and what memos there are, whatever a process went through."""

    exact_bytes = EXACT

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp())
        self.log: list[Logged] = []
        self.copies: list[tuple[int, Path]] = []
        self.numbers = count(1)
        self.made = 1  # embeddings used so far
        self.current_id, self.target_id = embedding(1), ""
        self.current: dict[str, str] = {}
        self.target: dict[str, str] | None = None
        self.memos: dict[str, bytes] = {}

    def teardown(self) -> None:
        del self.generations
        self.runner.close()
        shutil.rmtree(self.root, ignore_errors=True)

    @initialize()
    def open_empty(self) -> None:
        self.generations = self.runner.run(opened(self.root / "first", self.exact_bytes))
        self.write([("a", "pump"), ("b", "valve")])

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from(DOC_IDS), st.sampled_from(["pump", "valve", "leak", None])),
            min_size=1,
            max_size=3,
        )
    )
    def write(self, changes: list[tuple[str, str | None]]) -> None:
        self.runner.run(self._write(changes))

    @rule(name=st.sampled_from("mn"), response=st.sampled_from([b"1", b"2"]))
    def put_memo(self, name: str, response: bytes) -> None:
        self.memos[name] = response
        self.runner.run(self._log(self.current_id, [StoredMemo(name, "f", response, Basis())]))

    @precondition(lambda self: self.target is None)
    @rule()
    def begin(self) -> None:
        self.runner.run(self._begin())

    @precondition(lambda self: self.target is not None)
    @rule(doc_ids=st.sets(st.sampled_from(DOC_IDS)))
    def remake(self, doc_ids: set[str]) -> None:
        self.runner.run(self._remake(sorted(doc_ids)))

    @precondition(lambda self: self.target is not None)
    @rule()
    def end(self) -> None:
        self.runner.run(self._end())

    @precondition(lambda self: self.target is not None)
    @rule()
    def abandon(self) -> None:
        self.target = None
        self.runner.run(self._step("abandon"))

    @rule(changes=st.lists(st.tuples(st.sampled_from(DOC_IDS), st.sampled_from(["pump", None])), max_size=2))
    def flush_while_everything_happens(self, changes: list[tuple[str, str | None]]) -> None:
        self.runner.run(self._flush_watched(changes))

    @rule(age=st.integers(0, 3))
    def restart(self, age: int) -> None:
        """Start from one of the last snapshots, the log replayed from there on."""
        self.runner.run(self._copy())
        self.runner.run(self._restart(*self.copies[max(0, len(self.copies) - 1 - age)]))

    @invariant()
    def shows_what_was_written(self) -> None:
        if self.log:
            self.runner.run(self._check())

    async def _write(self, changes: list[tuple[str, str | None]]) -> None:
        operations: list[StoredOperation] = []
        for doc_id, text in changes:
            if self.target is not None:
                self.target.pop(doc_id, None)
            if text is None:
                self.current.pop(doc_id, None)
                operations.append(StoredDelete(doc_id))
            else:
                self.current[doc_id] = text
                operations.append(document(doc_id, text, self._dimension(self.current_id)))
        await self._log(self.current_id, operations)

    async def _begin(self) -> None:
        self.made += 1
        self.target, self.target_id = {}, embedding(self.made)
        await self._step("begin")

    async def _remake(self, doc_ids: list[str]) -> None:
        assert self.target is not None
        chosen = {doc_id: self.current[doc_id] for doc_id in doc_ids if doc_id in self.current}
        self.target.update(chosen)
        size = self._dimension(self.target_id)
        await self._log(self.target_id, [document(doc_id, text, size) for doc_id, text in chosen.items()])

    async def _end(self) -> None:
        await self._remake(list(DOC_IDS))
        await self._step("switch")
        self.target, self.current_id = None, self.target_id

    async def _step(self, step: Step) -> None:
        switch = Switch(step=step, current=self.current_id, target=self.target_id)
        await self._append(Logged(None, b"", switch))

    async def _log(self, embedding_id: str, operations: list[StoredOperation]) -> None:
        await self._append(Logged(embedding_id, encode(operations) if operations else b""))

    async def _append(self, record: Logged) -> None:
        self.log.append(record)
        await replay(self.generations, len(self.log), record)

    async def _flush_watched(self, changes: list[tuple[str, str | None]]) -> None:
        steps = iter([self._begin, self._end] if self.target is None else [self._end, self._begin])

        async def act() -> None:
            await self._check()
            step = next(steps, None)
            if step is not None:
                await step()
                await self._write(changes or [("d", "leak")])

        await stepwise(self.generations.flush(), act)

    async def _copy(self) -> None:
        copy = self.root / f"copy-{next(self.numbers)}"
        flushed = await self.generations.flush()
        await flushed.copy_to(copy)
        assert flushed.sequence == len(self.log)
        self.copies.append((flushed.sequence, copy))

    async def _restart(self, sequence: int, copy: Path) -> None:
        directory = self.root / f"opened-{next(self.numbers)}"
        shutil.copytree(copy, directory)
        self.generations = await opened(directory, self.exact_bytes)
        for number, record in enumerate(self.log[sequence:], start=sequence + 1):
            await replay(self.generations, number, record)

    async def _check(self) -> None:
        current, target = self.generations.current, self.generations.target
        assert await _texts(current) == self.current
        assert (None if target is None else await _texts(target)) == self.target
        assert {memo.name: memo.response for memo in current.memos()} == self.memos
        assert current.made.embedding_id == self.current_id
        assert (None if target is None else target.made.embedding_id) == (
            self.target_id if self.target is not None else None
        )

    def _dimension(self, embedding_id: str) -> int:
        return 2 + int(embedding_id, 16) % 5


async def _texts(corpus) -> dict[str, str]:
    view = corpus.view()
    rows, _ = corpus.documents(view, "", 100)
    documents = [await corpus.document(view, row.doc_id) for row in rows]
    assert view.totals.documents == len(rows)
    return {document.row.doc_id: document.text for document in documents}


class IndexedMachine(GenerationsMachine):
    exact_bytes = INDEXED


_SETTINGS = settings(max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))
TestExact = GenerationsMachine.TestCase
TestExact.settings = _SETTINGS
TestIndexed = IndexedMachine.TestCase
TestIndexed.settings = _SETTINGS


@pytest.fixture
async def generations(tmp_path):
    found = await opened(tmp_path / "first")
    await replay(found, 1, Logged(embedding(1), encode([document("a", "pump", 3)])))
    return found


async def test_a_record_of_an_embedding_that_nobody_announced_is_refused(generations):
    """Equal in size, its vectors would be compared with foreign ones (I19)."""
    with pytest.raises(CorruptData, match=embedding(1)):
        await replay(generations, 2, Logged(embedding(9), encode([document("b", "pump", 3)])))


@pytest.mark.parametrize(
    "switch",
    [
        Switch(step="switch", current=embedding(1), target=embedding(2)),
        Switch(step="abandon", current=embedding(1), target=embedding(2)),
        Switch(step="begin", current=embedding(8), target=embedding(2)),
    ],
    ids=["switch-to-nothing", "abandon-nothing", "begin-from-another"],
)
async def test_a_step_that_does_not_fit_is_refused(generations, switch):
    """A log that contradicts itself is damage, and is never half applied."""
    with pytest.raises(CorruptData):
        await replay(generations, 2, Logged(None, b"", switch))

    assert generations.is_half_applied


async def test_what_a_failed_flush_froze_is_flushed_before_anything_newer(generations, monkeypatch):
    """Frozen together, flushed apart: a table of one moment beside a table of another would be half of both."""
    await replay(generations, 2, Logged(None, b"", Switch(step="begin", current=embedding(1), target=embedding(2))))
    await replay(generations, 3, Logged(embedding(2), encode([document("a", "pump", 2)])))
    target = generations.target
    flush = target.flush
    monkeypatch.setattr(target, "flush", _failing)
    with pytest.raises(OSError, match="full"):
        await generations.flush()
    await replay(generations, 4, Logged(embedding(1), encode([document("b", "pump", 3)])))
    monkeypatch.setattr(target, "flush", flush)
    flushed = await generations.flush()

    assert (flushed.sequence, flushed.current.flushed_sequence, target.flushed_sequence) == (3, 3, 3)


@pytest.mark.parametrize("steps", [["begin"], ["begin", "switch"], ["begin", "abandon"]], ids=lambda steps: steps[-1])
async def test_a_flush_that_a_step_came_after_is_not_the_end(generations, monkeypatch, tmp_path, steps):
    """What failed was frozen before the step: published, it would show the generations of now as of then."""
    flush = generations.current.flush
    monkeypatch.setattr(generations.current, "flush", _failing)
    with pytest.raises(OSError, match="full"):
        await generations.flush()
    monkeypatch.setattr(generations.current, "flush", flush)
    sequence = 1
    for step in steps:
        if step == "switch":
            sequence += 1
            await replay(generations, sequence, Logged(embedding(2), encode([document("a", "pump", 2)])))
        sequence += 1
        switch = Switch(step=step, current=embedding(1), target=embedding(2))
        await replay(generations, sequence, Logged(None, b"", switch))
    flushed = await generations.flush()
    await flushed.copy_to(tmp_path / "copy")
    again = await opened(tmp_path / "copy")

    assert flushed.sequence == generations.current.view().sequence
    assert again.current.made == generations.current.made
    assert (again.target is None) == (generations.target is None)


async def _failing():
    raise OSError("disk is full")
