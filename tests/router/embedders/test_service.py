"""The one way from text to vector: instructions, cache, refusals, identity."""

import random
import zlib

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.errors import Unavailable
from groundplane.process.clock import SystemClock
from groundplane_router.embedders import (
    PROBES,
    EmbeddingService,
    EmbeddingSettings,
    Refused,
    build_service,
    select_format,
)
from groundplane_router.embedders.formats import PRESETS
from groundplane_router.embedders.service import MODEL_TOKENS
from groundplane_router.embedders.wordpiece import WordPiece

SIZE = 8
WORDPIECE = WordPiece.bundled()


TITLES = st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["unaffable", "Q" * 80, "中文"])), max_size=90).map(
    " ".join
)


class RecordingEmbedder:
    """Gives each text a direction of its own, and remembers what it was asked."""

    model = "recording"

    def __init__(self, native: int = SIZE):
        self.native = native
        self.asked: list[tuple[str, str]] = []
        self.zero_for: set[str] = set()

    async def embed(self, texts, purpose):
        self.asked += [(purpose, text) for text in texts]
        rows = [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.native) for text in texts]
        for row, text in enumerate(texts):
            if text in self.zero_for:
                rows[row][:] = 0
        return np.array(rows, np.float32)

    def count_tokens(self, text):
        return WORDPIECE.count(text)

    async def close(self):
        pass


@pytest.fixture
def embedder():
    return RecordingEmbedder()


def service_over(embedder, name="e5", **changes):
    chosen = select_format(EmbeddingSettings(kind="openai", format=name))
    return EmbeddingService(embedder, chosen, **{"dimension": SIZE} | changes)


async def test_queries_and_documents_get_their_instructions(embedder):
    """The two sides of a retrieval model are asked differently."""
    service = service_over(embedder)

    await service.embed_query("how", scope="a")
    await service.embed_documents([("Title", "body"), ("", "bare")])

    assert embedder.asked == [
        ("query", "query: how"),
        ("document", "passage: Title\nbody"),
        ("document", "passage: bare"),
    ]


async def test_repeated_query_is_not_embedded_again(embedder):
    """Agents ask the same thing over and over."""
    service = service_over(embedder)

    first = await service.embed_query("how", scope="a")
    second = await service.embed_query("how", scope="a")

    assert len(embedder.asked) == 1
    np.testing.assert_array_equal(first, second)


async def test_callers_share_no_cache_entries(embedder):
    """The time of an answer must not tell one tenant what another has asked."""
    service = service_over(embedder)

    await service.embed_query("how", scope="a")
    await service.embed_query("how", scope="b")

    assert len(embedder.asked) == 2


async def test_cache_forgets_the_least_recently_used(embedder):
    """Its memory is bounded, and what is asked often stays."""
    service = service_over(embedder, cached_queries=2)

    for text in ("one", "two", "one", "three", "one", "two"):
        await service.embed_query(text, scope="a")

    assert [text.removeprefix("query: ") for _, text in embedder.asked] == ["one", "two", "three", "two"]


async def test_cached_vector_cannot_be_changed(embedder):
    """A caller that writes into its vector would spoil everybody's next answer."""
    vector = await service_over(embedder).embed_query("how", scope="a")

    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


async def test_zero_query_has_no_answer(embedder):
    """An all-zero vector is equally near to everything: that is no search."""
    embedder.zero_for = {"query: how"}

    with pytest.raises(Unavailable) as caught:
        await service_over(embedder).embed_query("how", scope="a")

    assert caught.value.reason == "zero_vector"


async def test_failed_query_is_asked_again(embedder):
    """A failure must not be remembered as an answer."""
    service = service_over(embedder)
    embedder.zero_for = {"query: how"}
    with pytest.raises(Unavailable):
        await service.embed_query("how", scope="a")
    embedder.zero_for = set()

    assert (await service.embed_query("how", scope="a")).shape == (SIZE,)


async def test_zero_chunk_is_refused_alone(embedder):
    """The indexing rule: all-zero vectors are skipped and named, the rest is stored."""
    embedder.zero_for = {"passage: empty"}

    vectors = await service_over(embedder).embed_documents([("", "one"), ("", "empty"), ("", "two")])

    assert [isinstance(vector, Refused) for vector in vectors] == [False, True, False]


@pytest.mark.parametrize("native", [SIZE - 1, SIZE + 1], ids=["shorter", "longer"])
async def test_wrong_size_fails_documents_as_a_whole(native):
    """It is one fault of the configuration, not one of each document."""
    with pytest.raises(Unavailable) as caught:
        await service_over(RecordingEmbedder(native)).embed_documents([("", "one"), ("", "two")])

    assert caught.value.reason == "dimension_mismatch"


async def test_matryoshka_format_cuts_longer_vectors():
    """A 1,024-value model can serve a 768-value index if it was trained for it."""
    service = service_over(RecordingEmbedder(SIZE * 2), "nomic")

    vector = await service.embed_query("how", scope="a")

    assert vector.shape == (SIZE,)
    assert service.identity_fields.fit == "cut"


async def test_no_documents_need_no_embedder(embedder):
    """An empty list must not become an empty request, which servers refuse."""
    assert await service_over(embedder).embed_documents([]) == []
    assert embedder.asked == []


async def test_probes_take_the_query_path_past_the_cache(embedder):
    """A probe that is answered from memory proves nothing."""
    service = service_over(embedder)

    await service.probe_vectors()
    vectors = await service.probe_vectors()

    assert vectors.shape == (len(PROBES), SIZE)
    assert embedder.asked == [("query", f"query: {text}") for text in PROBES] * 2


def test_identity_names_everything_that_makes_the_vector_space(embedder):
    """Vectors of two identities must never meet in one index."""
    identity = service_over(embedder).identity_fields

    assert msgspec.to_builtins(identity) == {
        "format": "e5",
        "templates_digest": select_format(EmbeddingSettings(format="e5")).templates_digest,
        "model": "recording",
        "dimension": SIZE,
        "fit": "exact",
    }


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
@settings(max_examples=20)
@given(title=TITLES, repeats=st.integers(0, 220))
def test_chunk_with_its_title_fits_the_model(preset, title, repeats):
    """A title must never push the end of a chunk out of the model's sight."""
    service = EmbeddingService(RecordingEmbedder(), preset, dimension=SIZE)

    rendered = service.render_document(title, "word " * repeats)

    assert WORDPIECE.count(rendered) <= MODEL_TOKENS


def test_long_title_keeps_its_first_words():
    """The front of a title says what the document is about."""
    service = service_over(RecordingEmbedder())

    rendered = service.render_document("pump " * 100, "word " * 220)

    assert rendered.startswith("passage: pump pump pump")
    assert rendered.endswith("word " * 219 + "word")


async def test_without_embedder_every_call_says_so():
    """`no_embedder` is the one reason that only a setting can mend."""
    service = build_service(EmbeddingSettings(kind="none"), clock=SystemClock(), rng=random.Random(1))

    with pytest.raises(Unavailable) as caught:
        await service.embed_query("how", scope="a")

    assert (caught.value.reason, caught.value.code) == ("no_embedder", "retrieval_unavailable")
