"""Which embedding a corpus was indexed with, and whether today's embedder still writes into the same space.

The first write fixes a corpus's embedding identity. Two identities are the same space when format, templates, model, dimension
and fit are equal and each probe text gives the same vector within cosine 0.98: a model swapped behind the same name shows in
its probes. A corpus of another identity is neither searched by vector nor written to; vectors of two spaces never meet.
"""

import hashlib
from collections import OrderedDict
from typing import Final, Protocol

import msgspec
import numpy as np

from groundplane.errors import Unavailable
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.internal import EmbeddingIdentity, ShardStatus
from groundplane.wire.names import Incarnation
from groundplane_router.deadline import Deadline
from groundplane_router.embedders import EmbeddingService, Vector
from groundplane_router.embedders.fit import UNAVAILABLE_CODE
from groundplane_router.semantic import SAME_MODEL_COSINE, SemanticMonitor, row_cosines

EMBEDDING_MISMATCH: Final = "embedding_mismatch"
REINDEXING: Final = "reindexing"
"""Detail of a corpus that is being given today's embedding: until that is finished it can be asked by words alone."""

ID_DIGITS: Final = 32
PROBE_DECIMALS: Final = 3
MAX_CACHED: Final = 8_192
REINDEX_RETRY_SECONDS: Final = 30


class StatusSource(Protocol):
    """Where a corpus's stored identity is read."""

    async def status(self, corpus: CorpusEntry, deadline: Deadline) -> ShardStatus:
        """Return the shard's status. Raises Unavailable."""


class VectorSpaces:
    """Answers "under which embedding id may this corpus be asked", from a cache once it is known."""

    def __init__(self, service: EmbeddingService, monitor: SemanticMonitor, shards: StatusSource) -> None:
        self._service = service
        self._monitor = monitor
        self._shards = shards
        self._own: EmbeddingIdentity | None = None
        self._stored: OrderedDict[Incarnation, EmbeddingIdentity | None] = OrderedDict()

    async def own(self) -> EmbeddingIdentity:
        """Return the identity of today's embedder. Raises Unavailable as embedding a query does."""
        if self._own is None:
            vectors = self._monitor.probe_vectors
            if vectors is None:
                vectors = await self._service.probe_vectors()
            self._own = make_identity(self._service, vectors)
        return self._own

    async def id_for(self, corpus: CorpusEntry, deadline: Deadline) -> str:
        """Return the embedding id to name to `corpus`: its stored one, or the own where nothing was written yet.

        Raises Unavailable: `dimension_mismatch`, or `search_failed` with detail `embedding_mismatch`, if the spaces differ;
        with detail `reindexing` while the corpus is on its way into the own space. Only what fits is remembered.
        """
        own = await self.own()
        if corpus.incarnation in self._stored:
            stored = self._stored[corpus.incarnation]
        else:
            status = await self._shards.status(corpus, deadline)
            stored = checked_space(status, own)
            self._remember(corpus, stored)
        return own.id if stored is None else stored.id

    def forget(self, corpus: CorpusEntry) -> None:
        """Ask the shard again at the next use: it did not take the id that was named, as after the first write to it."""
        self._stored.pop(corpus.incarnation, None)

    def _remember(self, corpus: CorpusEntry, stored: EmbeddingIdentity | None) -> None:
        self._stored[corpus.incarnation] = stored
        while len(self._stored) > MAX_CACHED:
            self._stored.popitem(last=False)


def make_identity(service: EmbeddingService, probes: Vector) -> EmbeddingIdentity:
    """Return the embedding identity of `service`; `probes` is float32 (3, dimension), rows of length 1.

    Its id is the SHA-256 of the fields and the probes to 3 decimals, so two routers over one model mostly agree on it; where
    they do not, the stored id is used, since compatibility is decided by `check_same_space` and not by the id.
    """
    fields = service.identity_fields
    rounded = np.round(probes, PROBE_DECIMALS) + 0.0  # -0.0 and 0.0 are one value
    described = [fields.format, fields.templates_digest, fields.model, fields.dimension, fields.fit]
    digest = hashlib.sha256(msgspec.json.encode(described) + rounded.astype("<f4").tobytes())
    return EmbeddingIdentity(
        id=digest.hexdigest()[:ID_DIGITS],
        format=fields.format,
        templates_digest=fields.templates_digest,
        model=fields.model,
        dimension=fields.dimension,
        fit=fields.fit == "cut",
        probes=tuple(encode_vector(row) for row in probes),
    )


def encode_vector(vector: Vector) -> bytes:
    """Return `vector` as little-endian float32 bytes, as vectors travel."""
    return vector.astype("<f4", copy=False).tobytes()


def check_same_space(stored: EmbeddingIdentity, own: EmbeddingIdentity) -> None:
    """Raise Unavailable if vectors of `own` may not be compared with those of `stored`."""
    if stored.dimension != own.dimension:
        raise Unavailable(
            f"corpus was indexed with vectors of {stored.dimension} values, the embedder makes {own.dimension}: "
            "restore the embedder, or run groundplane corpus reindex",
            code=UNAVAILABLE_CODE,
            reason="dimension_mismatch",
            detail=f"got_{own.dimension}_expected_{stored.dimension}",
        )
    if not is_same_space(stored, own):
        raise Unavailable(
            "corpus was indexed with another embedder than today's: restore that one, or run groundplane corpus reindex",
            code=UNAVAILABLE_CODE,
            reason="search_failed",
            detail=EMBEDDING_MISMATCH,
        )


def is_same_space(stored: EmbeddingIdentity, own: EmbeddingIdentity) -> bool:
    """Return whether vectors of both may be compared."""
    return _fields(stored) == _fields(own) and _same_probes(stored, own)


def checked_space(status: ShardStatus, own: EmbeddingIdentity) -> EmbeddingIdentity | None:
    """Return the stored identity, which is the own space; None before the first document. Raises Unavailable as `id_for`."""
    stored = status.embedding
    if stored is None or is_same_space(stored, own):
        return stored
    if status.reindex is not None and is_same_space(status.reindex.embedding, own):
        raise Unavailable(
            f"corpus is being re-embedded ({status.reindex.documents} of {status.documents} documents): "
            "it can be asked by words, and takes documents again when that is finished",
            code=UNAVAILABLE_CODE,
            reason="search_failed",
            detail=REINDEXING,
            retry_after_seconds=REINDEX_RETRY_SECONDS,
        )
    check_same_space(stored, own)
    return stored


def _fields(identity: EmbeddingIdentity) -> tuple[str, str, str, int, bool]:
    return identity.format, identity.templates_digest, identity.model, identity.dimension, identity.fit


def _same_probes(stored: EmbeddingIdentity, own: EmbeddingIdentity) -> bool:
    if stored.probes == own.probes:
        return True
    if len(stored.probes) != len(own.probes) or any(len(probe) != 4 * stored.dimension for probe in stored.probes):
        return False
    left, right = _matrix(stored), _matrix(own)
    return bool(row_cosines(left, right).min() >= SAME_MODEL_COSINE)


def _matrix(identity: EmbeddingIdentity) -> Vector:
    rows = np.frombuffer(b"".join(identity.probes), dtype="<f4").reshape(len(identity.probes), identity.dimension)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vector = rows / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit
