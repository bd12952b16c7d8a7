"""Readiness, load shedding, and the order in which the router starts and stops."""

import asyncio
import signal

import pytest

from groundplane.errors import Unavailable
from groundplane_router import assembly
from tests.fakes.installation import Installation


async def test_ready_after_the_first_conclusive_probe(installation):
    """Traffic may come once it is known whether semantic grounding works."""
    await installation.until(installation.is_ready)

    assert (await installation.http.get("/readyz")).json() == {"status": "ready", "waits_for": None}


async def test_not_ready_while_the_embedder_has_not_answered(tmp_path):
    """A gate at start: the first callers would all be degraded."""
    running = Installation(tmp_path)
    running.embedder.hangs = True
    async with running:
        answer = await running.http.get("/readyz")

    assert (answer.status_code, answer.json()["waits_for"]) == (503, "semantic_probe")


async def test_ready_although_semantic_grounding_is_inactive(tmp_path):
    """Keyword search still answers: a wrong size is known, and waiting mends nothing."""
    running = Installation(tmp_path)
    running.embedder.dimension = 128
    async with running:
        await running.until(running.is_ready)


async def test_not_ready_without_semantic_grounding_where_it_is_required(tmp_path):
    """Some would rather have no answer than one by keywords."""
    running = Installation(tmp_path, require_semantic=True)
    running.embedder.dimension = 128
    async with running:

        async def has_failed():
            return 'probe_failures_total{reason="dimension_mismatch"} 1.0' in (await running.http.get("/metrics")).text

        await running.until(has_failed)
        answer = await running.http.get("/readyz")

    assert (answer.status_code, answer.json()["waits_for"]) == (503, "semantic_probe")


async def test_a_loop_that_ends_by_a_bug_ends_the_process(caplog, monkeypatch):
    """A router that no longer sees its directory change would go on with withdrawn grants."""
    raised: list[signal.Signals] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)

    async def fail():
        raise ZeroDivisionError

    loop = asyncio.create_task(fail())
    loop.add_done_callback(assembly._stop_on_bug)
    await asyncio.gather(loop, return_exceptions=True)
    await asyncio.sleep(0)

    assert raised == [signal.SIGTERM]
    assert [record.message for record in caplog.records] == ["background_loop_failed"]


async def test_never_unready_again(installation):
    """A gate at start only: else one embedder's outage would take every router out of service."""
    await installation.until(installation.is_ready)
    installation.embedder.failure = Unavailable("x", reason="embed_error", detail="unreachable")
    await installation.evidence("x")

    assert await installation.is_ready()


async def test_not_ready_without_a_directory(tmp_path):
    """Every caller would be refused."""
    running = Installation(tmp_path)
    running.has_directory = False
    async with running:
        answer = await running.http.get("/readyz")

    assert (answer.status_code, answer.json()["waits_for"]) == (503, "directory")


async def test_alive_whatever_is_missing(tmp_path):
    """Killing a process that waits for its embedder starts the wait anew."""
    running = Installation(tmp_path)
    running.embedder.hangs = True
    running.has_directory = False
    async with running:
        assert (await running.http.get("/healthz")).status_code == 200


async def test_one_request_too_many_is_refused_early(tmp_path):
    """The well-behaved keep their latency; the rest learn when to come back."""
    running = Installation(tmp_path, max_requests=2)
    async with running:
        await running.until(running.is_ready)
        running.embedder.hangs = True
        busy = [asyncio.create_task(running.evidence(f"q {number}")) for number in range(2)]

        async def both_wait():
            return running.embedder.waiting == 2

        await running.until(both_wait)
        answer = await running.evidence("one more")
        health = await running.http.get("/healthz")
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert health.status_code == 200


async def test_a_question_is_answered_within_its_deadline(tmp_path):
    """Whatever hangs: the caller has a loop of its own to keep."""
    running = Installation(tmp_path, deadline_seconds=0.3)
    async with running:
        running.shards["acme"].fault = "slow"
        started = running.clock.monotonic()
        answer = await running.ground("x", name="n", fingerprint="f")
        seconds = running.clock.monotonic() - started

    assert answer.json()["status"] == "degraded"
    assert seconds < 3.0  # the shard never answers; a loaded machine may take a while to notice


async def test_a_slow_body_is_cut_off(installation, monkeypatch):
    """A place that a slow sender holds is one that others need."""
    monkeypatch.setattr("groundplane.process.bodies.BODY_SECONDS", 0.05)

    async def endless():
        yield b"{"
        await asyncio.Event().wait()

    headers = installation.headers() | {"content-type": "application/json"}
    answer = await installation.http.post("/v1/evidence", content=endless(), headers=headers)

    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
async def test_what_needs_no_token_says_nothing_of_tenants(installation, path):
    """Anyone in the cluster may read it."""
    await installation.index(a="pumps and valves")
    answer = await installation.http.get(path)

    assert answer.status_code in {200, 503}
    for word in ("acme", "globex", "pumps"):
        assert word not in answer.text
