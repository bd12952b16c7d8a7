"""The start-up probe, the readiness gate, and what happens when an embedder goes, comes back or is replaced."""

import asyncio
import random

import numpy as np
import pytest

from groundplane.errors import Unavailable
from groundplane_router.semantic import SemanticMonitor, SemanticOptions, SemanticState

GOOD = np.eye(3, 8, dtype=np.float32)
OTHER_MODEL = np.roll(GOOD, 4, axis=1)
RECHECK = 300.0


def failure(reason="embed_error", detail="unreachable"):
    return Unavailable("x", code="retrieval_unavailable", reason=reason, detail=detail)


class VirtualClock:
    """Time that stands still until `advance`."""

    def __init__(self):
        self.time = 1000.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self):
        return self.time + 1e9

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        sleeper = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.time + seconds, sleeper))
        await sleeper

    async def advance(self, seconds):
        self.time += seconds
        for due, sleeper in self.sleepers:
            if due <= self.time and not sleeper.done():
                sleeper.set_result(None)
        await settle()


async def settle():
    """Let every task run until it waits for the clock."""
    for _ in range(20):
        await asyncio.sleep(0)


class ScriptedProbe:
    """Answers what `answer` is at the time."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = 0

    async def probe_vectors(self):
        self.calls += 1
        answer = self.answer.pop(0) if isinstance(self.answer, list) else self.answer
        if isinstance(answer, Unavailable):
            raise answer
        return answer


class Bench:
    """A monitor with everything around it scripted."""

    def __init__(self, answer, **options):
        self.clock = VirtualClock()
        self.probe = ScriptedProbe(answer)
        self.changes: list[SemanticState] = []
        self.monitor = SemanticMonitor(
            self.probe,
            clock=self.clock,
            rng=random.Random(1),
            on_change=self.changes.append,
            options=SemanticOptions(recheck_seconds=RECHECK, **options),
        )

    @property
    def statuses(self):
        return [change.status for change in self.changes]


@pytest.fixture
async def bench():
    """Makes benches whose monitor runs."""
    tasks = []

    async def make(answer, **options):
        made = Bench(answer, **options)
        tasks.append(asyncio.create_task(made.monitor.run()))
        await settle()
        return made

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_before_the_first_probe_nothing_is_claimed():
    """A router that has not looked yet must report neither state, and not be ready."""
    bench = Bench(GOOD)

    assert bench.monitor.state.status == "pending"
    assert not bench.monitor.is_ready()


async def test_good_vectors_make_it_active_and_ready():
    """The one way to active."""
    bench = Bench(GOOD)

    state = await bench.monitor.probe_once()

    assert (state.status, state.reason, state.detail) == ("active", None, None)
    assert bench.monitor.is_ready()
    np.testing.assert_array_equal(bench.monitor.probe_vectors, GOOD)


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        pytest.param(failure(), "embed_error", "unreachable", id="unreachable"),
        pytest.param(failure("no_embedder", "not_configured"), "no_embedder", "not_configured", id="no-embedder"),
        pytest.param(failure("dimension_mismatch", "got_2"), "dimension_mismatch", "got_2", id="wrong-size"),
        pytest.param(failure("zero_vector", "zero_vector"), "zero_vector", "zero_vector", id="zero"),
        pytest.param(np.ones((3, 4), np.float32) / 2, "embed_error", "texts_not_told_apart", id="constant"),
        pytest.param([GOOD, OTHER_MODEL], "embed_error", "answers_not_repeatable", id="random"),
    ],
)
async def test_failed_probe_is_inactive_with_its_reason(answer, reason, detail):
    """An operator must see what to mend."""
    bench = Bench(answer)

    state = await bench.monitor.probe_once()

    assert (state.status, state.reason, state.detail) == ("inactive", reason, detail)


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        pytest.param(failure("dimension_mismatch", "got_2"), True, id="conclusive-wrong-size"),
        pytest.param(failure("no_embedder", "not_configured"), True, id="conclusive-no-embedder"),
        pytest.param(np.ones((3, 4), np.float32) / 2, True, id="conclusive-constant"),
        pytest.param(failure("embed_error", "unreachable"), False, id="inconclusive-unreachable"),
        pytest.param(failure("embed_error", "timeout"), False, id="inconclusive-timeout"),
    ],
)
async def test_gate_opens_at_the_first_conclusive_probe(answer, ready):
    """A server that is still loading its model is worth waiting for; a wrong setting is not."""
    bench = Bench(answer)

    await bench.monitor.probe_once()

    assert bench.monitor.is_ready() is ready


async def test_gate_opens_after_its_time_whatever_the_probe(bench):
    """Keyword search answers without an embedder, so a router must come up without one."""
    made = await bench(failure())
    await made.clock.advance(29.9)
    before = made.monitor.is_ready()
    await made.clock.advance(0.2)

    assert (before, made.monitor.is_ready()) == (False, True)


@pytest.mark.parametrize("answer", [failure(), failure("dimension_mismatch", "got_2")], ids=["down", "wrong-size"])
async def test_required_semantic_grounding_holds_the_gate(bench, answer):
    """Who requires it must never get a router that has never had it."""
    made = await bench(answer, require_semantic=True)
    await made.clock.advance(3600)
    before = made.monitor.is_ready()
    made.probe.answer = GOOD
    await made.clock.advance(3600)

    assert (before, made.monitor.is_ready()) == (False, True)


async def test_ready_router_stays_ready_when_the_embedder_goes(bench):
    """The gate is one of the start: taking every router out of service would take keyword search out too."""
    made = await bench(GOOD, require_semantic=True)
    made.probe.answer = failure()
    made.monitor.report_failure(failure())
    await made.clock.advance(3600)

    assert not made.monitor.state.is_active
    assert made.monitor.is_ready()


async def test_inactive_embedder_is_probed_until_it_works(bench):
    """It must come back without anybody's doing."""
    made = await bench(failure())
    made.probe.answer = GOOD
    await made.clock.advance(1)

    assert made.statuses == ["inactive", "active"]


async def test_pauses_grow_to_their_limit_and_differ(bench):
    """A server that is down must not be hammered, least of all by all routers in step."""
    made = await bench(failure())
    pauses = []
    for _ in range(12):
        due, _ = made.clock.sleepers[-1]
        pauses.append(due - made.clock.time)
        await made.clock.advance(pauses[-1] + 1e-6)

    assert 0.25 <= pauses[0] <= 0.5
    assert all(30 <= pause <= 60 for pause in pauses[-3:])
    assert len(set(pauses)) == len(pauses)


async def test_change_is_reported_once(bench):
    """One log line for each transition, not for each probe."""
    made = await bench(failure())
    for _ in range(5):
        await made.clock.advance(60)

    assert made.probe.calls > 3
    assert made.statuses == ["inactive"]


async def test_reported_failure_makes_it_inactive_at_once_and_probes_soon(bench):
    """The query that failed is the earliest sign, minutes before the next probe."""
    made = await bench(GOOD)
    made.monitor.report_failure(failure(detail="timeout"))
    at_once = made.monitor.state
    await settle()
    await made.clock.advance(0.5)

    assert (at_once.status, at_once.detail) == ("inactive", "timeout")
    assert made.statuses == ["active", "inactive", "active"]


@pytest.mark.parametrize(
    "reported",
    [failure("zero_vector", "zero_vector"), failure(detail="status_400"), failure(detail="not_finite")],
    ids=["zero", "refused-text", "nan"],
)
async def test_one_odd_query_does_not_switch_it_off_for_all(bench, reported):
    """Else any caller could take semantic grounding from every other tenant; the embedder is asked instead."""
    made = await bench(GOOD)
    calls = made.probe.calls
    made.monitor.report_failure(reported)
    await settle()
    await made.clock.advance(0.5)

    assert made.statuses == ["active"]
    assert made.probe.calls > calls


async def test_failing_queries_do_not_multiply_probes(bench):
    """An embedder that passes probes but fails each query is asked at most as often as the shortest pause allows."""
    made = await bench(GOOD)
    calls = made.probe.calls
    for _ in range(100):
        made.monitor.report_failure(failure(detail="status_400"))
        await settle()
        await made.clock.advance(0)

    assert made.probe.calls == calls


async def test_replaced_model_is_noticed(bench):
    """Nothing else verifies the model behind a URL; its answers would be compared with vectors of another space."""
    made = await bench(GOOD)
    made.probe.answer = OTHER_MODEL
    await made.clock.advance(RECHECK + 1)

    assert made.monitor.state.status == "inactive"
    assert (made.monitor.state.reason, made.monitor.state.detail) == ("embed_error", "embedder_changed")


async def test_first_model_coming_back_is_active_again(bench):
    """The vectors to compare with stay those of the first good probe."""
    made = await bench(GOOD)
    made.probe.answer = OTHER_MODEL
    await made.clock.advance(RECHECK + 1)
    made.probe.answer = GOOD
    await made.clock.advance(60)

    assert made.statuses == ["active", "inactive", "active"]


async def test_small_drift_is_the_same_model(bench):
    """Another build of the runtime moves values a little: that is no other model."""
    made = await bench(GOOD)
    drifted = GOOD + 0.05 * np.roll(GOOD, 3, axis=1)
    made.probe.answer = (drifted / np.linalg.norm(drifted, axis=1, keepdims=True)).astype(np.float32)
    await made.clock.advance(RECHECK + 1)

    assert made.probe.calls == 4
    assert made.statuses == ["active"]


async def test_slow_drift_ends_as_another_model(bench):
    """Each step is small, but the stored vectors stay where they are."""
    made = await bench(GOOD)
    for step in range(1, 8):
        drifted = GOOD + 0.08 * step * np.roll(GOOD, 3, axis=1)
        made.probe.answer = (drifted / np.linalg.norm(drifted, axis=1, keepdims=True)).astype(np.float32)
        await made.clock.advance(RECHECK + 1)

    assert made.statuses == ["active", "inactive"]


async def test_new_outage_begins_with_a_short_pause(bench):
    """Backoff belongs to one outage: the next one may be over in a second."""
    made = await bench(failure())
    for _ in range(10):
        await made.clock.advance(60)
    made.probe.answer = GOOD
    await made.clock.advance(60)
    made.monitor.report_failure(failure())
    await settle()
    await made.clock.advance(0.5)

    assert made.statuses == ["inactive", "active", "inactive", "active"]


async def test_state_says_since_when():
    """The age of a state is the first question of whoever is on call."""
    bench = Bench(failure())
    await bench.monitor.probe_once()
    since = bench.monitor.state.since
    bench.clock.time += 10
    await bench.monitor.probe_once()

    assert bench.monitor.state.since == since == bench.clock.now() - 10
