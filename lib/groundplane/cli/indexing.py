"""Sending documents in batches so that one that is refused does not hold back the others."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from groundplane.cli.reading import ReadDocument, Refused
from groundplane.client import (
    Client,
    ClientOptions,
    DocumentInput,
    RequestRefused,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.client.batches import cut_batches
from groundplane.wire.public import DocumentResult, IndexAnswer

PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)

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


class Indexer:
    """Sends documents to one router and counts in `tally` what became of them.

    `sleep` waits while the router takes no writes; `tally` stays right if a method raises a ClientError.
    """

    def __init__(
        self,
        client: Client,
        tally: Tally,
        progress: Progress,
        options: ClientOptions,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._tally = tally
        self._progress = progress
        self._options = options
        self._sleep = sleep

    def index_all(self, entries: Iterable[ReadDocument | Refused]) -> None:
        """Index every document of `entries`; what was not read is counted too."""
        reads: dict[str, ReadDocument] = {}
        for batch in cut_batches(self._documents(entries, reads), self._options):
            taken = [reads.pop(document.id) for document in batch]
            self._index_batch(taken)
            self._progress(sum(read.size_bytes for read in taken))

    def _documents(
        self, entries: Iterable[ReadDocument | Refused], reads: dict[str, ReadDocument]
    ) -> Iterator[DocumentInput]:
        """Yield the documents of `entries` and remember in `reads` where each was read from."""
        for entry in entries:
            match entry:
                case Refused():
                    self._tally.refuse(entry)
                    self._progress(entry.size_bytes)
                case ReadDocument():
                    reads[entry.document.id] = entry
                    yield entry.document

    def _index_batch(self, batch: Sequence[ReadDocument]) -> None:
        """Index one batch; a document that is to blame fails alone, and where nobody knows which, halves are tried."""
        try:
            answer = self._send([read.document for read in batch])
        except RequestRefused as refused:
            self._handle_refusal(refused, batch)
            return
        self._tally.position = answer.position
        self._count(batch, answer.results)

    def _handle_refusal(self, refused: RequestRefused, batch: Sequence[ReadDocument]) -> None:
        if refused.results:
            self._count(batch, refused.results)
            return
        culprit = _culprit(refused, batch)
        if culprit is None:
            parts = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        else:
            self._tally.failed.append(Named(name=batch[culprit].place, reason=refused.message))
            parts = batch[:culprit], batch[culprit + 1 :]
        for part in parts:
            if part:
                self._index_batch(part)

    def _count(self, batch: Sequence[ReadDocument], results: Sequence[DocumentResult]) -> None:
        for read, result in zip(batch, results, strict=True):
            self._tally.count(read, result)

    def _send(self, documents: list[DocumentInput]) -> IndexAnswer:
        """Index one batch, again after a pause where its outcome is unknown or the router takes no writes now.

        Documents are replaced, so twice is as good as once.
        """
        for pause_seconds in PAUSES_SECONDS:
            try:
                return self._client.index_batch(documents)
            except WriteOutcomeUnknown:
                self._sleep(pause_seconds)
            except ServiceUnreachable as error:
                if error.status is None:  # nobody is there, which a pause rarely changes
                    raise
                self._sleep(pause_seconds)
        return self._client.index_batch(documents)


def _culprit(refused: RequestRefused, batch: Sequence[ReadDocument]) -> int | None:
    """Return which document of `batch` a refusal is about, None if it does not say."""
    matched = _FIELD_INDEX.match(refused.field or "")
    if matched and int(matched[1]) < len(batch):
        return int(matched[1])
    return 0 if len(batch) == 1 else None
