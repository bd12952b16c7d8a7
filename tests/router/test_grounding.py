"""The truth table of the three tiers, one test a row, and what an answer says beside its hits."""

import pytest

from groundplane.errors import Unavailable
from groundplane.wire.names import format_position
from tests.fakes.installation import INCARNATIONS, Installation
from tests.fakes.shard_server import ShardFault

NOWHERE = "completely unheard-of zebra talk"


@pytest.fixture
async def files(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "manual.txt").write_text("the zebra manual says: zebra talk is rare\n")
    async with Installation(tmp_path, corpus_directory=str(tmp_path / "files")) as running:
        await running.index(invoice="the invoice is due thirty days after delivery")
        yield running


@pytest.fixture
async def bare(installation):
    await installation.index(invoice="the invoice is due thirty days after delivery")
    return installation


async def put_memo(running, response="forty-two"):
    answer = await running.http.put("/v1/memos/n/f", json={"response": response}, headers=running.headers())
    assert answer.status_code == 200


def cut_off(running):
    running.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")


async def ground(running, query, **more):
    answer = await running.ground(query, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_memo_hit_is_grounded_by_memo_without_a_model_call(files):
    """Row 1: the cheapest tier, and the only one that needs no model."""
    await put_memo(files)
    calls = files.embedder.calls
    answer = await ground(files, "when is the invoice due", name="n", fingerprint="f")

    assert (answer["status"], answer["tier"], answer["memo"]["response"]) == ("grounded", "memo", "forty-two")
    assert files.embedder.calls == calls
    assert answer["searched"] == {"tenant": None, "platform": None, "local": None} | {
        "memo": answer["searched"]["memo"]
    }


async def test_hybrid_hits_are_grounded_by_hybrid(files):
    """Row 2."""
    answer = await ground(files, "when is the invoice due")

    assert (answer["status"], answer["tier"], answer["semantic"]) == ("grounded", "hybrid", True)
    assert answer["hits"][0]["doc_id"] == "invoice"
    assert answer["searched"]["local"] is None


async def test_nothing_without_an_engine_is_nothing(bare):
    """Row 3: searched completely, and there is nothing."""
    answer = await ground(bare, NOWHERE)

    assert (answer["status"], answer["tier"], answer["hits"]) == ("nothing", "none", [])
    assert answer["unavailable"] is None
    assert answer["searched"]["local"] is None


async def test_nothing_anywhere_is_nothing(files):
    """Row 3, with an engine that found nothing either."""
    answer = await ground(files, "quagga whispers")

    assert (answer["status"], answer["tier"]) == ("nothing", "none")
    assert answer["searched"]["local"]["ok"] is True


async def test_grep_hits_after_an_empty_search_are_grounded_by_grep(files):
    """Row 4: a keyword match, said to be one."""
    answer = await ground(files, NOWHERE)

    assert (answer["status"], answer["tier"]) == ("grounded", "grep")
    assert {(hit["scope"], hit["match"]) for hit in answer["hits"]} == {("local", "keyword")}
    assert answer["unavailable"] is None


async def test_a_failed_grep_after_an_empty_search_is_degraded(files):
    """Row 5: "nothing" would claim a search that was not done."""
    (files.directory / "files" / "manual.txt").unlink()
    (files.directory / "files").rmdir()
    answer = await ground(files, NOWHERE)

    assert (answer["status"], answer["tier"]) == ("degraded", "none")
    assert answer["searched"]["local"]["ok"] is False
    assert answer["searched"]["local"]["detail"] == "grep_root_unreadable"
    assert answer["unavailable"] is None


async def test_grep_hits_while_hybrid_is_unavailable_are_degraded(files):
    """Row 6: an answer, but not the one that the corpora would have given."""
    cut_off(files)
    answer = await ground(files, NOWHERE)

    assert (answer["status"], answer["tier"], answer["semantic"]) == ("degraded", "grep", False)
    assert answer["hits"]
    assert answer["unavailable"] == {"reason": "embed_error", "detail": "unreachable"}


async def test_nothing_by_grep_while_hybrid_is_unavailable_is_degraded(files):
    """Row 7, grep searched and empty."""
    cut_off(files)
    answer = await ground(files, "quagga whispers")

    assert (answer["status"], answer["tier"], answer["hits"]) == ("degraded", "none", [])
    assert answer["unavailable"]["reason"] == "embed_error"


async def test_no_engine_while_hybrid_is_unavailable_is_degraded(bare):
    """Row 7, no engine."""
    cut_off(bare)
    answer = await ground(bare, "when is the invoice due")

    assert (answer["status"], answer["tier"]) == ("degraded", "none")
    assert answer["unavailable"]["reason"] == "embed_error"
    assert answer["searched"]["tenant"] == {
        "ok": False,
        "documents": None,
        "sequence": None,
        "age_seconds": None,
        "ms": 0.0,
        "detail": "not_searched",
    }


async def test_a_failed_grep_while_hybrid_is_unavailable_is_degraded(files):
    """Row 7, grep failed too."""
    cut_off(files)
    (files.directory / "files" / "manual.txt").unlink()
    (files.directory / "files").rmdir()
    answer = await ground(files, NOWHERE)

    assert (answer["status"], answer["tier"], answer["searched"]["local"]["ok"]) == ("degraded", "none", False)


async def test_a_slow_shard_leaves_time_for_grep(tmp_path):
    """A tier that takes the whole deadline would leave none to fall back on."""
    (tmp_path / "manual.txt").write_text("the zebra manual says: zebra talk is rare\n")
    async with Installation(tmp_path, corpus_directory=str(tmp_path), deadline_seconds=1.5) as running:
        running.shards["acme"].fault = "slow"
        answer = await ground(running, NOWHERE)

    assert (answer["status"], answer["tier"]) == ("degraded", "grep")
    assert answer["unavailable"]["detail"] == "shard_timeout"


async def test_a_failed_memo_look_up_is_shown_and_is_no_miss(bare):
    """A miss that hides a failure would look like a memo that was never written."""
    await put_memo(bare)
    bare.shards["acme"].fault, bare.shards["acme"].faulty_paths = ShardFault(503, "not_ready"), {"/memo"}
    failed = await ground(bare, "when is the invoice due", name="n", fingerprint="f")
    bare.shards["acme"].fault = None
    missed = await ground(bare, "when is the invoice due", name="n", fingerprint="other")

    assert failed["tier"] == missed["tier"] == "hybrid"
    assert (failed["searched"]["memo"]["ok"], failed["searched"]["memo"]["detail"]) == (False, "not_ready")
    assert (missed["searched"]["memo"]["ok"], missed["searched"]["memo"]["detail"]) == (True, None)


async def test_a_platform_that_is_not_declared_is_null_and_nothing_is_missing(tmp_path):
    """An installation without a platform corpus is complete."""
    async with Installation(tmp_path, corpora=("acme",)) as alone:
        answer = await ground(alone, NOWHERE)

    assert (answer["status"], answer["searched"]["platform"], answer["basis"]["platform"]) == ("nothing", None, None)


async def test_basis_names_what_the_answer_rests_on(bare):
    """A memo made from this answer must be able to say so."""
    answer = await ground(bare, "when is the invoice due")

    assert answer["basis"]["tenant"] == {"incarnation": INCARNATIONS["acme"], "sequence": 1}
    assert answer["basis"]["platform"] == {"incarnation": INCARNATIONS["platform"], "sequence": 0}


async def test_evidence_without_hits_is_an_answer(bare):
    """200 and no hits is "searched, nothing to say"."""
    answer = await bare.evidence(NOWHERE)

    assert (answer.status_code, answer.json()["hits"]) == (200, [])
    assert answer.json()["searched"]["tenant"]["ok"] is True


async def test_a_reached_position_is_served(bare):
    """A caller sees what it has written."""
    position = (await bare.index(pump="restart the pump"))["position"]

    answer = await bare.evidence("restart the pump", min_position=position)
    assert answer.json()["hits"][0]["doc_id"] == "pump"


@pytest.mark.parametrize("ask", ["evidence", "ground"])
async def test_a_position_not_reached_is_unavailable(bare, ask):
    """An answer that may lack the caller's own write is none."""
    position = format_position(INCARNATIONS["acme"], 99)
    answer = await getattr(bare, ask)("the invoice", min_position=position)

    assert answer.status_code == 503
    assert (answer.json()["reason"], answer.json()["unavailable_detail"]) == ("search_failed", "sequence_not_reached")
    assert "retry-after" in answer.headers


@pytest.mark.parametrize("ask", ["evidence", "ground"])
async def test_a_position_of_another_life_is_a_conflict(bare, ask):
    """A restored corpus counts anew: waiting would never end."""
    answer = await getattr(bare, ask)("x", min_position=format_position(INCARNATIONS["globex"], 1))

    assert (answer.status_code, answer.json()["code"]) == (409, "position_of_other_incarnation")


async def test_only_the_own_shard_is_asked_for_the_position(bare):
    """Sequences of two corpora have nothing to do with each other."""
    position = (await bare.index(pump="restart the pump"))["position"]

    assert (await bare.evidence("restart the pump", min_position=position)).status_code == 200
    (search,) = [message for _, path, message in bare.shards["platform"].seen if path == "/search"]
    assert search.min_sequence == 0
