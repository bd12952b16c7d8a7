"""The documents of one layer, and when each was born and died.

Layers (the base, a frozen memtable, the active one) share this table. A document is visible at sequence s where
`born <= s < died`. Deaths are written in place, but only ever with a sequence above that of every view handed out, so a
reader in another thread may use these arrays while a batch is being applied.
"""

import bisect
import heapq
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from groundplane.wire.filters import Filter
from groundplane.wire.internal import DocumentRow
from groundplane_shard.predicate import DocumentFields, compile_predicate

NEVER = int(np.iinfo(np.int64).max)

_FIRST_CAPACITY = 64

Mask = npt.NDArray[np.bool_]


class DocumentEntry(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a document in every engine. `sequence` is its birth; `tokens` sums its chunks' lengths.

    `metadata` is empty in the base of the indexed engine, where filters run inside LanceDB.
    """

    doc_id: str
    title: str | None
    uri: str | None
    metadata: bytes
    chunker: str
    content_hash: bytes
    chunks: int
    tokens: int
    sequence: int

    def row(self) -> DocumentRow:
        """Return the entry as a listing shows it."""
        return DocumentRow(self.doc_id, self.title, self.uri, self.chunks, self.sequence)

    def filter_fields(self) -> DocumentFields:
        """Return what a filter sees of the document."""
        return DocumentFields(self.doc_id, self.title, self.uri, msgspec.json.decode(self.metadata))


class Document(NamedTuple):
    """One document with its text put together again; `metadata` is JSON."""

    row: DocumentRow
    text: str
    metadata: bytes


def join_chunks(chunks: Iterable[tuple[int, str]]) -> str:
    """Return the text whose chunks, in order, begin at these character offsets; overlaps count once."""
    text = ""
    for start, part in chunks:
        text += part[len(text) - start :]
    return text


def merged_ids(parts: Iterable["Documents"], sequence: int) -> list[str]:
    """Return the ids of the documents of all `parts` that were alive at `sequence`, in order.

    Sorting holds the interpreter's lock: 17 ms for 100,000 ids in any order, 1 ms for parts in order.
    """
    ids = [doc_id for documents in parts for doc_id in documents.living_ids(sequence)]
    ids.sort()
    return ids


class Growing:
    """A numpy array that grows at its end; `values` may be read in another thread while it grows."""

    def __init__(self, dtype: npt.DTypeLike, values: npt.ArrayLike = ()) -> None:
        self._array: npt.NDArray[Any] = np.array(values, dtype=dtype)
        self._size = len(self._array)

    @property
    def values(self) -> npt.NDArray[Any]:
        """Everything appended so far, as a view."""
        return self._array[: self._size]

    def append(self, value: float) -> None:
        """Append one value; amortised constant time."""
        if self._size == len(self._array):
            grown = np.empty(max(_FIRST_CAPACITY, 2 * self._size), dtype=self._array.dtype)
            grown[: self._size] = self._array
            self._array = grown
        self._array[self._size] = value
        self._size += 1


class Documents:
    """All versions of documents that one layer holds, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self.entries: list[DocumentEntry] = []
        self.first_rows: list[int] = []
        self.deaths = 0
        self._died = Growing(np.int64)
        self._latest: dict[str, int] = {}
        self._earlier: dict[int, int] = {}
        self._sorted_ids: list[str] | None = None

    @classmethod
    def fixed(cls, entries: list[DocumentEntry], first_rows: list[int], sorted_ids: list[str]) -> "Documents":
        """Return the documents of a base, which only die: one version each, with their ids in order."""
        documents = cls()
        documents.entries = entries
        documents.first_rows = first_rows
        documents._died = Growing(np.int64, np.full(len(entries), NEVER))
        documents._latest = {entry.doc_id: number for number, entry in enumerate(entries)}
        documents._sorted_ids = sorted_ids
        return documents

    def add(self, entry: DocumentEntry, first_row: int) -> int:
        """Add a version whose chunks begin at `first_row` and return its number; an older one must be dead by now."""
        number = len(self.entries)
        earlier = self._latest.get(entry.doc_id)
        if earlier is not None:
            self._earlier[number] = earlier
        self.entries.append(entry)
        self.first_rows.append(first_row)
        self._died.append(NEVER)
        self._latest[entry.doc_id] = number
        return number

    def living(self, doc_id: str) -> int | None:
        """Return the number of the version that nothing has superseded yet, None if there is none."""
        number = self._latest.get(doc_id)
        return number if number is not None and self._died.values[number] == NEVER else None

    def bury(self, number: int, sequence: int) -> None:
        """Record that the version was superseded by the record `sequence`, which no view holds yet."""
        self._died.values[number] = sequence
        self.deaths += 1

    def at(self, doc_id: str, sequence: int) -> int | None:
        """Return the number of the version visible at `sequence`, None if this layer shows none."""
        number = self._latest.get(doc_id)
        while number is not None:
            if self.entries[number].sequence <= sequence:
                return number if self._died.values[number] > sequence else None
            number = self._earlier.get(number)
        return None

    def is_alive(self, number: int, sequence: int) -> bool:
        """Whether the version was not yet superseded at `sequence`."""
        return bool(self._died.values[number] > sequence)

    def alive(self, sequence: int, count: int) -> Mask | None:
        """Return which of the first `count` versions were not yet superseded at `sequence`; None means all."""
        if not self.deaths:
            return None
        mask: Mask = self._died.values[:count] > sequence
        return mask

    def living_entries(self, sequence: int) -> list[DocumentEntry]:
        """Return the documents of a layer without later births that nothing had superseded at `sequence`."""
        alive = self.alive(sequence, len(self.entries))
        if alive is None:
            return list(self.entries)
        return [self.entries[number] for number in np.flatnonzero(alive).tolist()]

    def living_ids(self, sequence: int) -> list[str]:
        """Return the ids of `living_entries`, in order."""
        if self._sorted_ids is None:
            return sorted(entry.doc_id for entry in self.living_entries(sequence))
        alive = self.alive(sequence, len(self.entries))
        if alive is None:
            return list(self._sorted_ids)
        return [doc_id for doc_id in self._sorted_ids if alive[self._latest[doc_id]]]

    def page(self, sequence: int, after: str, limit: int) -> list[DocumentEntry]:
        """Return the first `limit` documents visible at `sequence` whose id is above `after`, by id."""
        entries = (self.entries[number] for number in self._numbers_after(sequence, after))
        if self._sorted_ids is None:
            return heapq.nsmallest(limit, entries, key=lambda entry: entry.doc_id)
        return [entry for entry, _ in zip(entries, range(limit), strict=False)]

    def matching(self, tree: Filter, count: int) -> Mask:
        """Return which of the first `count` versions `tree` holds for."""
        predicate = compile_predicate(tree)
        fields = (entry.filter_fields() for entry in self.entries[:count])
        return np.fromiter((predicate(document) for document in fields), dtype=np.bool_, count=count)

    def _numbers_after(self, sequence: int, after: str) -> Iterator[int]:
        if self._sorted_ids is None:
            ids = [doc_id for doc_id in self._latest if doc_id > after]
        else:
            ids = self._sorted_ids[bisect.bisect_right(self._sorted_ids, after) :]
        for doc_id in ids:
            number = self.at(doc_id, sequence)
            if number is not None:
                yield number
