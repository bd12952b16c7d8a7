"""Sending documents in batches so that one that is refused does not hold back the others."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from groundplane.cli.reading import ReadDocument, Refused
from groundplane.client import Client, ClientOptions, RequestRefused, WriteOutcomeUnknown
from groundplane.client.batches import cut_batches
from groundplane.wire.public import DocumentResult, IndexAnswer

REPEATS = 3

_FIELD_INDEX = re.compile(r"documents\[([0-9]+)\]")


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A document that did not get in, by the place it was read from."""

    name: str
    reason: str


class Tally(msgspec.Struct, kw_only=True):
    """What became of the documents so far; `position` is that of the last write."""

    indexed: int = 0
    unchanged: int = 0
    chunks: int = 0
    skipped: list[Named] = []
    failed: list[Named] = []
    position: str | None = None

    def refuse(self, refused: Refused) -> None:
        """Count what was not read."""
        named = Named(name=refused.place, reason=refused.reason)
        (self.failed if refused.is_fault else self.skipped).append(named)

    def count(self, read: ReadDocument, result: DocumentResult) -> None:
        """Count what the router said about one document."""
        self.chunks += result.chunks
        match result.outcome:
            case "indexed":
                self.indexed += 1
            case "unchanged":
                self.unchanged += 1
            case "skipped":
                self.skipped.append(Named(name=read.place, reason=result.reason or "skipped"))
            case "dropped":
                self.failed.append(Named(name=read.place, reason=result.reason or "dropped"))


Progress = Callable[[int], None]
"""Called with the number of source bytes that are done with."""


def index_all(
    client: Client, entries: Iterable[ReadDocument | Refused], tally: Tally, progress: Progress, options: ClientOptions
) -> None:
    """Index every document of `entries` and count it in `tally`, which stays right if this raises a ClientError."""
    for batch in _batches(entries, tally, progress, options):
        _index_batch(client, batch, tally)
        progress(sum(read.size_bytes for read in batch))


def _batches(
    entries: Iterable[ReadDocument | Refused], tally: Tally, progress: Progress, options: ClientOptions
) -> Iterator[list[ReadDocument]]:
    reads: dict[str, ReadDocument] = {}

    def documents() -> Iterator[ReadDocument]:
        for entry in entries:
            if isinstance(entry, Refused):
                tally.refuse(entry)
                progress(entry.size_bytes)
            else:
                reads[entry.document.id] = entry
                yield entry

    for batch in cut_batches((entry.document for entry in documents()), options):
        yield [reads.pop(document.id) for document in batch]


def _index_batch(client: Client, batch: Sequence[ReadDocument], tally: Tally) -> None:
    """Index one batch; where a document is to blame it alone fails, where nobody knows which, halves are tried."""
    try:
        answer = _repeat(client, batch)
    except RequestRefused as refused:
        if refused.results:
            for read, result in zip(batch, refused.results, strict=True):
                tally.count(read, result)
            return
        culprit = _culprit(refused, batch)
        if culprit is not None:
            tally.failed.append(Named(name=batch[culprit].place, reason=refused.message))
        middle = len(batch) // 2 if culprit is None else culprit
        for part in (batch[:middle], batch[middle + (culprit is not None) :]):
            if part:
                _index_batch(client, part, tally)
        return
    tally.position = answer.position
    for read, result in zip(batch, answer.results, strict=True):
        tally.count(read, result)


def _repeat(client: Client, batch: Sequence[ReadDocument]) -> IndexAnswer:
    """Index one batch, again where its outcome is unknown: documents are replaced, so twice is as good as once."""
    documents = [read.document for read in batch]
    for _ in range(REPEATS - 1):
        try:
            return client.index_batch(documents)
        except WriteOutcomeUnknown:
            continue
    return client.index_batch(documents)


def _culprit(refused: RequestRefused, batch: Sequence[ReadDocument]) -> int | None:
    matched = _FIELD_INDEX.match(refused.field or "")
    if matched and int(matched[1]) < len(batch):
        return int(matched[1])
    return 0 if len(batch) == 1 else None
