"""The age of what a shard knows: small while its store answers, growing while it does not, written to or idle."""

import pytest

from groundplane_shard.committer import CONFIRM_SECONDS
from tests.shard.shard_parts import (
    LAYOUT,
    document,
    make_shard,
    outcome,
    parts,
    running,
    search_request,
    serving_of,
    until,
    write_request,
)
from tests.support.failing_store import failing, nothing

SLEEPERS = 2  # of an idle shard: one for snapshots, one for its age


@pytest.fixture
def metrics():
    return parts().metrics


@pytest.fixture
async def shard(store, tmp_path, clock, metrics):
    async with running(make_shard(store, tmp_path / "work", clock=clock, metrics=metrics)) as opened:
        await opened.write(write_request(document("a")))
        await until(lambda: clock.sleeping == SLEEPERS)
        yield opened


async def let_pass(clock, seconds):
    """Move the time second by second, and let the shard do each time what is due."""
    for _ in range(round(seconds)):
        clock.advance(1.0)
        await until(lambda: clock.sleeping == SLEEPERS)


async def test_an_idle_shard_asks_its_store_now_and_then_and_stays_young(shard, store, clock):
    """Else nobody could tell a corpus that nothing was written to from one that is cut off."""
    store.calls.clear()
    ages = []
    for _ in range(60):
        await let_pass(clock, 1)
        ages.append(shard.status().age_seconds)

    assert max(ages) <= CONFIRM_SECONDS
    assert [(call.verb, call.key) for call in store.calls] == [("get", LAYOUT.manifest)] * round(60 / CONFIRM_SECONDS)


async def test_a_write_is_as_good_as_asking(shard, store, clock):
    """A shard under load makes no request that it can do without."""
    store.calls.clear()
    for number in range(10):
        await let_pass(clock, CONFIRM_SECONDS - 1)
        await shard.write(write_request(document(f"b{number}")))

    assert {call.verb for call in store.calls} == {"create"}
    assert shard.status().age_seconds == 0


@pytest.mark.parametrize("failure", ["refused", "vanished"])
async def test_while_the_store_is_away_every_answer_says_how_old_it_is(shard, store, clock, metrics, failure):
    """Whoever reads must be able to tell: the store may hold by now what this process does not know of."""
    store.rule = lambda _: failure
    await let_pass(clock, 60)
    shard.observe()
    answer = await shard.search(search_request())

    assert answer.statistics.documents == 1
    assert answer.age_seconds == shard.status().age_seconds == metrics.age_seconds._value.get() == 60


async def test_an_age_ends_when_the_store_is_back(shard, store, clock):
    """Nobody has to write for that."""
    store.rule = lambda _: "refused"
    await let_pass(clock, 60)
    store.rule = nothing
    await let_pass(clock, CONFIRM_SECONDS)

    assert shard.status().age_seconds == 0


async def test_an_age_grows_on_after_an_unknown_outcome(shard, store, clock):
    """Writes are suspended then, and what is served is the last certain state."""
    store.rule = failing("vanished", "create", "get")
    await outcome(shard.write(write_request(document("b"))))
    await until(lambda: shard.status().detail is not None)
    clock.advance(7.0)

    assert (await shard.search(search_request())).age_seconds == 7


async def test_an_idle_shard_finds_that_another_process_took_over(shard, store, tmp_path, clock):
    """Nobody writes to it, so nothing else would tell it that its answers are out of date: I5."""
    async with running(make_shard(store.store, tmp_path / "other")) as other:
        await other.write(write_request(document("b")))
        clock.advance(CONFIRM_SECONDS)
        await until(lambda: shard.unready_detail == "superseded")


async def test_asking_is_no_write(shard, clock, metrics):
    """The log does not grow by it, and the time of commits is not made to look better."""
    sequence = shard.status().sequence
    commits = metrics.commit_seconds._sum.get(), serving_of(shard)._parts.metrics.last_fsync._value.get()
    await let_pass(clock, 60)

    assert shard.status().sequence == sequence
    assert commits == (metrics.commit_seconds._sum.get(), metrics.last_fsync._value.get())
