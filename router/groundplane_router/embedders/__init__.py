"""From a text to a vector of the index: formats, embedders, fit, and the service that joins them.

To add an embedder, write a class with the four members of `Embedder`, give it a name in `EmbeddingSettings.kind` and a line
in `build_embedder`, and run tests/contract/test_embedder.py over it.
"""

from groundplane_router.embedders.build import build_embedder, build_service
from groundplane_router.embedders.fit import Vector
from groundplane_router.embedders.formats import Format, Purpose, select_format
from groundplane_router.embedders.protocol import Embedder, NoEmbedder
from groundplane_router.embedders.service import PROBES, EmbeddingIdentity, EmbeddingService, Refused
from groundplane_router.embedders.settings import EmbeddingSettings

__all__ = [
    "PROBES",
    "Embedder",
    "EmbeddingIdentity",
    "EmbeddingService",
    "EmbeddingSettings",
    "Format",
    "NoEmbedder",
    "Purpose",
    "Refused",
    "Vector",
    "build_embedder",
    "build_service",
    "select_format",
]
