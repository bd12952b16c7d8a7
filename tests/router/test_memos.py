"""Memos are exact, carry what they rest on, and say when that has moved on."""

import pytest

from tests.fakes.installation import INCARNATIONS, Installation


async def put(running, body=None, subject="acme-agent", path="/v1/memos/price/v1"):
    return await running.http.put(path, json=body or {"response": {"eur": 12}}, headers=running.headers(subject))


async def ask(running, subject="acme-agent", **more):
    return (await running.ground("what is the price", subject, name="price", fingerprint="v1", **more)).json()


@pytest.fixture
async def stored(installation):
    await installation.index(list="the price is twelve euros")
    assert (await put(installation)).status_code == 200
    return installation


async def test_a_fresh_memo_is_not_stale(stored):
    """Nothing has changed since."""
    answer = await ask(stored)

    assert (answer["tier"], answer["memo"]["stale"], answer["memo"]["response"]) == ("memo", False, {"eur": 12})


@pytest.mark.parametrize("subject", ["acme-agent", "platform-agent"])
async def test_a_memo_is_stale_once_either_corpus_has_changed(stored, subject):
    """What it says may no longer be so: an exact hit still, but a marked one."""
    await stored.index(subject, news="prices have changed")
    answer = await ask(stored)

    assert (answer["tier"], answer["status"], answer["memo"]["stale"]) == ("memo", "grounded", True)


async def test_another_memo_makes_none_stale(stored):
    """The basis is the documents, not the log."""
    await put(stored, path="/v1/memos/other/v1")

    assert (await ask(stored))["memo"]["stale"] is False


async def test_staleness_is_unknown_while_the_platform_cannot_be_asked(stored):
    """Neither true nor false would be honest."""
    await stored.shards["platform"].stop()
    answer = await ask(stored)

    assert (answer["tier"], answer["memo"]["stale"]) == ("memo", None)


async def test_a_changed_own_corpus_is_stale_whatever_the_platform_says(stored):
    """One known difference is enough."""
    await stored.index(news="prices have changed")
    await stored.shards["platform"].stop()

    assert (await ask(stored))["memo"]["stale"] is True


async def test_fresh_refuses_a_stale_memo(stored):
    """The caller would rather have a search."""
    await stored.index(news="prices have changed")
    answer = await ask(stored, fresh=True)

    assert answer["tier"] == "hybrid"
    assert (answer["searched"]["memo"]["ok"], answer["searched"]["memo"]["detail"]) == (True, "stale")


async def test_fresh_takes_a_memo_that_is_not_stale(stored):
    """It is as good as a search, and cheaper."""
    assert (await ask(stored, fresh=True))["tier"] == "memo"


async def test_fresh_refuses_a_memo_of_which_nobody_knows(stored):
    """Doubt is not freshness."""
    await stored.shards["platform"].stop()
    answer = await ask(stored, fresh=True)

    assert answer["tier"] == "none"
    assert (answer["searched"]["memo"]["ok"], answer["searched"]["memo"]["detail"]) == (False, "freshness_unknown")


async def test_a_memo_rests_on_the_basis_it_was_put_with(stored):
    """An answer made before a change must not look as if it knew of it."""
    basis = (await stored.evidence("what is the price")).json()["basis"]
    await stored.index(news="prices have changed")
    await put(stored, {"response": 1, "basis": basis})
    answer = await ask(stored)

    assert (answer["memo"]["stale"], answer["memo"]["basis"]) == (True, basis)


async def test_a_basis_without_the_own_corpus_is_refused(stored):
    """It would be filled in with a state that the answer never saw."""
    answer = await put(stored, {"response": 1, "basis": {"tenant": None, "platform": None}})

    assert (answer.status_code, answer.json()["field"]) == (400, "basis.tenant")


async def test_putting_without_basis_fails_while_the_platform_cannot_be_asked(stored):
    """Half a basis could never be compared."""
    await stored.shards["platform"].stop()

    assert (await put(stored)).status_code == 503


async def test_a_platform_that_appears_or_goes_makes_memos_stale(tmp_path):
    """The answer rested on another set of corpora."""
    async with Installation(tmp_path) as running:
        own = {"tenant": {"incarnation": INCARNATIONS["acme"], "sequence": 0}, "platform": None}
        await put(running, {"response": 1, "basis": own})

        assert (await ask(running))["memo"]["stale"] is True


async def test_the_platforms_own_memo_rests_on_the_platform_alone(installation):
    """Its subjects read no other corpus."""
    await put(installation, subject="platform-agent")
    answer = await ask(installation, "platform-agent")

    assert (answer["tier"], answer["memo"]["stale"], answer["memo"]["basis"]["tenant"]) == ("memo", False, None)


async def test_get_put_delete_round_trip(stored):
    """What was put is what comes back, then nothing does."""
    path = "/v1/memos/price/v1"
    assert (await stored.get(path)).json()["response"] == {"eur": 12}
    deleted = await stored.http.delete(path, headers=stored.headers())
    again = await stored.http.delete(path, headers=stored.headers())

    assert (deleted.json()["found"], again.json()["found"]) == (True, False)
    assert (await stored.get(path)).status_code == 404


async def test_a_response_comes_back_byte_for_byte(stored):
    """A memo is the caller's: numbers and spaces in it are not ours to change."""
    body = b'{"response": {"n": 1.50, "big": 12345678901234567890123, "s": "\\u00e4"}}'
    headers = stored.headers() | {"content-type": "application/json"}
    await stored.http.put("/v1/memos/price/v1", content=body, headers=headers)
    answer = await stored.get("/v1/memos/price/v1")

    assert b'{"n": 1.50, "big": 12345678901234567890123, "s": "\\u00e4"}' in answer.content


async def test_a_look_up_that_lags_behind_the_position_is_a_failure(stored):
    """A caller that has just written must not be answered from before."""
    shard = stored.shards["acme"]
    position = (await stored.index(more="text"))["position"]
    shard.sequence -= 1
    answer = await stored.ground("x", name="price", fingerprint="v1", min_position=position)

    assert answer.status_code == 503
    assert answer.json()["searched"]["memo"]["detail"] == "sequence_not_reached"
