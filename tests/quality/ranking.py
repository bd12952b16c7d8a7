"""The product's ranking in one process: its chunks, its embedder, its corpora, its fusion; only the HTTP between is left out."""

import asyncio
import fcntl
import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from groundplane.analysis import Analyser
from groundplane.process.clock import SystemClock
from groundplane.wire.filters import Filter
from groundplane.wire.internal import ReplaceDocument, SearchAnswer, SearchRequest, Statistics
from groundplane.wire.names import Scope
from groundplane.wire.public import DocumentInput, Hit
from groundplane_router.deadline import Deadline
from groundplane_router.embedders import EmbeddingService, EmbeddingSettings, Vector, build_service
from groundplane_router.fusion import FusionRule, ScopeAnswer, fuse, window_for
from groundplane_router.indexing import source_of
from groundplane_router.preparation import CHUNKER_ID, Preparation
from groundplane_shard.corpus import Corpus
from groundplane_shard.rows import StoredOperation, prepare_operation
from tests.quality.collections import REPOSITORY

ANALYSER = Analyser()
MAX_TERMS = 128
_CACHE = REPOSITORY / "build" / "quality"
_BATCH = 500


class Embedded(NamedTuple):
    """Documents as writes, and the vector of each question, all from the embedded model."""

    writes: list[ReplaceDocument]
    vectors: dict[str, Vector]
    dense_floor: float | None

    @property
    def rule(self) -> FusionRule:
        """The product's own rule for this model."""
        return FusionRule(dense_floor=self.dense_floor)


def embed_all(documents: Sequence[DocumentInput], questions: Iterable[str]) -> Embedded:
    """Embed documents and questions with the embedded model; blocks for about 20 ms a chunk."""

    async def work() -> Embedded:
        service = embedded_service()
        try:
            vectors = {text: await service.embed_query(text, scope="quality") for text in questions}
            return Embedded(await embed(service, documents), vectors, service.dense_floor)
        finally:
            await service.close()

    with ThreadPoolExecutor(1) as thread:  # its own event loop: the caller may be in one
        return thread.submit(lambda: asyncio.run(work())).result()


def embedded_service() -> EmbeddingService:
    """Return the embedded model behind its format, as the router builds it."""
    return build_service(EmbeddingSettings(kind="embedded"), clock=SystemClock(), rng=random.Random(1))


async def embed(service: EmbeddingService, documents: Sequence[DocumentInput]) -> list[ReplaceDocument]:
    """Return the writes that the router would send; kept in build/quality, since embedding takes a minute."""
    described = [
        CHUNKER_ID,
        msgspec.to_builtins(service.identity_fields),
        msgspec.to_builtins(list(documents)),
    ]
    _CACHE.mkdir(parents=True, exist_ok=True)
    path = _CACHE / hashlib.sha256(msgspec.json.encode(described)).hexdigest()
    with path.with_suffix(".lock").open("w") as lock:  # another worker may be embedding the same collection
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_bytes(msgspec.msgpack.encode(await _embed_now(service, documents)))
            partial.rename(path)
    return msgspec.msgpack.decode(path.read_bytes(), type=list[ReplaceDocument])


async def _embed_now(service: EmbeddingService, documents: Sequence[DocumentInput]) -> list[ReplaceDocument]:
    preparation = Preparation(service)
    prepared = [preparation.cut(source_of(document, "document"), "document") for document in documents]
    await preparation.embed_all(prepared, Deadline(SystemClock(), 600.0))
    return [one.operation() for one in prepared if one.skipped is None]


def prepare(writes: Sequence[ReplaceDocument], dimension: int) -> list[StoredOperation]:
    """Return the operations that the shard would log."""
    return [prepare_operation(write, ANALYSER, dimension, "quality") for write in writes]


async def build_corpus(directory: Path, operations: Sequence[StoredOperation]) -> Corpus:
    """Return a corpus that holds `operations`, all in its memtable."""
    corpus = await Corpus.open(directory)
    for start in range(0, len(operations), _BATCH):
        await corpus.apply(corpus.view().sequence + 1, operations[start : start + _BATCH])
    return corpus


class Ranker:
    """Answers questions from a tenant's corpus and the platform's, as `POST /v1/evidence` does."""

    def __init__(self, corpora: Mapping[Scope, Corpus], rule: FusionRule) -> None:
        self._corpora = corpora
        self._rule = rule

    async def hits(self, text: str, vector: Vector, k: int, condition: Filter | None = None) -> list[Hit]:
        """Return the best `k` hits."""
        terms = ANALYSER.query_terms(text, MAX_TERMS)
        answers = await asyncio.gather(
            *(self._ask(scope, terms, vector, k, condition) for scope in sorted(self._corpora))
        )
        return fuse(terms, answers, k=k, rule=self._rule)

    async def _ask(
        self, scope: Scope, terms: tuple[str, ...], vector: Vector, k: int, condition: Filter | None
    ) -> ScopeAnswer:
        corpus = self._corpora[scope]
        request = SearchRequest(
            incarnation="",
            analyser=ANALYSER.id,
            terms=terms,
            window=window_for(k),
            vector=vector.astype("<f4").tobytes(),
            filter=condition,
        )
        view = corpus.view()
        found = await corpus.search(view, request)
        answer = msgspec.structs.replace(
            _EMPTY, statistics=found.statistics, candidates=found.candidates, sequence=view.sequence
        )
        return ScopeAnswer(scope=scope, answer=answer)


_EMPTY = SearchAnswer(
    incarnation="",
    epoch=0,
    sequence=0,
    age_seconds=0.0,
    document_sequence=0,
    statistics=Statistics(0, 0, 0, ()),
    candidates=[],
)
