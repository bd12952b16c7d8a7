"""An embedder without a model: each word is a fixed direction, a text the sum of its words."""

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np

from groundplane.errors import Unavailable
from groundplane_router.embedders import Purpose, Vector

DIMENSION = 256
NOTHING = "zerovector"


class WordEmbedder:
    """Texts that share words lie close to each other. A text that is only `zerovector` becomes the zero vector."""

    model = "words"

    def __init__(self, dimension: int = DIMENSION, salt: str = "") -> None:
        self.dimension = dimension
        self.salt = salt
        self.failure: Unavailable | None = None
        self.hangs = False
        self.calls = 0
        self.waiting = 0

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vector:
        self.calls += 1
        if self.hangs:
            self.waiting += 1
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return np.stack([self._vector(text) for text in texts])

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def close(self) -> None:
        return

    def _vector(self, text: str) -> Vector:
        words = [word.strip(".,?!:;").lower() for word in text.split()]
        parts = [self._direction(word) for word in words if word != NOTHING]
        return np.sum(parts, axis=0, dtype=np.float32) if parts else np.zeros(self.dimension, np.float32)

    def _direction(self, word: str) -> Vector:
        seed = hashlib.sha256((self.salt + word).encode()).digest()
        return np.random.default_rng(list(seed)).standard_normal(self.dimension).astype(np.float32)
