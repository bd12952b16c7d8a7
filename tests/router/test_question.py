"""Embedding a query: what a known-bad embedder costs, and who is told."""

import asyncio
import random

import pytest

from groundplane.analysis import Analyser
from groundplane.errors import Unavailable
from groundplane.process.clock import SystemClock
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import CorpusKey, Incarnation, TenantId
from groundplane_router import question
from groundplane_router.deadline import Deadline
from groundplane_router.directory import Grants
from groundplane_router.embedders import EmbeddingService
from groundplane_router.embedders.formats import Format
from groundplane_router.question import QueryEncoder
from groundplane_router.semantic import SemanticMonitor, SemanticOptions
from tests.fakes.embedder import DIMENSION, WordEmbedder

CORPUS = CorpusEntry(
    key=CorpusKey("t-acme"),
    name="acme",
    tenant=TenantId("acme"),
    incarnation=Incarnation("20000000-0000-4000-8000-000000000000"),
    endpoint=None,
    state="ready",
    grants=(),
)


class Encoder:
    """An encoder over an embedder that can be spoilt."""

    def __init__(self):
        self.clock = SystemClock()
        self.embedder = WordEmbedder()
        form = Format(name="words", query="{text}", document="{text}")
        service = EmbeddingService(self.embedder, form, dimension=DIMENSION)
        self.monitor = SemanticMonitor(
            service, clock=self.clock, rng=random.Random(1), on_change=lambda _: None, options=SemanticOptions()
        )
        self.encoder = QueryEncoder(service, self.monitor, Analyser())

    async def encode(self, text, seconds=5.0):
        grants = Grants(own=CORPUS, access=frozenset({"read"}), platform=None)
        return await self.encoder.encode(grants, text, Deadline(self.clock, seconds))


@pytest.fixture
async def encoder():
    one = Encoder()
    await one.monitor.probe_once()
    return one


async def test_a_query_is_its_terms_and_its_vector(encoder):
    """What a shard needs, and nothing of the text itself."""
    query = await encoder.encode("Which pumps are pumping?")

    assert query.terms == ("pump",)
    assert len(query.vector) == 4 * DIMENSION


async def test_a_replaced_model_is_not_asked(encoder):
    """It answers, and what it answers is noise against the stored vectors."""
    encoder.embedder.salt = "another model"
    await encoder.monitor.probe_once()
    calls = encoder.embedder.calls
    with pytest.raises(Unavailable) as failure:
        await encoder.encode("a new question")

    assert (failure.value.reason, failure.value.detail) == ("embed_error", "embedder_changed")
    assert encoder.embedder.calls == calls


async def test_an_embedder_known_to_be_down_is_waited_for_only_a_little(encoder, monkeypatch):
    """While it is away every caller would pay the whole timeout."""
    monkeypatch.setattr(question, "SECONDS_WHILE_INACTIVE", 0.05)
    encoder.monitor.report_failure(Unavailable("x", reason="embed_error", detail="unreachable"))
    encoder.embedder.hangs = True

    async with asyncio.timeout(2):
        with pytest.raises(Unavailable) as failure:
            await encoder.encode("a new question", seconds=60.0)
    assert failure.value.detail == "embed_timeout"


async def test_a_failure_is_reported_to_the_monitor(encoder):
    """The metric and the next probe follow from what callers meet."""
    encoder.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")
    with pytest.raises(Unavailable):
        await encoder.encode("a new question")

    assert encoder.monitor.state.status == "inactive"


async def test_a_known_query_needs_no_embedder(encoder):
    """Its vector is still right."""
    await encoder.encode("a question")
    encoder.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")

    assert (await encoder.encode("a question")).vector
