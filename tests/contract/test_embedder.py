"""What every embedder promises, held by the one in the process and by the client of a server."""

import asyncio
import random

import numpy as np
import pytest

from groundplane.errors import Unavailable
from groundplane.process.clock import SystemClock
from groundplane_router.embedders import EmbeddingService, EmbeddingSettings, build_embedder, select_format
from groundplane_router.semantic import SemanticMonitor, SemanticOptions
from tests.fakes.embedding_server import EmbeddingServer

TEXTS = ["a short text", "Ünïcode 中文 😀", "x" * 5000, "two\nlines", "a short text"]


@pytest.fixture(scope="module")
def server():
    with EmbeddingServer(64) as running:
        yield running


@pytest.fixture(params=["embedded", "openai"])
def settings(request, server):
    if request.param == "embedded":
        return EmbeddingSettings(kind="embedded", threads=1)
    return EmbeddingSettings(kind="openai", url=server.url, model="fake", dimension=64, batch_size=2)


@pytest.fixture
async def embedder(settings):
    made = build_embedder(settings, clock=SystemClock(), rng=random.Random(1))
    yield made
    await made.close()


@pytest.mark.parametrize("purpose", ["query", "document"])
async def test_one_row_for_each_text_in_order(embedder, settings, purpose):
    """A vector at another text's place is found by the wrong words for ever."""
    together = await embedder.embed(TEXTS, purpose)
    alone = [await embedder.embed([text], purpose) for text in TEXTS]

    assert together.shape == (len(TEXTS), settings.index_dimension)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


async def test_same_text_same_vector_other_text_other_vector(embedder):
    """Else nothing could be found again."""
    vectors = await embedder.embed(TEXTS, "document")

    np.testing.assert_allclose(vectors[0], vectors[-1], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-2)


async def test_calls_may_overlap(embedder):
    """A router serves many callers at once."""
    texts = [f"text number {number}" for number in range(8)]

    answers = await asyncio.gather(*(embedder.embed([text], "query") for text in texts))

    np.testing.assert_allclose(np.concatenate(answers), await embedder.embed(texts, "query"), atol=1e-5)


async def test_cancelled_call_leaves_it_usable(embedder):
    """Clients hang up all the time."""
    call = asyncio.create_task(embedder.embed(TEXTS, "document"))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])

    assert len(await embedder.embed(["x"], "query")) == 1


async def test_longer_text_has_more_tokens(embedder):
    """Chunks are sized by this count."""
    assert 0 == embedder.count_tokens("") < embedder.count_tokens("one two") < embedder.count_tokens("one two " * 50)


async def test_model_has_a_name(embedder):
    """It is part of the embedding identity."""
    assert embedder.model


async def test_closed_embedder_fails_as_unavailable(embedder):
    """Requests that come during the stop get a 503."""
    await embedder.close()

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")

    assert (caught.value.reason, caught.value.detail) == ("embed_error", "closed")


async def test_probe_passes(embedder, settings):
    """The path from text to index vector holds together."""
    service = EmbeddingService(embedder, select_format(settings), dimension=settings.index_dimension)
    monitor = SemanticMonitor(
        service, clock=SystemClock(), rng=random.Random(1), on_change=lambda state: None, options=SemanticOptions()
    )

    assert (await monitor.probe_once()).is_active
