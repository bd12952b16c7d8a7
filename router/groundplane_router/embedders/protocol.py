"""The seam: what the router needs from something that turns texts into vectors."""

from collections.abc import Sequence
from typing import Protocol

from groundplane.errors import Unavailable
from groundplane_router.embedders.fit import UNAVAILABLE_CODE, Vector
from groundplane_router.embedders.formats import Purpose
from groundplane_router.embedders.wordpiece import WordPiece


class Embedder(Protocol):
    """A model, in the process or behind a server. It gets finished texts: instructions are already around them."""

    @property
    def model(self) -> str:
        """Return the name that identifies the model in the embedding identity."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vector:
        """Return float32 (len(texts), native size), row i for text i, unfitted and not normalised.

        Queries overtake documents. Of a text longer than the model takes only the front counts; chunks are made to fit.
        Raises Unavailable with reason `embed_error`; never answers some of the texts.
        """

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` takes, special ones not counted."""

    async def close(self) -> None:
        """Let go of threads and connections; idempotent. Calls in flight fail with Unavailable."""


class NoEmbedder:
    """Stands where no embedder is configured: every call says so."""

    model = "none"

    def __init__(self) -> None:
        self._wordpiece = WordPiece.bundled()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vector:  # noqa: ARG002  (names of the protocol)
        """Raise Unavailable with reason `no_embedder`."""
        raise Unavailable(
            "no embedder is configured: set EMBEDDING_URL, or GROUNDPLANE_EMBEDDER=embedded",
            code=UNAVAILABLE_CODE,
            reason="no_embedder",
            detail="not_configured",
        )

    def count_tokens(self, text: str) -> int:
        """Return WordPiece's count, so that documents are cut up the same way once there is an embedder."""
        return self._wordpiece.count(text)

    async def close(self) -> None:
        """Do nothing."""
