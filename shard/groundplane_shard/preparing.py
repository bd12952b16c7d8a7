"""Operations of a request checked and analysed without holding the event loop for more than about a millisecond."""

import asyncio
from collections.abc import Sequence

from groundplane.analysis import Analyser
from groundplane.process.clock import Clock
from groundplane.wire.internal import EmbeddingIdentity, Operation, ReplaceDocument
from groundplane_shard.decisions import Proposed, Reembedded
from groundplane_shard.pacing import let_others_run
from groundplane_shard.rows import StoredDocument, StoredOperation, prepare_operation

_INLINE_CHUNKS = 64
_INLINE_CHARACTERS = 16 * 1024  # 50 ns a character to analyse: about 1 ms
_INLINE_VECTOR_BYTES = 256 * 1024
_HELD_SECONDS = 0.0002


async def prepare_all(
    operations: Sequence[Operation], analyser: Analyser, embedding: EmbeddingIdentity | None, clock: Clock
) -> list[Proposed]:
    """Return `operations` as they would be logged. Raises InvalidInput naming the field for what could not be applied later.

    A large document is prepared in a thread, which leaves the loop every millisecond (see `main`); after small ones
    others get a turn.
    """
    dimension, embedding_id = (embedding.dimension, embedding.id) if embedding is not None else (0, "")
    prepared: list[Proposed] = []
    started = clock.monotonic()
    for operation in operations:
        arguments = (operation, analyser, dimension, embedding_id)
        if _is_large(operation):
            stored = await asyncio.to_thread(prepare_operation, *arguments)
        else:
            stored = prepare_operation(*arguments)
        prepared.append(_proposed(operation, stored))
        if clock.monotonic() - started > _HELD_SECONDS:
            await let_others_run()
            started = clock.monotonic()
    return prepared


def _proposed(asked: Operation, stored: StoredOperation) -> Proposed:
    made_from = asked.made_from if isinstance(asked, ReplaceDocument) else None
    return stored if made_from is None or not isinstance(stored, StoredDocument) else Reembedded(stored, made_from)


def _is_large(operation: Operation) -> bool:
    if not isinstance(operation, ReplaceDocument):
        return False
    return (
        len(operation.chunks) > _INLINE_CHUNKS
        or len(operation.text) > _INLINE_CHARACTERS
        or sum(len(chunk.vector) for chunk in operation.chunks) > _INLINE_VECTOR_BYTES
    )
