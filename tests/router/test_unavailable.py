"""Each way in which a search cannot be done has one reason, and none of them is an empty answer."""

import numpy as np
import pytest

from groundplane.errors import Unavailable
from groundplane_router.embedders import NoEmbedder
from groundplane_router.metrics import RouterMetrics
from tests.fakes.embedder import WordEmbedder
from tests.fakes.installation import Installation
from tests.fakes.shard_server import ShardFault

QUERY = "when is the invoice due"


async def fill(running):
    await running.index(invoice="the invoice is due thirty days after delivery")
    await running.index("platform-agent", handbook="when is the invoice due for everyone")


@pytest.fixture
async def filled(installation):
    await fill(installation)
    return installation


@pytest.fixture
async def hurried(tmp_path):
    """A router that waits half a second at most: for tests in which something hangs."""
    async with Installation(tmp_path, deadline_seconds=0.5) as running:
        await fill(running)
        yield running


async def expect(running, reason, detail=None, query=QUERY):
    """Evidence says 503 with the reason; ground says degraded with the same."""
    evidence = await running.evidence(query)
    ground = (await running.ground(query)).json()

    assert (evidence.status_code, evidence.json()["reason"]) == (503, reason)
    assert evidence.json()["code"] == "retrieval_unavailable"
    assert "retry-after" in evidence.headers
    assert (ground["status"], ground["tier"], ground["unavailable"]["reason"]) == ("degraded", "none", reason)
    if detail is not None:
        assert evidence.json()["unavailable_detail"] == ground["unavailable"]["detail"] == detail
    return evidence.json()


@pytest.mark.parametrize("state", ["corpus_suspended", "starting", "deleting"])
async def test_a_corpus_that_is_not_ready_is_no_corpus(filled, state):
    """The caller has a corpus, and it cannot be searched now: the directory knows why."""
    await filled.set_state("acme", state)

    problem = await expect(filled, "no_corpus", state)
    assert problem["searched"]["tenant"]["detail"] == state


async def test_a_platform_that_is_declared_but_not_ready_is_a_failed_search(filled):
    """`no_corpus` is said of the caller's own; an answer without the platform would be incomplete."""
    await filled.set_state("platform", "corpus_suspended")

    problem = await expect(filled, "search_failed", "platform_corpus_suspended")
    assert problem["searched"]["tenant"]["ok"] is True
    assert problem["searched"]["platform"]["ok"] is False


async def test_no_embedder(tmp_path):
    """The router runs without one; only the meaning is missing."""
    running = Installation(tmp_path)
    running.embedder = NoEmbedder()
    async with running:
        await expect(running, "no_embedder", "not_configured")


async def test_embedder_down(filled):
    """The commonest fault of all."""
    filled.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")

    await expect(filled, "embed_error", "unreachable")


async def test_embedder_slow(hurried):
    """A model that hangs must not hang its callers."""
    hurried.embedder.hangs = True

    await expect(hurried, "embed_error", "embed_timeout")


@pytest.mark.parametrize("name", ["acme", "platform"])
async def test_a_shard_that_hangs_is_a_failed_search(hurried, name):
    """Inside the deadline, whatever it does."""
    hurried.shards[name].fault = "slow"

    await expect(hurried, "search_failed", "shard_timeout")


async def test_dimension_mismatch(filled):
    """Vectors of two sizes are never compared."""
    filled.embedder.dimension = 128

    await expect(filled, "dimension_mismatch", "got_128_expected_256")


async def test_zero_vector(filled):
    """A vector without direction has no neighbours; the first k documents would be noise."""
    await expect(filled, "zero_vector", query="zerovector")


async def test_not_finite(filled, monkeypatch):
    """NaN compares with nothing and would spoil every score."""
    monkeypatch.setattr(WordEmbedder, "_vector", lambda self, text: np.full(self.dimension, np.nan, np.float32))

    await expect(filled, "embed_error", "not_finite")


@pytest.mark.parametrize("name", ["acme", "platform"])
@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        pytest.param("reset", "shard_unreachable", id="reset"),
        pytest.param("empty", "shard_bad_answer", id="empty-object"),
        pytest.param("garbage", "shard_bad_answer", id="not-msgpack"),
        pytest.param("foreign", "shard_foreign_incarnation", id="other-incarnation"),
        pytest.param(ShardFault(503, "not_ready"), "not_ready", id="not-ready"),
        pytest.param(ShardFault(503, "overloaded"), "overloaded", id="overloaded"),
        pytest.param(ShardFault(503, "superseded", "superseded"), "superseded", id="superseded"),
        pytest.param(
            ShardFault(409, "wrong_incarnation", "invalid_input"), "wrong_incarnation", id="wrong-incarnation"
        ),
        pytest.param(
            ShardFault(409, "analyser_mismatch", "invalid_input"), "analyser_mismatch", id="analyser-mismatch"
        ),
        pytest.param(ShardFault(401, "capability_denied", "denied"), "capability_denied", id="capability-denied"),
        pytest.param(ShardFault(500, "internal_error", "bug"), "shard_error", id="bug"),
        pytest.param(ShardFault(503, "code of the future"), "shard_error", id="unknown-code"),
    ],
)
async def test_a_shard_that_fails_is_a_failed_search(filled, name, fault, detail):
    """Whichever declared shard it is: what it would have said is missing."""
    filled.shards[name].fault = fault

    problem = await expect(filled, "search_failed", detail)
    scope = "tenant" if name == "acme" else "platform"
    assert problem["searched"][scope]["ok"] is False


@pytest.mark.parametrize("name", ["acme", "platform"])
async def test_a_shard_that_is_down_is_a_failed_search(filled, name):
    """Never an empty 200."""
    await filled.shards[name].stop()

    await expect(filled, "search_failed", "shard_unreachable")


async def test_an_older_epoch_is_a_failed_search(filled):
    """A superseded writer that still answers may lack acknowledged writes."""
    await filled.evidence(QUERY)
    filled.shards["acme"].epoch -= 1

    await expect(filled, "search_failed", "shard_superseded_epoch")


async def test_a_shard_that_is_back_is_asked_again(filled):
    """No failure is remembered beyond its request."""
    filled.shards["acme"].fault = "reset"
    await filled.evidence(QUERY)
    filled.shards["acme"].fault = None

    assert (await filled.evidence(QUERY)).status_code == 200


async def test_an_embedder_that_is_back_is_asked_again(filled):
    """The next question finds out, not the next probe."""
    filled.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")
    await filled.evidence(QUERY)
    filled.embedder.failure = None

    assert (await filled.evidence(QUERY)).status_code == 200


@pytest.mark.parametrize("name", ["acme", "platform"])
async def test_partial_returns_what_is_there_and_marks_what_is_missing(filled, name):
    """A caller that can live with half an answer must say so, and be told which half."""
    await filled.shards[name].stop()
    answer = await filled.evidence(QUERY, partial="allow")

    missing, present = ("tenant", "platform") if name == "acme" else ("platform", "tenant")
    assert answer.status_code == 200
    assert answer.json()["searched"][missing]["ok"] is False
    assert answer.json()["basis"][missing] is None
    assert {hit["scope"] for hit in answer.json()["hits"]} == {present}


async def test_partial_with_nothing_searched_is_unavailable(filled):
    """No half is not half."""
    await filled.shards["acme"].stop()
    await filled.shards["platform"].stop()

    assert (await filled.evidence(QUERY, partial="allow")).status_code == 503


async def test_partial_marks_a_suspended_corpus(filled):
    """The fault table: suspended is could-not-search too."""
    await filled.set_state("acme", "corpus_suspended")
    answer = await filled.evidence(QUERY, partial="allow")

    assert answer.status_code == 200
    assert answer.json()["searched"]["tenant"] | {"ms": 0} == {
        "ok": False, "documents": None, "sequence": None, "age_seconds": None, "ms": 0, "detail": "corpus_suspended",
    }  # fmt: skip


async def test_partial_is_for_evidence_only(filled):
    """Grounding has tiers to fall back on; half a search there would end in a false `nothing`."""
    assert (await filled.ground(QUERY, partial="allow")).status_code == 400


async def test_a_reading_shard_call_is_repeated_once_after_a_broken_connection(filled):
    """A planned restart closes idle connections; that alone must not fail a question."""
    filled.shards["acme"].fault, filled.shards["acme"].faulty_paths = "reset", {"/search"}
    filled.shards["acme"].seen.clear()
    await filled.evidence(QUERY)

    assert filled.shards["acme"].paths().count("/search") == 2


def test_every_reason_is_counted_from_the_start(tmp_path):
    """A reason that first appears when it first happens has no rate."""
    from groundplane.process.clock import SystemClock
    from groundplane.process.metrics import new_registry

    metrics = RouterMetrics(new_registry(), SystemClock())
    reasons = {sample.labels["reason"] for family in metrics.unavailable.collect() for sample in family.samples}
    assert reasons == {"no_corpus", "no_embedder", "embed_error", "dimension_mismatch", "zero_vector", "search_failed"}
