"""The embedding identities of one opened writer: which may be searched, which may be written, and how a new one comes in."""

import asyncio

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane.wire.internal import EmbeddingIdentity, ReindexStatus, ReplaceDocument, WriteRequest
from groundplane_shard.identity import check_embeddings, stored_embeddings
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Writer
from groundplane_shard.stores import ObjectStore, run

RETRY_SECONDS = 30


class Embeddings:
    """What MANIFEST lists, and which of it the generations of `state` have."""

    def __init__(self, writer: Writer, store: ObjectStore, state: LocalState, analyser_id: str) -> None:
        """Take on what MANIFEST lists. Raises CorruptData (vectors of an embedding that it does not list)."""
        self._writer = writer
        self._store = store
        self._state = state
        self._generations = state.generations
        self._analyser_id = analyser_id
        self._change = asyncio.Lock()
        self._known: dict[str, EmbeddingIdentity] = {}
        self._take_on()
        check_embeddings(self._generations, writer.manifest)

    @property
    def current(self) -> EmbeddingIdentity | None:
        """The identity of what is searched; None before the first document."""
        known = self._generations.current.made.embedding_id
        return self._known[known] if known is not None else None

    @property
    def reindex(self) -> ReindexStatus | None:
        """The re-embedding under way, None without one."""
        target = self._generations.target
        if target is None or target.made.embedding_id is None:
            return None
        totals = target.view().totals
        return ReindexStatus(
            embedding=self._known[target.made.embedding_id], documents=totals.documents, chunks=totals.chunks
        )

    def check_current(self, embedding_id: str | None) -> None:
        """Raise InvalidInput (`embedding_mismatch`) unless vectors of this embedding may be compared with what is stored."""
        known = self.current
        if known is not None and embedding_id != known.id:
            raise _mismatch(embedding_id, known.id)

    def for_documents(self, request: WriteRequest) -> EmbeddingIdentity:
        """Return the identity under which the documents of `request` are stored.

        Raises InvalidInput (`embedding_mismatch`; `reindex_conflict`: the re-embedding is over), and Unavailable (`reindexing`) for new documents under the identity
        that the corpus is only being given.
        """
        current, reindex = self.current, self.reindex
        remade = [each.made_from is not None for each in request.operations if isinstance(each, ReplaceDocument)]
        if current is not None and request.embedding_id == current.id:
            if any(remade):
                raise _over(current.id)
            return current
        if reindex is None or request.embedding_id != reindex.embedding.id:
            raise _mismatch(request.embedding_id, current.id if current is not None else "none")
        if not all(remade):
            raise Unavailable(
                "this corpus is being re-embedded: documents are taken again when that is finished",
                code="reindexing",
                retry_after_seconds=RETRY_SECONDS,
            )
        return reindex.embedding

    async def fix(self, request: WriteRequest) -> None:
        """Let the first document fix the analyser and the identity in MANIFEST; what stands there already wins."""
        if self._is_fixed():
            return
        async with self._change:
            if self._is_fixed():
                return
            embedding = _brought(request)
            try:
                await run(self._writer.register_analyser(self._analyser_id), self._store, self._state)
                await run(self._writer.register_embedding(msgspec.to_builtins(embedding)), self._store, self._state)
            finally:
                self._take_on()  # an earlier try may have been stored although its answer was lost

    async def introduce(self, request: WriteRequest) -> None:
        """List the identity that `request` brings in MANIFEST, so that log records may name it."""
        embedding = _brought(request)
        async with self._change:
            corpora = (self._generations.current, self._generations.target)
            in_use = frozenset(corpus.made.embedding_id or "" for corpus in corpora if corpus is not None)
            change = self._writer.add_embedding(msgspec.to_builtins(embedding), in_use=in_use)
            try:
                await run(change, self._store, self._state)
            finally:
                self._take_on()

    def _is_fixed(self) -> bool:
        return self.current is not None

    def _take_on(self) -> None:
        """Take on what MANIFEST lists by now. What was fixed before any record was logged is the first that it lists."""
        self._known = stored_embeddings(self._writer.manifest)
        current = self._generations.current
        if current.made.embedding_id is None and self._known:
            current.made = current.made._replace(embedding_id=next(iter(self._known)))
        if self.current is not None:
            current.fix_dimension(self.current.dimension)


def _brought(request: WriteRequest) -> EmbeddingIdentity:
    if request.embedding is None or request.embedding.id != request.embedding_id:
        message = "this embedding identity is not known to the corpus: repeat the write with `embedding` filled in"
        raise InvalidInput(message, code="embedding_unknown", field="embedding", status=409)
    return request.embedding


def _over(embedding_id: str) -> InvalidInput:
    message = f"document is re-embedded into {embedding_id}: expected a re-embedding under way, that one is finished"
    return InvalidInput(message, code="reindex_conflict", field="operations", status=409)


def _mismatch(embedding_id: str | None, expected: str) -> InvalidInput:
    message = f"vectors of embedding {embedding_id}: expected {expected}, with which this corpus was written"
    return InvalidInput(message, code="embedding_mismatch", field="embedding_id", status=409)
