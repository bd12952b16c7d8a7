"""What a test wrote to a shard, what came of it, and what the shard may show afterwards.

Each document belongs to one caller at a time, who sends version after version and waits for the answer to each. So of a
document the shard may hold: the version acknowledged last, or one sent after it whose outcome is unknown. A request whose
caller gave up waiting may also be carried out later than those after it.
"""

import random
from collections.abc import Mapping

import httpx
import msgspec
import numpy as np

from groundplane.wire.internal import (
    ChunkInput,
    DeleteDocument,
    DocumentPage,
    Operation,
    ReplaceDocument,
    StoredDocument,
)
from tests.support.processes import ShardProcess

CHUNKS = 3
DIMENSION = 8
PAGE_DOCUMENTS = 1_000
DELETED = 0


class Attempt:
    """One version of one document that was sent; `DELETED` is its deletion."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.is_acknowledged = False
        self.was_given_up = False


class History:
    """Every attempt at every document, in the order in which each document's were made."""

    def __init__(self) -> None:
        self.attempts: dict[int, list[Attempt]] = {}

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""
        return sum(attempt.is_acknowledged for attempts in self.attempts.values() for attempt in attempts)

    def begin(self, number: int, version: int) -> Attempt:
        """Note that this version is about to be sent."""
        attempt = Attempt(version)
        self.attempts.setdefault(number, []).append(attempt)
        return attempt

    def lost(self, stored: Mapping[int, int]) -> list[str]:
        """Return the documents of which the shard holds something older than what was acknowledged last."""
        return self._faults(stored, is_invented=False)

    def invented(self, stored: Mapping[int, int]) -> list[str]:
        """Return the documents of which the shard holds something that nobody sent."""
        return self._faults(stored, is_invented=True)

    def _faults(self, stored: Mapping[int, int], *, is_invented: bool) -> list[str]:
        faults = []
        for number in sorted({*stored, *self.attempts}):
            found, attempts = stored.get(number, DELETED), self.attempts.get(number, [])
            was_sent = found == DELETED or any(attempt.version == found for attempt in attempts)
            if found not in self._allowed(attempts) and was_sent is not is_invented:
                faults.append(f"document {number}: version {found}, expected one of {sorted(self._allowed(attempts))}")
        return faults

    @staticmethod
    def _allowed(attempts: list[Attempt]) -> set[int]:
        allowed = {DELETED}
        for attempt in attempts:
            if attempt.is_acknowledged:
                allowed = {earlier.version for earlier in attempts if earlier.was_given_up}
            allowed.add(attempt.version)
        return allowed


def operation(number: int, version: int) -> Operation:
    """Return the write of one version; every chunk carries it, so that half of a replacement shows."""
    if version == DELETED:
        return DeleteDocument(doc_id=f"doc-{number}")
    parts = [f"document {number} version {version} part {part}. " for part in range(CHUNKS)]
    vectors = np.random.default_rng([number, version]).standard_normal((CHUNKS, DIMENSION)).astype("<f4")
    starts = [sum(map(len, parts[:part])) for part in range(CHUNKS)]
    return ReplaceDocument(
        doc_id=f"doc-{number}",
        text="".join(parts),
        title=None,
        uri=None,
        metadata=msgspec.json.encode({"version": version}),
        chunker="test",
        chunks=tuple(
            ChunkInput(start=start, end=start + len(part), heading=None, vector=vector.tobytes())
            for start, part, vector in zip(starts, parts, vectors, strict=True)
        ),
    )


def version_of(text: str) -> int:
    """Return the version that all parts of a document's text carry. Raises ValueError if they are not those of one version."""
    version = int(text.split(" version ")[1].split(" ")[0])
    number = text.split(" ")[1]
    if text != "".join(f"document {number} version {version} part {part}. " for part in range(CHUNKS)):
        raise ValueError(f"half a document: {text!r}")
    return version


def stored_versions(shard: ShardProcess) -> dict[int, int]:
    """Return the version of every document that the shard holds. Raises ValueError for half a document."""
    versions: dict[int, int] = {}
    after, more = "", True
    with httpx.Client(timeout=10.0, base_url=shard.url) as client:
        while more:
            parameters: dict[str, str | int] = {"after": after, "limit": PAGE_DOCUMENTS}
            answer = client.get("/documents", params=parameters, headers=shard.headers()).raise_for_status()
            page = msgspec.msgpack.decode(answer.content, type=DocumentPage)
            for row in page.documents:
                answer = client.get("/document", params={"id": row.doc_id}, headers=shard.headers()).raise_for_status()
                text = msgspec.msgpack.decode(answer.content, type=StoredDocument).text
                versions[int(row.doc_id.removeprefix("doc-"))] = version_of(text)
            after, more = (page.documents[-1].doc_id if page.documents else ""), page.more
    return versions


def next_version(history: History, number: int, generator: random.Random) -> int:
    """Return what to send of a document next: a version never sent before, or now and then its deletion."""
    attempts = history.attempts.get(number, [])
    if attempts and attempts[-1].version != DELETED and generator.random() < 0.1:
        return DELETED
    return max((attempt.version for attempt in attempts), default=0) + 1
