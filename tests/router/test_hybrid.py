"""An answer that cannot be is no answer: one wrong number from a shard must not become a ranking."""

import msgspec
import pytest

from groundplane.wire.internal import Candidate, Statistics
from tests.fakes.shard_server import ShardFault

QUERY = "when is the invoice due"


@pytest.fixture
async def filled(installation):
    await installation.index(invoice="the invoice is due thirty days after delivery")
    await installation.index("platform-agent", rules="when is the invoice due for everyone")
    return installation


def replace_candidate(**changed):
    def tamper(answer):
        (candidate,) = answer.candidates
        return msgspec.structs.replace(answer, candidates=[msgspec.structs.replace(candidate, **changed)])

    return tamper


def replace_statistics(*counts):
    return lambda answer: msgspec.structs.replace(answer, statistics=Statistics(*counts))


IMPOSSIBLE = [
    pytest.param(replace_candidate(cosine=float("nan")), id="cosine-nan"),
    pytest.param(replace_candidate(cosine=float("inf")), id="cosine-infinite"),
    pytest.param(replace_candidate(cosine=1.5), id="cosine-above-one"),
    pytest.param(replace_candidate(cosine=None), id="no-cosine"),
    pytest.param(replace_candidate(term_frequencies=(1,)), id="frequencies-of-other-terms"),
    pytest.param(replace_candidate(term_frequencies=(-1, 1, 1, 1, 1)), id="negative-frequency"),
    pytest.param(replace_candidate(length=-1), id="negative-length"),
    pytest.param(replace_candidate(chunk=msgspec.Raw(b"\x80")), id="chunk-of-another-shape"),
    pytest.param(replace_statistics(1, 1, 8, (1,)), id="counts-of-other-terms"),
    pytest.param(replace_statistics(1, 1, 8, (2, 1, 1, 1, 1)), id="term-in-more-chunks-than-there-are"),
    pytest.param(replace_statistics(1, -1, 8, (0, 0, 0, 0, 0)), id="negative-count"),
    pytest.param(replace_statistics(2, 1, 8, (1, 1, 1, 1, 1)), id="more-documents-than-chunks"),
    pytest.param(replace_statistics(0, 0, 0, (0, 0, 0, 0, 0)), id="a-candidate-of-an-empty-corpus"),
    pytest.param(lambda answer: msgspec.structs.replace(answer, candidates=[]), id="no-neighbour-of-any-chunk"),
    pytest.param(lambda answer: msgspec.structs.replace(answer, sequence=-1), id="older-than-asked-for"),
]


@pytest.mark.parametrize("tamper", IMPOSSIBLE)
@pytest.mark.parametrize("name", ["acme", "platform"])
async def test_an_impossible_answer_is_a_failed_search(filled, name, tamper):
    """NaN sorts anywhere, and a negative count makes the other shard's scores wrong too."""
    filled.shards[name].tamper = tamper
    answer = await filled.evidence(QUERY)

    assert (answer.status_code, answer.json()["reason"]) == (503, "search_failed")
    assert answer.json()["unavailable_detail"] == "shard_bad_answer"


async def test_a_shard_that_has_not_reached_the_position_is_no_answer(filled):
    """Read your writes: an answer from before the write is not "nothing"."""
    position = (await filled.index(later="a document written a moment ago"))["position"]
    filled.shards["acme"].tamper = lambda answer: msgspec.structs.replace(answer, sequence=answer.sequence - 1)
    answer = await filled.evidence(QUERY, min_position=position)

    assert (answer.status_code, answer.json()["unavailable_detail"]) == (503, "shard_bad_answer")


async def test_each_scope_says_the_age_of_what_was_searched(filled):
    """A shard whose store is away goes on answering; whoever asks must be able to tell."""
    filled.shards["acme"].age_seconds, filled.shards["platform"].age_seconds = 61.5, 0.25
    searched = (await filled.evidence(QUERY)).json()["searched"]
    corpus = (await filled.get("/v1/corpus")).json()

    assert [searched[scope]["age_seconds"] for scope in ("tenant", "platform")] == [61.5, 0.25]
    assert [corpus[part]["age_seconds"] for part in ("corpus", "platform")] == [61.5, 0.25]


async def test_a_filter_may_leave_no_candidate(filled):
    """Then there is nothing to say, and it was searched."""
    for shard in filled.shards.values():
        shard.tamper = lambda answer: msgspec.structs.replace(answer, candidates=[])
    answer = await filled.evidence(QUERY, filter={"op": "eq", "key": "trade", "value": "none"})

    assert (answer.status_code, answer.json()["hits"]) == (200, [])


async def test_the_query_is_embedded_once_for_both_shards(filled):
    """The model is the most expensive stage."""
    calls = filled.embedder.calls
    await filled.evidence("another question")

    assert filled.embedder.calls == calls + 1


async def test_both_shards_are_asked_for_the_same(filled):
    """Else their candidates could not be compared."""
    await filled.evidence(QUERY, k=7, filter={"op": "eq", "key": "kind", "value": "x"})
    asked = [
        msgspec.structs.replace(message, incarnation="", embedding_id=None, deadline_ms=1)
        for name in ("acme", "platform")
        for _, path, message in filled.shards[name].seen
        if path == "/search"
    ]

    assert asked[0] == asked[1]
    assert asked[0].window == 28


async def test_an_identity_that_changed_is_looked_up_again_once(filled):
    """The first write to an empty corpus fixes it behind the router's back."""
    await filled.evidence(QUERY)
    shard = filled.shards["acme"]
    shard.embedding = msgspec.structs.replace(shard.embedding, id="f" * 32)
    shard.seen.clear()
    answer = await filled.evidence(QUERY)

    assert answer.status_code == 200
    assert shard.paths() == ["/search", "/status", "/search"]


async def test_a_filter_that_the_shard_refuses_is_the_callers_fault(filled):
    """400, with the shard's own words: they name the field."""
    filled.shards["acme"].fault = ShardFault(400, "invalid_input", "invalid_input")
    filled.shards["acme"].faulty_paths = {"/search"}
    answer = await filled.evidence(QUERY)

    assert answer.status_code == 400


def test_candidates_travel_as_arrays():
    """Names of fields would double the size of an answer."""
    packed = msgspec.msgpack.encode(Candidate(0.5, (1,), 3, msgspec.Raw(b"\xc0")))

    assert packed[0] == 0x94
