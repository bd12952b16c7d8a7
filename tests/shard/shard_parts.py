"""The parts of a real shard over a store in memory, for tests of its service layer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette

from groundplane.process.clock import SystemClock
from groundplane.process.metrics import new_registry
from groundplane.wire.internal import (
    DeleteDocument,
    EmbeddingIdentity,
    Operation,
    PutMemo,
    ReplaceDocument,
    SearchRequest,
    WriteRequest,
)
from groundplane.wire.names import CorpusKey
from groundplane.wire.public import Basis
from groundplane_shard.committer import WriteLimits
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Identity, Layout, Replica
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.service import Shard
from groundplane_shard.serving import Serving, ServingParts
from groundplane_shard.snapshots import SnapshotPolicy
from groundplane_shard.stores import MemoryStore, ObjectStore
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.corpus_model import ANALYSER, DIMENSION, replace
from tests.support.failing_store import FailingStore

INCARNATION = "00000000-0000-4000-8000-00000000000a"
LAYOUT = Layout(CorpusKey("t-acme"), INCARNATION)
MIB = 1024 * 1024
CALM = SnapshotPolicy(records=1_000, log_bytes=64 * MIB, seconds=600.0, flush_bytes=64 * MIB)

_WRITERS = count(1)


def identity(dimension: int = DIMENSION, number: int = 0) -> EmbeddingIdentity:
    """Return an embedding identity whose vectors tests make up."""
    return EmbeddingIdentity(
        id=f"{number:016x}{dimension:016x}",
        format="plain",
        templates_digest="",
        model="test",
        dimension=dimension,
        fit=False,
        probes=(bytes(4 * dimension),) * 3,
    )


def parts(**changes: Any) -> ServingParts:
    """Return what stays the same over all openings, with `changes`."""
    calm = ServingParts(
        layout=LAYOUT,
        analyser=ANALYSER,
        clock=SystemClock(),
        metrics=ShardMetrics(new_registry()),
        write_limits=WriteLimits(max_queued=64, max_memtable_bytes=256 * MIB),
        snapshot_policy=CALM,
        max_searches=8,
        key_ids=lambda: ["key"],
    )
    return msgspec.structs.replace(calm, **changes)


def replica(keep_snapshots: int = 2) -> Replica:
    """Return a process's view of the log, under a writer id of its own."""
    own = Identity(layout=LAYOUT, owner=INCARNATION, writer_id=f"writer-{next(_WRITERS)}")
    return Replica(own, keep_snapshots=keep_snapshots)


def local_state(store: ObjectStore, directory: Path) -> LocalState:
    """Return the state of one process, which restores below `directory`."""
    return LocalState(store, LAYOUT, directory, exact_bytes=1 << 30)


def make_shard(store: ObjectStore, directory: Path, **changes: Any) -> Shard:
    """Return a shard over `store`; `changes` are those of `parts`."""
    return Shard(parts(**changes), replica(), store, local_state(store, directory), directory)


@asynccontextmanager
async def running(shard: Shard, *, is_ready: bool = True) -> AsyncIterator[Shard]:
    """Run the shard's lifespan for a block, from when it is ready."""
    async with shard.lifespan(Starlette()):
        if is_ready:
            await until(lambda: shard.unready_detail is None)
        yield shard


def serving_of(shard: Shard) -> Serving:
    """Return the writer that `shard` has opened."""
    assert shard._serving is not None
    return shard._serving


def kill_at_the_end(shard: Shard) -> None:
    """Let `shard` end as a kill would end it: its stop publishes no snapshot."""
    vars(serving_of(shard).snapshots)["_has_news"] = lambda: False


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return once `condition` holds, looked at whenever the event loop turns."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition has no event of its own
            await asyncio.sleep(0)


async def settled(turns: int = 50) -> None:
    """Let everything that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def outcome(work: Awaitable[Any]) -> Any:
    """Return what `work` returns, or the error it raises."""
    return (await asyncio.gather(work, return_exceptions=True))[0]


def document(doc_id: str, *texts: str, **columns: Any) -> ReplaceDocument:
    """Return a document as it arrives; its text is `pump` where none is given."""
    texts = texts or ("pump",)
    return replace(doc_id, texts, [(1.0, 0.0, 0.0)] * len(texts), **columns)


def memo(name: str, response: object = 1) -> PutMemo:
    """Return a memo as it arrives."""
    basis = Basis(tenant=None, platform=None)
    return PutMemo(name=name, fingerprint="f", response=msgspec.json.encode(response), basis=basis)


def write_request(*operations: Operation, embedding: EmbeddingIdentity | None = None, **changes: Any) -> WriteRequest:
    """Return a write that brings an embedding identity along, that of `identity` if none is given."""
    embedding = embedding or identity()
    asked = WriteRequest(
        incarnation=INCARNATION,
        analyser=ANALYSER.id,
        operations=operations,
        embedding_id=embedding.id,
        embedding=embedding,
    )
    return msgspec.structs.replace(asked, **changes)


def search_request(*terms: str, **changes: Any) -> SearchRequest:
    """Return a search by keywords."""
    asked = SearchRequest(incarnation=INCARNATION, analyser=ANALYSER.id, terms=terms or ("pump",), window=100)
    return msgspec.structs.replace(asked, **changes)


def delete(doc_id: str) -> DeleteDocument:
    """Return a deletion as it arrives."""
    return DeleteDocument(doc_id=doc_id)


def records(store: FailingStore) -> list[str]:
    """Return the keys of the log records in a store that fails, in order."""
    assert isinstance(store.store, MemoryStore)
    return sorted(key for key in store.store.objects if key.startswith(LAYOUT.log))


async def doc_ids(shard: Shard) -> list[str]:
    """Return the ids of all documents."""
    page = await shard.documents("", 1_000)
    return [row.doc_id for row in page.documents]


def is_writable(shard: Shard) -> bool:
    """Whether the shard answers and takes writes."""
    return shard.unready_detail is None and shard.status().detail is None


async def wait_for_retry(shard: Shard, clock: VirtualClock, pauses: int = 1) -> None:
    """Let the shard pause once more before it opens again, or before it takes up writing again."""
    await until(lambda: not is_writable(shard) and clock.sleeping == pauses)
