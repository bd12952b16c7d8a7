"""The corpus that is searched and, while it is re-embedded, the one that will take its place.

A generation is a `Corpus` with one embedding. `current` answers everything. `target` exists from the record that begins a
re-embedding to the one that ends or abandons it, and is filled with the same documents under the new embedding.

Invariants:
- The target holds only documents that the current generation holds, each made from the version that stands there: a
  delete applies to both, and a document written under the current embedding leaves the target. So when both count the
  same number of documents, nothing is missing, and the target may take the place.
- A record's documents belong to the generation whose embedding its header names (I19): which one is current follows from
  the log and the snapshot alone, never from MANIFEST.
- Both generations are frozen between the same two records, and what a flush returns is of one moment: a step that came
  meanwhile makes it flush again, so no snapshot shows one generation before the step and the other after it.

The lock `_moving` orders applying and freezing. Errors: `CorruptData` for a record that does not fit.
"""

import asyncio
import shutil
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from groundplane.errors import CorruptData
from groundplane_shard.corpus import Corpus
from groundplane_shard.disk import local_disk
from groundplane_shard.engines import Made
from groundplane_shard.rows import StoredDelete, StoredDocument, StoredOperation
from groundplane_shard.switches import Switch

TARGET_DIRECTORY = "next"
"""Where the files of the target lie in a snapshot, below those of the current generation."""


class Flushed(NamedTuple):
    """What a flush left in the tables: all records up to `sequence`, and none after it."""

    sequence: int
    current: Corpus
    target: Corpus | None

    async def copy_to(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a hard-link copy of the tables. The next flush must wait for it."""
        await self.current.copy_to(directory)
        if self.target is not None:
            await self.target.copy_to(directory / TARGET_DIRECTORY)


class Generations:
    """One or two generations of one corpus; used by one event loop."""

    def __init__(self, current: Corpus, target: Corpus | None, new_corpus: Callable[[], Awaitable[Corpus]]) -> None:
        """new_corpus: returns an empty corpus in a directory of its own."""
        self.current = current
        self.target = target
        self._new_corpus = new_corpus
        self._changed_at = 0  # the last record that changed which generations there are
        self._is_half_applied = False
        self._moving = asyncio.Lock()

    @property
    def memtable_bytes(self) -> int:
        """Memory of what is not flushed yet."""
        return sum(corpus.memtable_bytes for corpus in self._both())

    @property
    def is_half_applied(self) -> bool:
        """Whether applying a record failed on the way: the state must be built again."""
        return self._is_half_applied or self.current.is_half_applied

    def of_embedding(self, embedding_id: str | None) -> Corpus:
        """Return the generation that documents of this embedding belong to; the current one for those of none."""
        target = self.target
        return target if target is not None and embedding_id == target.made.embedding_id else self.current

    async def prefetch(self, embedding_id: str | None, operations: Sequence[StoredOperation]) -> None:
        """Look up what applying `operations` will need to read. Optional."""
        await self.current.prefetch(operations)
        if self.target is not None:
            await self.target.prefetch(self._routed(embedding_id, operations)[1])

    async def apply(self, sequence: int, embedding_id: str | None, operations: Sequence[StoredOperation]) -> None:
        """Apply the log record `sequence`, whose documents have vectors of `embedding_id`; None: the record names none."""
        async with self._moving:
            if embedding_id is not None and any(isinstance(each, StoredDocument) for each in operations):
                self._check_embedding(sequence, embedding_id)
            if self.target is None:
                await self.current.apply(sequence, operations)
                return
            for_current, for_target = self._routed(embedding_id, operations)
            with self._whole():
                await self.current.apply(sequence, for_current)
                await self.target.apply(sequence, for_target)

    async def take_step(self, sequence: int, switch: Switch) -> None:
        """Apply the switch record `sequence`."""
        async with self._moving:
            with self._whole():
                self._check_step(sequence, switch)
                if switch.step == "switch":
                    await self._switch(sequence)
                else:
                    target = await self._begun(switch) if switch.step == "begin" else None
                    self._retire(self.target)
                    self.target = target
                    for corpus in self._both():
                        await corpus.apply(sequence, ())
            self._changed_at = sequence

    async def flush(self) -> Flushed:
        """Merge what was written so far into the tables. One call at a time; after a failure the next takes it up again."""
        flushed = await self._flush_once()
        while flushed.sequence < self._changed_at:
            flushed = await self._flush_once()
        return flushed

    async def _flush_once(self) -> Flushed:
        async with self._moving:
            current, target, both = self.current, self.target, self._both()
            if not any(corpus.is_frozen for corpus in both):  # what a failed flush left over was frozen together
                for corpus in both:
                    await corpus.freeze()
        for corpus in both:
            if corpus.is_frozen:
                await corpus.flush()
        return Flushed(current.flushed_sequence, current, target)

    def _both(self) -> list[Corpus]:
        return [self.current] if self.target is None else [self.current, self.target]

    def _routed(
        self, embedding_id: str | None, operations: Sequence[StoredOperation]
    ) -> tuple[list[StoredOperation], list[StoredOperation]]:
        """Return what `operations` do to the current generation, and what to the target."""
        is_for_target = self.of_embedding(embedding_id) is self.target
        for_current: list[StoredOperation] = []
        for_target: list[StoredOperation] = []
        for operation in operations:
            match operation:
                case StoredDocument() if is_for_target:
                    for_target.append(operation)
                case StoredDocument(doc_id):
                    for_current.append(operation)
                    for_target.append(StoredDelete(doc_id))
                case StoredDelete():
                    for_current.append(operation)
                    for_target.append(operation)
                case _:
                    for_current.append(operation)
        return for_current, for_target

    def _check_embedding(self, sequence: int, embedding_id: str) -> None:
        """Fix the current embedding by the first document; afterwards raise CorruptData for one that nobody announced."""
        current = self.of_embedding(embedding_id)
        if current.made.embedding_id is None:
            current.made = current.made._replace(embedding_id=embedding_id)
        elif current.made.embedding_id != embedding_id:
            raise CorruptData(
                f"log record {sequence} has vectors of embedding {embedding_id}: expected {current.made.embedding_id}; "
                "restore a snapshot"
            )

    def _check_step(self, sequence: int, switch: Switch) -> None:
        known = self.current.made.embedding_id
        target = self.target.made.embedding_id if self.target is not None else None
        if known not in (None, switch.current) or (switch.step != "begin" and switch.target != target):
            raise CorruptData(
                f"switch record {sequence} goes from embedding {switch.current} to {switch.target}: expected "
                f"{known} and {target}; restore a snapshot"
            )

    async def _begun(self, switch: Switch) -> Corpus:
        current = self.current
        current.made = current.made._replace(embedding_id=switch.current)
        target = await self._new_corpus()
        target.made = Made(None, switch.target, current.made.generation + 1)
        return target

    async def _switch(self, sequence: int) -> None:
        old, target = self.current, self.target
        if target is None:
            raise CorruptData(f"switch record {sequence} has no generation to switch to; restore a snapshot")
        await target.take_place(sequence, old.memos())
        self.current, self.target = target, None
        self._retire(old)

    def _retire(self, corpus: Corpus | None) -> None:
        """Remove the files of a generation when the last search that uses it is gone."""
        if corpus is not None:
            remove = weakref.finalize(corpus, _remove, corpus.directory, asyncio.get_running_loop())
            remove.atexit = False

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Remember a failure inside: then one generation may have moved and the other not."""
        self._is_half_applied = True
        yield
        self._is_half_applied = False


async def open_generations(directory: Path, fresh_directory: Callable[[], Path], exact_bytes: int) -> Generations:
    """Return what `Flushed.copy_to` left in `directory`, or an empty corpus. Raises CorruptData.

    fresh_directory: returns a path that does not exist yet; every generation gets a directory of its own, as they do not
    end together. exact_bytes: as in `Corpus.open`.
    """

    async def new_corpus() -> Corpus:
        fresh = fresh_directory()
        with local_disk():
            fresh.mkdir(parents=True, mode=0o700)
        return await Corpus.open(fresh, exact_bytes=exact_bytes)

    beneath, target = directory / TARGET_DIRECTORY, None
    if await asyncio.to_thread(beneath.is_dir):
        own = fresh_directory()
        await asyncio.to_thread(beneath.rename, own)
        target = await Corpus.open(own, exact_bytes=exact_bytes)
    return Generations(await Corpus.open(directory, exact_bytes=exact_bytes), target, new_corpus)


def _remove(directory: Path, loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.run_in_executor, None, _remove_now, directory)


def _remove_now(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
