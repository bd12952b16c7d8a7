"""The searchable state of a shard: what the log has said so far, ready to be searched.

Layers, oldest first: the base (the LanceDB table as of the last flush, in memory as a `Segment` or found through LanceDB
as an `IndexedBase`), the frozen memtable while a flush is under way, the active memtable.

Invariants:
- A view moves only after a whole batch is applied, and after a whole flush. Views taken before stay as they were.
- Every document is alive in at most one layer: an operation buries what it supersedes, in whatever layer that lies.
- A flush holds exactly the records up to the sequence that it returns, never more: what supersedes frozen rows meanwhile
  is in the active memtable, and is buried in the new base when it takes over.
- The engine never shows: both rank by the same scores (see `search`).

The lock `_moving` orders applying and taking over a new base, `_flushing` lets one flush run at a time; a search takes
neither. Errors: `InvalidInput` for a question that cannot be asked; `CorruptData` for a record or a file that cannot be
applied or opened: drop the directory, restore, replay. This module knows nothing of the log or of stores.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from groundplane.errors import CorruptData, InvalidInput
from groundplane.wire.filters import Filter
from groundplane.wire.internal import DocumentRow, SearchRequest, Statistics
from groundplane_shard.documents import Document, DocumentEntry, Documents
from groundplane_shard.engines import DEFAULT_EXACT_BYTES, Base, Engines, Made, Memos, Opened, Point
from groundplane_shard.failpoints import Failpoint, reach
from groundplane_shard.indexed import IndexedBase
from groundplane_shard.memtable import Memtable
from groundplane_shard.pacing import let_others_run
from groundplane_shard.rows import (
    StoredDelete,
    StoredDocument,
    StoredMemo,
    StoredMemoDelete,
    StoredOperation,
    unit_vectors,
)
from groundplane_shard.search import Found, Query, Totals, search
from groundplane_shard.view import View

# Terms: about 0.15 ms. A search passes through the event loop four or five times and may wait for a step at each.
WORK_PER_STEP = 400

_FORESEEN_CHUNKS = 8  # of a single document: larger ones are not worth the wait
_WORK_PER_OPERATION = 20
_MAX_INLINE_WORK = 10_000_000  # numbers multiplied: about 2.5 ms
_MAX_INLINE_DOCUMENTS = 1_000  # through a filter: about 2 ms
_WORK_PER_TERM = 8


class Corpus:
    """One corpus under one embedding. Built by `open`; used by one event loop.

    `made` says what makes its vectors; whoever knows its embedding id and generation before the first flush sets them.
    """

    def __init__(self, engines: Engines, made: Made, opened: Opened) -> None:
        self.made = made
        self._engines = engines
        self._base = opened.base
        self._base_memos = opened.memos
        self._flushed = opened.point
        self._active = Memtable()
        self._frozen: Memtable | None = None
        self._frozen_at = opened.point
        self._totals = opened.point.totals
        self._applying: int | None = None
        self._moving = asyncio.Lock()
        self._flushing = asyncio.Lock()
        self._view = self._view_at(opened.point)

    @classmethod
    async def open(
        cls, directory: Path, dimension: int | None = None, exact_bytes: int = DEFAULT_EXACT_BYTES
    ) -> "Corpus":
        """Return the corpus that was last flushed into `directory`, an empty one if it is empty or absent.

        dimension: None while the corpus has no vectors; the first document then fixes it. exact_bytes: up to this size
        of vectors the base is held in memory; 0 leaves it to LanceDB's indexes.
        """
        engines = Engines(directory, exact_bytes)
        opened = await engines.open()
        found = engines.table_dimension
        if None not in (found, dimension) and found != dimension:
            raise CorruptData(f"table has vectors of {found} numbers: expected {dimension}; restore a snapshot")
        return cls(engines, opened.made._replace(dimension=dimension or found), opened)

    @property
    def dimension(self) -> int | None:
        """Numbers in a vector; None until it is fixed."""
        return self.made.dimension

    @property
    def directory(self) -> Path:
        """Where its table lies, or will lie."""
        return self._engines.directory

    @property
    def engine(self) -> str:
        """`exact` or `indexed`."""
        return "indexed" if isinstance(self._base, IndexedBase) else "exact"

    @property
    def flushed_sequence(self) -> int:
        """The last record that the table holds; 0 before the first flush."""
        return self._flushed.sequence

    @property
    def memtable_bytes(self) -> int:
        """Memory of what is not flushed yet, frozen part included."""
        return self._active.size_bytes + (self._frozen.size_bytes if self._frozen else 0)

    def view(self) -> View:
        """Return the corpus as of the last batch that was applied whole."""
        return self._view

    def entry(self, doc_id: str) -> DocumentEntry | None:
        """Return what is kept of the document as of everything applied, None if there is none."""
        for layer in self._layers():
            number = layer.documents.living(doc_id)
            if number is not None:
                return layer.documents.entries[number]
        return None

    def content_hash(self, doc_id: str) -> bytes | None:
        """Return the hash of the document as of everything applied, None if there is none."""
        entry = self.entry(doc_id)
        return entry.content_hash if entry is not None else None

    def memos(self) -> list[StoredMemo]:
        """Return every memo as of everything applied."""
        memos = self._base_memos
        for memtable in reversed(self._memtables()):
            memos = _merged_memos(memos, memtable)
        return list(memos.values())

    def memo(self, name: str, fingerprint: str) -> StoredMemo | None:
        """Return the memo stored under exactly this name and fingerprint, as of everything applied."""
        key = name, fingerprint
        for memtable in self._memtables():
            if key in memtable.memos:
                return memtable.memos[key][1]
        return self._base_memos.get(key)

    def fix_dimension(self, dimension: int) -> None:
        """Fix the size of vectors, as the corpus's embedding identity says. Raises CorruptData if it is another."""
        if self.dimension not in (None, dimension):
            raise CorruptData(f"record has vectors of {dimension} numbers: expected {self.dimension}, the corpus's")
        self.made = self.made._replace(dimension=dimension)

    async def prefetch(self, operations: Sequence[StoredOperation]) -> None:
        """Look up what applying `operations` will need to read, so that it can be done while they are being logged.

        Optional: `apply` does it for what is missing. One call for a whole log tail is one query.
        """
        if isinstance(self._base, IndexedBase):
            await self._base.prefetch(
                {each.doc_id for each in operations if isinstance(each, (StoredDocument, StoredDelete))}
            )
        if len(operations) != 1:
            return
        only = operations[0]
        if isinstance(only, StoredDocument) and len(only.chunks) <= _FORESEEN_CHUNKS:
            self._active.foresee(only)

    async def apply(self, sequence: int, operations: Sequence[StoredOperation]) -> None:
        """Apply the log record `sequence`; all of it becomes visible at once, when this returns.

        Lets others run about every 0.3 ms. Sequences rise; a record without operations only moves the view. Raises
        CorruptData for a record that cannot be applied, and ever after if a call was broken off half way.
        """
        async with self._moving:
            self._check_order(sequence)
            for operation in operations:
                if isinstance(operation, StoredDocument):
                    self.fix_dimension(operation.vectors.shape[1])
            await self.prefetch(operations)
            self._applying = sequence
            await _paced(step for operation in operations for step in self._apply_one(sequence, operation))
            document_sequence = max(self._view.document_sequence, self._active.document_sequence)
            self._view = self._view_at(Point(sequence, document_sequence, self._totals))
            self._applying = None

    async def take_place(self, sequence: int, memos: Iterable[StoredMemo]) -> None:
        """Apply the record by which this corpus takes another one's place: the other's `memos` are its own from now on.

        Every document counts as changed by that record.
        """
        async with self._moving:
            self._check_order(sequence)
            for memo in memos:
                self._active.put_memo((memo.name, memo.fingerprint), sequence, memo)
            self._view = self._view_at(Point(sequence, sequence, self._totals))

    async def search(self, view: View, request: SearchRequest) -> Found:
        """Return statistics and candidates of `view`. Raises InvalidInput for a vector of another size, or no direction.

        Runs in the event loop where that takes at most about 3 ms, else in a thread.
        """
        if view.totals.chunks == 0:
            return Found(Statistics(view.totals.documents, 0, 0, (0,) * len(request.terms)), [])
        query = self._query(request)
        indexed = await view.base.layer(query, view.sequence) if isinstance(view.base, IndexedBase) else None
        if _is_long(view, query):
            return await asyncio.to_thread(search, view.layers(), query, view.totals, indexed)
        return search(view.layers(), query, view.totals, indexed)

    def statistics(self, view: View, terms: tuple[str, ...]) -> Statistics:
        """Return the counts that BM25 needs, exact at the view's sequence."""
        return view.statistics(terms)

    async def document(self, view: View, doc_id: str) -> Document | None:
        """Return one document with its text put together again, None if there is none."""
        return await view.document(doc_id)

    def documents(self, view: View, after: str, limit: int) -> tuple[list[DocumentRow], bool]:
        """Return the first `limit` documents whose id is above `after`, by id, and whether more follow."""
        return view.page(after, limit)

    @property
    def is_frozen(self) -> bool:
        """Whether a part waits to be flushed, or is being flushed."""
        return self._frozen is not None

    async def freeze(self) -> None:
        """Let writes go on in a new memtable, and keep the old one for the next `flush`; nothing where one is kept already."""
        async with self._moving:
            if self._frozen is None:
                view = self._view
                self._frozen, self._active = self._active, Memtable()
                self._frozen_at = Point(view.sequence, view.document_sequence, view.totals)
                self._view = self._view_at(self._frozen_at)

    async def flush(self) -> int:
        """Merge what was written so far, or what was frozen, into the table; return the last record that it now holds.

        Writes and searches go on meanwhile. After a failure (`Unavailable`) nothing is lost, and the next call takes it
        up again.
        """
        async with self._flushing:
            await self.freeze()
            if self._frozen is not None:
                reach(Failpoint.MEMTABLE_FROZEN)
                base = await self._engines.flush(self._base, self._frozen, self._frozen_at, self.made)
                await self._take_over(base)
                reach(Failpoint.BASE_SWAPPED)
            indexed = await self._engines.crossed_over(self._base, self._flushed, self.made)
            if indexed is not None:
                await self._take_over(indexed)
            return self._flushed.sequence

    async def copy_to(self, directory: Path) -> None:
        """Make `directory`, which must not exist, a hard-link copy of what the last flush left; `open` opens it."""
        async with self._flushing:
            await self._engines.copy_to(directory)

    @property
    def is_half_applied(self) -> bool:
        """Whether applying a record failed on the way: the corpus must be built again."""
        return self._applying is not None

    def _check_order(self, sequence: int) -> None:
        if self._applying is not None:
            raise CorruptData(f"log record {self._applying} was applied half: rebuild the corpus from the log")
        if sequence <= self._view.sequence:
            raise CorruptData(f"log record {sequence} follows {self._view.sequence}: expected a higher sequence")

    def _apply_one(self, sequence: int, operation: StoredOperation) -> Iterator[int]:
        """Apply one operation in steps, yielding the work of each."""
        match operation:
            case StoredDocument():
                yield from self._supersede(sequence, operation.doc_id)
                self._active.supersede(operation.doc_id, sequence)
                yield from self._active.append(operation, sequence)
                self._count(self._active.documents, len(self._active.documents.entries) - 1, 1)
            case StoredDelete():
                yield from self._supersede(sequence, operation.doc_id)
            case StoredMemo():
                self._active.put_memo((operation.name, operation.fingerprint), sequence, operation)
                yield _WORK_PER_OPERATION
            case StoredMemoDelete():
                self._active.put_memo((operation.name, operation.fingerprint), sequence, None)
                yield _WORK_PER_OPERATION

    def _supersede(self, sequence: int, doc_id: str) -> Iterator[int]:
        """Bury the living version of `doc_id`, in whatever layer it lies; nothing is yielded where there is none."""
        for layer in self._layers():
            number = layer.documents.living(doc_id)
            if number is not None:
                self._active.supersede(doc_id, sequence)
                self._count(layer.documents, number, -1)
                yield from _bury(layer, doc_id, sequence)
                return

    def _count(self, documents: Documents, number: int, sign: int) -> None:
        entry, totals = documents.entries[number], self._totals
        self._totals = Totals(
            totals.documents + sign, totals.chunks + sign * entry.chunks, totals.tokens + sign * entry.tokens
        )

    async def _take_over(self, base: Base | None) -> None:
        """Put `base` in the place of the old base and the frozen memtable, with all deaths since that was frozen."""
        if isinstance(base, IndexedBase):
            await base.prefetch(list(self._active.superseded))  # most of it before writes have to wait
        async with self._moving:
            superseded = self._active.superseded
            if isinstance(base, IndexedBase):
                await base.prefetch(superseded)
            if base is not None:
                await _paced(step for doc_id, since in superseded.items() for step in _bury(base, doc_id, since))
            if self._frozen is not None:
                self._base_memos = _merged_memos(self._base_memos, self._frozen)
            self._base, self._frozen, self._flushed = base, None, self._frozen_at
            view = self._view
            self._view = self._view_at(Point(view.sequence, view.document_sequence, view.totals))

    def _view_at(self, point: Point) -> View:
        memtables = tuple(memtable.at(point.sequence) for memtable in reversed(self._memtables()))
        return View(point.sequence, point.document_sequence, point.totals, self._base, memtables)

    def _memtables(self) -> list[Memtable]:
        """Return the memtables, newest first."""
        return [self._active] if self._frozen is None else [self._active, self._frozen]

    def _layers(self) -> list[Memtable | Base]:
        """Return all layers, newest first."""
        layers: list[Memtable | Base] = [*self._memtables()]
        return layers if self._base is None else [*layers, self._base]

    def _query(self, request: SearchRequest) -> Query:
        vector = None
        if request.vector is not None:
            if self.dimension is None:
                raise InvalidInput("corpus has no vectors yet: expected a search without one", field="vector")
            vector = unit_vectors([request.vector], self.dimension, field="vector")[0]
        return Query(request.terms, vector, request.window, request.filter)


async def _paced(steps: Iterable[int]) -> None:
    """Take all `steps`, each of which yields its work, and let others run after every `WORK_PER_STEP`."""
    work = 0
    for done in steps:
        work += done
        if work >= WORK_PER_STEP:
            work = 0
            await let_others_run()


def _bury(layer: Memtable | Base, doc_id: str, sequence: int) -> Iterator[int]:
    """Bury the living version of `doc_id` in `layer`, if there is one, yielding the work of each step."""
    number = layer.documents.living(doc_id)
    if number is None:
        return
    yield _WORK_PER_OPERATION
    if isinstance(layer, IndexedBase):
        yield from layer.bury(number, sequence)
    else:
        layer.documents.bury(number, sequence)


def _merged_memos(memos: Memos, frozen: Memtable) -> Memos:
    merged = dict(memos)
    for key, (_, memo) in frozen.memos.items():
        if memo is None:
            merged.pop(key, None)
        else:
            merged[key] = memo
    return merged


def _is_long(view: View, query: Query) -> bool:
    """Whether searching `view` would hold the event loop for more than about 3 ms."""
    layers = view.layers()
    size = 0 if query.vector is None else len(query.vector)
    work = sum(layer.count for layer in layers) * (size + _WORK_PER_TERM * len(query.terms))
    tree: Filter | None = query.filter
    examined = 0 if tree is None else sum(layer.documents_to_examine(tree) for layer in layers)
    return work > _MAX_INLINE_WORK or examined > _MAX_INLINE_DOCUMENTS
