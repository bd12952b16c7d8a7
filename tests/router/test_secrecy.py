"""Texts, queries, ids, tenants and tokens appear in no log line and no metric, whatever happens to the request."""

import logging

import pytest

from groundplane.errors import Unavailable
from groundplane.process.logs import JsonFormatter
from tests.fakes.shard_server import ShardFault

CANARY = "kookaburra"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG)
    return lambda: [
        JsonFormatter().format(record) for record in caplog.records if record.name != "httpx"
    ]  # the test's own client


async def everything(running):
    """Send the canary through every field of every route, in good times and bad, and return the tokens used."""
    token = running.token()
    headers = {"Authorization": f"Bearer {token}", "X-Canary": CANARY, "content-type": "application/json"}
    http = running.http
    question = {"query": f"{CANARY} question", "filter": {"op": "eq", "key": CANARY, "value": CANARY}}
    memo = {"name": f"{CANARY}-name", "fingerprint": CANARY}
    document = {
        "id": f"{CANARY}/id",
        "text": f"{CANARY} text",
        "title": CANARY,
        "uri": CANARY,
        "metadata": {CANARY: CANARY},
    }
    for _ in range(2):
        await http.post("/v1/documents", json={"documents": [document]}, headers=headers)
        await http.post("/v1/evidence", json=question, headers=headers)
        await http.post("/v1/ground", json=question | memo, headers=headers)
        await http.put(f"/v1/memos/{CANARY}-name/{CANARY}", json={"response": CANARY}, headers=headers)
        await http.get(f"/v1/memos/{CANARY}-name/{CANARY}", headers=headers)
        await http.get(f"/v1/documents/{CANARY}/id", headers=headers)
        await http.delete(f"/v1/documents/{CANARY}/id", headers=headers)
        await http.get(f"/v1/documents?cursor={CANARY}&limit={CANARY}", headers=headers)
        await http.post("/v1/evidence", content=f'{{"{CANARY}": '.encode(), headers=headers)
        await http.post("/v1/evidence", json={CANARY: CANARY}, headers=headers)
        await http.get(f"/{CANARY}", headers=headers)
        await http.post("/v1/evidence", json=question, headers={"Authorization": f"Bearer {CANARY}"})
        running.shards["acme"].fault = ShardFault(500, CANARY, "bug")
        running.embedder.failure = None
    running.embedder.failure = Unavailable(f"{CANARY}", reason="embed_error", detail="unreachable")
    await http.post("/v1/evidence", json=question | {"query": f"another {CANARY}"}, headers=headers)
    return token


async def test_nothing_of_a_request_reaches_the_log(installation, lines):
    """Logs go to places where tenants' data must not."""
    token = await everything(installation)
    written = lines()

    assert len(written) > 20
    for line in written:
        for secret in (CANARY, token, token.split(".")[2], "t-acme", '"acme"', "acme-agent"):
            assert secret not in line, line


async def test_nothing_of_a_request_reaches_the_metrics(installation):
    """A label is read by everyone who may read metrics, and kept for months."""
    token = await everything(installation)
    scraped = (await installation.http.get("/metrics")).text

    for secret in (CANARY, token, "acme", "agents", "tenant_id"):
        assert secret not in scraped


async def test_a_bug_is_logged_without_the_request(installation, lines, monkeypatch):
    """The traceback is for us; what the caller sent is not."""
    monkeypatch.setattr("groundplane_router.hybrid.fuse", lambda *_, **__: 1 / 0)
    await installation.index(a=f"{CANARY} text")
    answer = await installation.evidence(f"{CANARY} text")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "division" not in answer.text
    (bug,) = [line for line in lines() if '"request_failed"' in line]
    assert "ZeroDivisionError" in bug
    (query_id,) = [word for word in answer.json()["detail"].split() if f'"query_id":"{word}"' in bug]
    assert sum(query_id in line for line in lines()) == 2, "the bug, and the line that every request has"
    assert CANARY not in bug


async def test_one_line_a_request_says_what_it_came_to(installation, lines):
    """Enough to find a slow or failed request by its id, and no more."""
    await installation.index(a="pumps and valves")
    answer = (await installation.ground("pumps and valves")).json()
    (line,) = [line for line in lines() if answer["query_id"] in line]

    assert '"route":"/v1/ground"' in line
    assert '"status":200' in line
    assert '"tier":"hybrid"' in line
    assert '"ms":' in line


async def test_the_route_in_the_log_is_the_pattern(installation, lines):
    """A path holds a document's id."""
    await installation.get("/v1/documents/some/id")

    assert any('"route":"/v1/documents/{id:path}"' in line for line in lines())
    assert not any("some/id" in line for line in lines())


async def test_errors_quote_no_foreign_text(installation):
    """A problem may be logged by whoever gets it."""
    installation.shards["acme"].fault = ShardFault(503, CANARY)
    answer = await installation.evidence("x")

    assert CANARY not in answer.text
