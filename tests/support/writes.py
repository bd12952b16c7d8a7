"""The documents that tests write to a real shard, and how they are read back.

A document of number n has one version after the other, never the same twice. It consists of three chunks, each of which
carries the version, so that half of a replacement shows.
"""

import random
import re

import httpx
import msgspec
import numpy as np

from groundplane.wire.filters import Eq
from groundplane.wire.internal import (
    ChunkFields,
    ChunkInput,
    DeleteDocument,
    Operation,
    ReplaceDocument,
    SearchAnswer,
    SearchRequest,
    ShardProblem,
    StoredDocument,
)
from tests.checkers.history import Action, Document
from tests.support.processes import ANALYSER_ID, ShardProcess
from tests.support.recording import Call, Recorder

CHUNKS = 3
DIMENSION = 8
DELETED = 0
NOT_DONE_KINDS = frozenset(
    {"denied", "invalid_input", "unavailable"}
)  # what a refusal of these kinds is about was not done
_PART = re.compile(r"document \d+ version \d+ part \d+\. ")


class Versions:
    """Which version of each document is sent next: one never sent before, or now and then its deletion."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._newest: dict[int, int] = {}
        self._was_deleted: set[int] = set()

    @property
    def numbers(self) -> list[int]:
        """Every document of which anything was sent."""
        return sorted(self._newest)

    def next(self, number: int) -> int:
        """Return the version to send, `DELETED` for a deletion."""
        if number in self._newest and number not in self._was_deleted and self._random.random() < 0.1:
            self._was_deleted.add(number)
            return DELETED
        self._was_deleted.discard(number)
        self._newest[number] = self._newest.get(number, 0) + 1
        return self._newest[number]


def key_of(number: int) -> str:
    """Return a document's id."""
    return f"doc-{number}"


def parts_of(number: int, version: int) -> Document:
    """Return the texts of a version's chunks."""
    return tuple(f"document {number} version {version} part {part}. " for part in range(CHUNKS))


def parts_in(text: str) -> Document:
    """Return the parts that a document's text consists of; of one that consists of anything else, the text as it is."""
    parts = tuple(_PART.findall(text))
    return parts if "".join(parts) == text else (text,)


def operation(number: int, version: int) -> Operation:
    """Return the write of one version."""
    if version == DELETED:
        return DeleteDocument(doc_id=key_of(number))
    parts = parts_of(number, version)
    vectors = np.random.default_rng([number, version]).standard_normal((CHUNKS, DIMENSION)).astype("<f4")
    starts = [sum(map(len, parts[:part])) for part in range(CHUNKS)]
    return ReplaceDocument(
        doc_id=key_of(number),
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


def begin_write(recorder: Recorder, observer: str, number: int, version: int) -> Call:
    """Note that a version is about to be sent."""
    action: Action = "delete" if version == DELETED else "put"
    return recorder.begin(observer, action, key_of(number), None if version == DELETED else parts_of(number, version))


def is_refusal(body: bytes) -> bool:
    """Whether a shard's problem says that certainly nothing was done."""
    return msgspec.msgpack.decode(body, type=ShardProblem).kind in NOT_DONE_KINDS


def search_for(shard: ShardProcess, number: int, min_sequence: int = 0) -> SearchRequest:
    """Return a search whose answer is one document, whole."""
    return SearchRequest(
        incarnation=shard.incarnation,
        analyser=ANALYSER_ID,
        terms=("version",),
        window=100,
        filter=Eq(key="doc_id", value=key_of(number)),
        min_sequence=min_sequence,
        deadline_ms=1_000,
    )


def document_in(answer: SearchAnswer) -> Document | None:
    """Return the chunks of the one document that a search found, in order; None if it found none."""
    chunks = [msgspec.msgpack.decode(candidate.chunk, type=ChunkFields) for candidate in answer.candidates]
    return tuple(chunk.text for chunk in sorted(chunks, key=lambda chunk: chunk.ordinal)) or None


def parts_stored(answer: StoredDocument) -> Document | None:
    """Return the parts of a document that was asked for by its id; None if there is none."""
    return None if answer.document is None else parts_in(answer.text)


def read_all(shard: ShardProcess, recorder: Recorder, observer: str) -> None:
    """Read every document that was ever written, and note what is found."""
    keys = sorted({event.key for event in recorder.history})
    with httpx.Client(timeout=10.0, base_url=shard.url) as client:
        for key in keys:
            call = recorder.begin(observer, "read", key)
            answer = client.get("/document", params={"id": key}, headers=shard.headers()).raise_for_status()
            found = msgspec.msgpack.decode(answer.content, type=StoredDocument)
            call.ok(sequence=found.sequence, document=parts_stored(found))
