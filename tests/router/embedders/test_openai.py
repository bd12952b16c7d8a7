"""The client of embedding servers: what it sends, what it believes, and how it fails."""

import asyncio
import logging
import random

import numpy as np
import pytest

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.clock import SystemClock
from groundplane_router.embedders import EmbeddingService, EmbeddingSettings, Refused, select_format
from groundplane_router.embedders.openai import OpenAiEmbedder, embeddings_url
from tests.fakes.embedding_server import EmbeddingServer

SIZE = 32


@pytest.fixture(scope="module")
def running():
    with EmbeddingServer(SIZE) as server:
        yield server


@pytest.fixture
def server(running):
    running.misbehaviour = running.misbehave_times = running.retry_after = None
    running.encoding = "float"
    running.requests.clear()
    return running


class CountingClock(SystemClock):
    """Real time, except that sleeping only notes for how long."""

    def __init__(self):
        self.slept: list[float] = []

    async def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
def clock():
    return CountingClock()


@pytest.fixture
async def make_embedder(server, clock):
    made: list[OpenAiEmbedder] = []

    def make(**changes):
        settings = EmbeddingSettings(**{"kind": "openai", "url": server.url, "model": "m", "dimension": SIZE} | changes)
        made.append(OpenAiEmbedder(settings, clock=clock, rng=random.Random(1)))
        return made[-1]

    yield make
    for embedder in made:
        await embedder.close()


@pytest.fixture
def embedder(make_embedder):
    return make_embedder()


@pytest.fixture
def service(embedder):
    return EmbeddingService(embedder, select_format(EmbeddingSettings()), dimension=SIZE)


def expected(server, *texts):
    return np.array([server.vector(text) for text in texts], np.float32)


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_vectors_are_the_servers_in_either_encoding(server, embedder, encoding):
    """Some servers answer base64 whatever is asked for."""
    server.encoding = encoding

    vectors = await embedder.embed(["one", "two"], "document")

    np.testing.assert_allclose(vectors, expected(server, "one", "two"), rtol=1e-6)


async def test_order_is_that_of_the_indexes(server, embedder):
    """A server may answer in any order; a vector at the wrong text would be found for ever by the wrong words."""
    server.misbehaviour = "shuffled"

    vectors = await embedder.embed(["one", "two", "three"], "document")

    np.testing.assert_allclose(vectors, expected(server, "one", "two", "three"), rtol=1e-6)


async def test_batches_are_bounded_and_rejoined_in_order(server, make_embedder):
    """Servers refuse large batches, TEI from 33 texts on by default."""
    texts = [f"text {number}" for number in range(7)]

    vectors = await make_embedder(batch_size=3).embed(texts, "document")

    assert [len(request["input"]) for request in server.requests] == [3, 3, 1]
    np.testing.assert_allclose(vectors, expected(server, *texts), rtol=1e-6)


@pytest.mark.parametrize(("configured", "sent"), [(None, False), (256, True)], ids=["unset", "set"])
async def test_dimensions_are_sent_only_when_configured(server, make_embedder, configured, sent):
    """A server answers 400 to `dimensions` for a model that cannot be cut."""
    await make_embedder(request_dimensions=configured).embed(["x"], "query")

    assert ("dimensions" in server.requests[0]) is sent


async def test_key_is_sent_as_bearer(server, make_embedder):
    """That is how hosted servers know their customer."""
    await make_embedder(api_key="s3cret").embed(["x"], "query")

    assert server.headers["Authorization"] == "Bearer s3cret"


async def test_answer_is_asked_for_uncompressed(server, embedder):
    """A few bytes can unpack to gigabytes, so nothing is ever unpacked."""
    await embedder.embed(["x"], "query")

    assert server.headers["Accept-Encoding"] == "identity"


async def test_connection_that_breaks_once_is_tried_again(server, embedder):
    """Servers close idle connections, now and then just as the next request sets out."""
    server.misbehaviour, server.misbehave_times = "broken_off", 1

    assert (await embedder.embed(["x"], "query")).shape == (1, SIZE)


async def test_nothing_secret_is_logged_or_raised(server, make_embedder, caplog):
    """Keys and texts must not reach logs, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    server.misbehaviour = "status_500"

    with pytest.raises(Unavailable) as caught:
        await make_embedder(api_key="s3cret").embed(["private words"], "query")

    told = caplog.text + str(caught.value) + repr(EmbeddingSettings(api_key="s3cret"))
    assert "s3cret" not in told
    assert "private words" not in told


@pytest.mark.parametrize(
    ("misbehaviour", "reason", "detail"),
    [
        ("wrong_size", "dimension_mismatch", "got_16_expected_32"),
        ("too_long", "dimension_mismatch", "got_64_expected_32"),
        ("mixed_sizes", "embed_error", "mixed_sizes"),
        ("nan", "embed_error", "not_finite"),
        ("infinite", "embed_error", "not_finite"),
        ("overflow", "embed_error", "not_finite"),
        ("bad_base64", "embed_error", "not_embeddings"),
        ("odd_base64", "embed_error", "not_embeddings"),
        ("empty_vector", "embed_error", "not_embeddings"),
        ("short_batch", "embed_error", "short_batch"),
        ("long_batch", "embed_error", "long_batch"),
        ("duplicate_index", "embed_error", "bad_index"),
        ("missing_index", "embed_error", "bad_index"),
        ("foreign_index", "embed_error", "bad_index"),
        ("null_vector", "embed_error", "null_vector"),
        ("null_value", "embed_error", "null_vector"),
        ("text_values", "embed_error", "not_embeddings"),
        ("null", "embed_error", "not_embeddings"),
        ("no_data", "embed_error", "not_embeddings"),
        ("not_json", "embed_error", "not_json"),
        ("empty", "embed_error", "not_json"),
        ("broken_off", "embed_error", "broken_off"),
        ("redirect", "embed_error", "redirect"),
        ("compressed_bomb", "embed_error", "compressed"),
        ("endless", "embed_error", "too_large"),
        ("status_400", "embed_error", "status_400"),
        ("status_401", "embed_error", "status_401"),
        ("status_500", "embed_error", "status_500"),
        ("status_503", "embed_error", "status_503"),
    ],
)
async def test_bad_answer_has_one_reason_and_stores_nothing(server, service, misbehaviour, reason, detail):
    """An operator must see from the reason alone what to mend, and half an answer must never be used."""
    server.misbehaviour = misbehaviour

    with pytest.raises(Unavailable) as caught:
        await service.embed_documents([("", "one"), ("", "two")])

    assert (caught.value.reason, caught.value.detail, caught.value.code) == (reason, detail, "retrieval_unavailable")


async def test_nan_in_base64_is_refused(server, make_embedder):
    """Base64 can carry what JSON cannot, and one NaN would make every score NaN."""
    server.misbehaviour = "nan_base64"
    service = EmbeddingService(make_embedder(), select_format(EmbeddingSettings()), dimension=4)

    with pytest.raises(Unavailable) as caught:
        await service.embed_query("x", scope="a")

    assert (caught.value.reason, caught.value.detail) == ("embed_error", "not_finite")


async def test_zero_vector_refuses_its_chunk_alone(server, service):
    """One odd chunk must not cost the others their place in the index."""
    server.misbehaviour = "first_zero"

    first, second = await service.embed_documents([("", "one"), ("", "two")])

    assert first == Refused(reason="zero_vector")
    assert isinstance(second, np.ndarray)


async def test_slow_server_costs_no_more_than_the_budget(server, make_embedder):
    """A query must fall through to grep while its caller still waits."""
    server.misbehaviour = "slow"
    started = asyncio.get_running_loop().time()

    with pytest.raises(Unavailable) as caught:
        await make_embedder(query_timeout_seconds=0.1).embed(["x"], "query")

    assert (caught.value.reason, caught.value.detail) == ("embed_error", "timeout")
    assert asyncio.get_running_loop().time() - started < 2


async def test_stopped_server_is_unreachable_and_works_again_after_its_start(server, embedder):
    """A restart of the embedding server needs no restart of the router."""
    await embedder.embed(["x"], "query")
    server.stop()

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")
    server.start()

    assert caught.value.detail in ("unreachable", "broken_off")
    assert (await embedder.embed(["x"], "query")).shape == (1, SIZE)


@pytest.mark.parametrize("status", [429, 503])
async def test_overload_is_retried_after_the_servers_pause(server, embedder, clock, status):
    """A model that is loading or busy answers the next attempt."""
    server.misbehaviour, server.misbehave_times, server.retry_after = f"status_{status}", 1, "2"

    vectors = await embedder.embed(["x"], "query")

    assert vectors.shape == (1, SIZE)
    assert clock.slept == [2.0]


async def test_retry_never_outlasts_the_budget(server, embedder, clock):
    """Waiting for longer than the caller does helps nobody."""
    server.misbehaviour, server.retry_after = "status_503", "3600"

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")

    assert caught.value.detail == "status_503"
    assert clock.slept == []


@pytest.mark.parametrize(
    ("status", "said", "passed_on"),
    [
        pytest.param(503, "30", 30, id="overloaded"),
        pytest.param(429, "30", 30, id="too-many"),
        pytest.param(503, "86400", 300, id="bounded"),
        pytest.param(503, "Wed, 21 Oct 2026 07:28:00 GMT", None, id="date"),
        pytest.param(503, "0", None, id="at-once"),
        pytest.param(500, "30", None, id="no-overload"),
    ],
)
async def test_the_callers_are_told_the_servers_pause(server, embedder, status, said, passed_on):
    """Every router that asks again after a second keeps a loading model from ever being ready."""
    server.misbehaviour, server.retry_after = f"status_{status}", said

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")

    assert caught.value.retry_after_seconds == passed_on


async def test_retries_are_few_and_jittered(server, embedder, clock):
    """Routers that retry in step keep an overloaded server down."""
    server.misbehaviour = "status_503"

    with pytest.raises(Unavailable):
        await embedder.embed(["x"], "query")

    assert len(server.requests) == 4
    assert len(clock.slept) == 3
    assert len({pause / 2**attempt for attempt, pause in enumerate(clock.slept)}) == 3


async def test_error_body_is_cut(server, embedder):
    """A foreign body may be long, and may hold what the request held."""
    server.misbehaviour = "status_500"

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")

    assert len(str(caught.value)) < 256 + 64


async def test_closed_embedder_says_so(embedder):
    """A request that comes during the stop gets a 503, not a traceback."""
    await embedder.close()
    await embedder.close()

    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["x"], "query")

    assert caught.value.detail == "closed"


@pytest.mark.parametrize(
    "base", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/embeddings"]
)
def test_url_may_be_given_with_or_without_path(base):
    """Every server's documentation shows another part of the address."""
    assert embeddings_url(base) == "http://h:1/v1/embeddings"


def test_path_before_the_api_is_kept():
    """Servers stand behind gateways that tell them apart by path."""
    assert embeddings_url("https://gateway/models/e5") == "https://gateway/models/e5/v1/embeddings"


@pytest.mark.parametrize("base", [None, "", "h:1", "ftp://h", "http://", "http://h?key=1", "file:///etc/passwd"])
def test_unusable_url_is_refused_at_start(base):
    """The fault must come out when the router starts, with the setting's name."""
    with pytest.raises(InvalidInput, match="EMBEDDING_URL"):
        embeddings_url(base)
