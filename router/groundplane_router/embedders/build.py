"""The embedder that the settings ask for."""

import random

from groundplane.process.clock import Clock
from groundplane_router.embedders.embedded import EmbeddedEmbedder
from groundplane_router.embedders.formats import select_format
from groundplane_router.embedders.openai import OpenAiEmbedder
from groundplane_router.embedders.protocol import Embedder, NoEmbedder
from groundplane_router.embedders.service import EmbeddingService
from groundplane_router.embedders.settings import EmbeddingSettings


def build_embedder(settings: EmbeddingSettings, *, clock: Clock, rng: random.Random) -> Embedder:
    """Return the embedder of `settings.kind`; connects to nothing yet. Raises InvalidInput for what cannot work."""
    match settings.kind:
        case "none":
            return NoEmbedder()
        case "embedded":
            return EmbeddedEmbedder(settings)
        case "openai":
            return OpenAiEmbedder(settings, clock=clock, rng=rng)


def build_service(settings: EmbeddingSettings, *, clock: Clock, rng: random.Random) -> EmbeddingService:
    """Return the service over `build_embedder`'s embedder and the format of `settings`. Raises InvalidInput."""
    return EmbeddingService(
        build_embedder(settings, clock=clock, rng=rng),
        select_format(settings),
        dimension=settings.index_dimension,
        cached_queries=settings.cached_queries,
    )
