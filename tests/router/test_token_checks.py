"""Each token is checked once, nobody waits for ever, and "could not find out" is never "not valid"."""

import asyncio

import pytest

from groundplane.errors import Denied, Unavailable
from groundplane.process.metrics import new_registry
from groundplane.tokens import CallerToken
from groundplane_router.metrics import RouterMetrics
from groundplane_router.token_checks import CACHE_SECONDS, CHECKS_AT_ONCE, TokenChecks
from tests.fakes.clock import ManualClock

MAX_WAITING = 64


class SlowVerifier:
    """Answers when it is let go; `outcome` is what it says then."""

    def __init__(self):
        self.calls = 0
        self.at_once = self.most_at_once = 0
        self.go = asyncio.Event()
        self.outcome = CallerToken(subject="who", expires_at=float("inf"))

    async def verify(self, token):
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.go.wait()
        finally:
            self.at_once -= 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Setup:
    def __init__(self):
        self.clock = ManualClock()
        self.verifier = SlowVerifier()
        self.metrics = RouterMetrics(new_registry(), self.clock)
        self.checks = TokenChecks(self.verifier, self.clock, self.metrics, max_waiting=MAX_WAITING)

    def count(self, result):
        return self.metrics.registry.get_sample_value("grounding_token_checks_total", {"result": result})

    def ask(self, *tokens):
        return [asyncio.create_task(self.checks.subject_of(token)) for token in tokens]


@pytest.fixture
def setup():
    return Setup()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_with_one_token_share_one_check(setup):
    """An agent that starts sends a hundred requests at once."""
    asked = setup.ask(*["one"] * 50)
    await settle()
    setup.verifier.go.set()

    assert await asyncio.gather(*asked) == ["who"] * 50
    assert setup.verifier.calls == 1
    assert setup.count("accepted") == 1


async def test_a_request_that_gives_up_takes_nobody_with_it(setup):
    """The others wait for the same answer."""
    first, second = setup.ask("one", "one")
    await settle()
    first.cancel()
    await settle()
    setup.verifier.go.set()

    assert await second == "who"
    assert setup.verifier.calls == 1


async def test_an_answer_that_nobody_waits_for_any_more_is_kept(setup):
    """The caller will ask again."""
    (only,) = setup.ask("one")
    await settle()
    only.cancel()
    await settle()
    setup.verifier.go.set()
    await settle()
    await setup.checks.subject_of("one")

    assert setup.verifier.calls == 1


async def test_checks_at_once_are_bounded(setup):
    """The API server is not ours alone."""
    asked = setup.ask(*(f"token-{number}" for number in range(60)))
    await settle()
    setup.verifier.go.set()
    await asyncio.gather(*asked)

    assert setup.verifier.most_at_once == CHECKS_AT_ONCE
    assert setup.verifier.calls == 60


async def test_requests_that_wait_are_bounded(setup):
    """A token service that hangs must not take the places of callers who are known."""
    asked = setup.ask(*["one"] * MAX_WAITING)
    await settle()
    with pytest.raises(Unavailable) as refused:
        await setup.checks.subject_of("other")
    setup.verifier.go.set()
    await asyncio.gather(*asked)

    assert refused.value.code == "overloaded"
    assert await setup.checks.subject_of("other") == "who"


async def test_known_callers_are_served_while_the_token_service_hangs(setup):
    """They need nobody's word for a minute."""
    setup.verifier.go.set()
    await setup.checks.subject_of("known")
    setup.verifier.go.clear()
    waiting = setup.ask(*(f"token-{number}" for number in range(MAX_WAITING)))
    await settle()

    assert await setup.checks.subject_of("known") == "who"
    setup.verifier.go.set()
    await asyncio.gather(*waiting)


async def test_a_check_has_an_end(setup, monkeypatch):
    """503, and the next request tries again."""
    monkeypatch.setattr("groundplane_router.token_checks.CHECK_SECONDS", 0.02)
    with pytest.raises(Unavailable) as failure:
        await setup.checks.subject_of("one")
    setup.verifier.go.set()

    assert (failure.value.code, failure.value.detail) == ("identity_unavailable", "timeout")
    assert await setup.checks.subject_of("one") == "who"
    assert (setup.count("failed"), setup.count("accepted")) == (1, 1)


async def test_not_knowing_is_not_remembered(setup):
    """The token service is back a second later, and so are its callers."""
    setup.verifier.go.set()
    setup.verifier.outcome = Unavailable("x", detail="api_status_503", retry_after_seconds=7)
    with pytest.raises(Unavailable) as failure:
        await setup.checks.subject_of("one")
    setup.verifier.outcome = Denied("x")
    with pytest.raises(Denied):
        await setup.checks.subject_of("one")

    assert (failure.value.code, failure.value.detail) == ("identity_unavailable", "api_status_503")
    assert failure.value.retry_after_seconds == 7
    assert [setup.count(result) for result in ("failed", "refused", "accepted")] == [1, 1, 0]


async def test_a_known_caller_outlives_the_token_service_by_a_minute_at_most(setup):
    """A cache that goes on for ever would be an account that cannot be deleted."""
    setup.verifier.go.set()
    await setup.checks.subject_of("one")
    setup.verifier.outcome = Unavailable("x", detail="api_unreachable")
    setup.clock.advance(CACHE_SECONDS - 1)
    assert await setup.checks.subject_of("one") == "who"

    setup.clock.advance(1)
    with pytest.raises(Unavailable):
        await setup.checks.subject_of("one")


async def test_an_outage_is_logged_once_with_its_end(setup, caplog):
    """Not once a request."""
    caplog.set_level("INFO")
    setup.verifier.go.set()
    setup.verifier.outcome = Unavailable("x", detail="api_unreachable")
    for token in ("one", "two"):
        with pytest.raises(Unavailable):
            await setup.checks.subject_of(token)
    setup.verifier.outcome = CallerToken(subject="who", expires_at=float("inf"))
    await setup.checks.subject_of("one")

    assert [record.message for record in caplog.records] == ["identity_unavailable", "identity_available_again"]


async def test_tokens_are_kept_as_digests_alone(setup):
    """A core file, or a debugger, must not hold everybody's credentials."""
    setup.verifier.go.set()
    await setup.checks.subject_of("canary")

    assert "canary" not in repr([vars(setup.checks), vars(setup.checks._accepted)])


async def test_memory_of_accepted_tokens_is_bounded(setup):
    """Tokens are renewed all the time."""
    setup.verifier.go.set()
    for number in range(4_200):
        await setup.checks.subject_of(f"token-{number}")

    assert len(setup.checks._accepted._entries) == 4_096
