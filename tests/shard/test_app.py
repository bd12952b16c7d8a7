"""HTTP of the shard: every failure is a ShardProblem, every route but the probes needs its capability."""

import httpx
import msgspec
import pytest

from groundplane.errors import CorruptData, Superseded, Unavailable
from groundplane.process.bodies import Bodies
from groundplane.process.logs import Log
from groundplane.process.metrics import MetricsEndpoint, new_registry
from groundplane.tokens import SigningKey, capability_audience
from groundplane.wire.internal import (
    MAX_WRITE_BYTES,
    DocumentPage,
    SearchAnswer,
    ShardProblem,
    ShardStatus,
    StoredMemo,
    WriteResult,
)
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_shard.access import Access
from groundplane_shard.app import MAX_SEARCH_BYTES, ShardApi, build_app
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.mounted_keys import MountedKeys
from groundplane_shard.problems import ShardProblemHandler
from groundplane_shard.stores import MemoryStore
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.shard_parts import (
    INCARNATION,
    document,
    make_shard,
    memo,
    running,
    search_request,
    write_request,
)

AUDIENCE = capability_audience(CorpusKey("t-acme"), Incarnation(INCARNATION))
MSGPACK = {"content-type": "application/msgpack"}


class Installation:
    """A shard behind its routes, with keys of a router and an operator."""

    def __init__(self, directory):
        self.clock = VirtualClock()
        self.keys = {role: SigningKey.generate() for role in ("router", "operator")}
        folder = directory / "keys"
        folder.mkdir()
        for role, key in self.keys.items():
            (folder / f"{role}-{key.id}.pem").write_bytes(key.public_pem())
        registry = new_registry()
        self.metrics = ShardMetrics(registry)
        self.shard = make_shard(MemoryStore(), directory / "work", clock=self.clock, metrics=self.metrics)
        access = Access(MountedKeys(folder), AUDIENCE, self.clock)
        api = ShardApi(self.shard, access, self.metrics, Bodies(MAX_WRITE_BYTES))
        app = build_app(api, self.shard, MetricsEndpoint(registry), ShardProblemHandler(Log("shard")))
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shard")

    def headers(self, right):
        role = "operator" if right == "operate" else "router"
        token = self.keys[role].sign_capability(AUDIENCE, right, now=self.clock.now())
        return {"authorization": f"Bearer {token}", **MSGPACK}

    async def get(self, path, right="read", **params):
        return await self.client.get(path, params=params, headers=self.headers(right))

    async def post(self, path, body=b"", right="read"):
        content = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
        return await self.client.post(path, content=content, headers=self.headers(right))

    def counted(self, route):
        counter = self.metrics.requests
        return {name: counter.labels(route, name)._value.get() for name in ("ok", "refused", "unavailable")}


def problem(answer):
    return msgspec.msgpack.decode(answer.content, type=ShardProblem)


@pytest.fixture
async def stopped(tmp_path):
    """An installation whose shard is not running."""
    made = Installation(tmp_path)
    async with made.client:
        yield made


@pytest.fixture
async def installation(stopped, monkeypatch):
    monkeypatch.setattr("groundplane_shard.service.forget_loaded_modules", lambda: None)
    async with running(stopped.shard):
        yield stopped


async def test_every_route_answers_with_its_own_struct(installation):
    """The contract with the router."""
    written = await installation.post("/write", write_request(document("a"), memo("m")), "write")
    found = await installation.post("/search", search_request())
    page = await installation.get("/documents")
    stored = await installation.get("/memo", name="m", fingerprint="f")
    status = await installation.post("/snapshot", right="operate")

    assert msgspec.msgpack.decode(written.content, type=WriteResult).results[0].changed
    assert len(msgspec.msgpack.decode(found.content, type=SearchAnswer).candidates) == 1
    assert [row.doc_id for row in msgspec.msgpack.decode(page.content, type=DocumentPage).documents] == ["a"]
    assert msgspec.msgpack.decode(stored.content, type=StoredMemo).response == b"1"
    assert msgspec.msgpack.decode(status.content, type=ShardStatus).snapshot_sequence is not None
    assert {each.headers["content-type"] for each in (written, found, page, stored, status)} == {"application/msgpack"}


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        pytest.param("POST", "/search", "write", id="search"),
        pytest.param("POST", "/write", "read", id="write"),
        pytest.param("GET", "/documents", "operate", id="documents"),
        pytest.param("GET", "/document", "write", id="document"),
        pytest.param("GET", "/memo", "operate", id="memo"),
        pytest.param("GET", "/status", "write", id="status"),
        pytest.param("POST", "/snapshot", "write", id="snapshot"),
    ],
)
async def test_every_route_needs_its_own_right(stopped, method, path, right):
    """Without a capability 401, with another right 403, before the body is looked at."""
    without = await stopped.client.request(method, path)
    other = await stopped.client.request(method, path, headers=stopped.headers(right), content=b"\xc1")

    assert [(each.status_code, problem(each).code) for each in (without, other)] == [
        (401, "capability_denied"),
        (403, "capability_denied"),
    ]


@pytest.mark.parametrize(
    "limit", ["0", "1001", "-1", "x", "", "1.5", "9" * 5_000, "１００１"], ids=lambda text: text[:8] or "none"
)
async def test_a_limit_out_of_range_is_a_400(stopped, limit):
    """No text in a query may end in a 500; Python refuses to read a number of 5,000 digits."""
    answer = await stopped.get("/documents", limit=limit)

    assert (answer.status_code, problem(answer).field) == (400, "limit")


@pytest.mark.parametrize(("path", "field"), [("/document", "id"), ("/memo", "name")])
async def test_a_missing_parameter_is_named(stopped, path, field):
    """The caller learns what to add."""
    answer = await stopped.get(path)

    assert (answer.status_code, problem(answer).field) == (400, field)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"\xc1", 400, id="reserved"),
        pytest.param(b"\x91" * 2_000, 400, id="nested"),
        pytest.param(bytes(MAX_SEARCH_BYTES + 1), 413, id="large"),
    ],
)
async def test_a_body_that_is_no_request_is_refused(stopped, body, status):
    """Known causes never give 500: I21."""
    assert (await stopped.post("/search", body)).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/write", 405)], ids=["route", "method"]
)
async def test_what_no_route_takes_is_a_problem_too(stopped, method, path, status):
    """The router decodes every failure as a ShardProblem."""
    answer = await stopped.client.request(method, path)

    assert (answer.status_code, problem(answer).code) == (status, "http_error")
    assert ("allow" in answer.headers) is (status == 405)


async def test_probes_tell_alive_from_ready(stopped, monkeypatch):
    """A shard that restores for a minute must not be killed for it."""
    before = await stopped.client.get("/readyz")
    alive = await stopped.client.get("/healthz")
    async with running(stopped.shard):
        ready = await stopped.client.get("/readyz")

    assert (before.status_code, before.text) == (503, "starting\n")
    assert (alive.status_code, ready.status_code) == (200, 200)


async def test_a_shard_that_is_not_ready_says_when_to_come_again(stopped):
    """And never answers with an empty result: I17."""
    answers = [await stopped.post("/search", search_request()), await stopped.get("/status")]

    assert [(each.status_code, problem(each).code, each.headers["retry-after"]) for each in answers] == [
        (503, "not_ready", "1")
    ] * 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Unavailable("later"), "unavailable", id="unavailable"),
        pytest.param(Superseded("another"), "unavailable", id="superseded"),
        pytest.param(CorruptData("broken"), "unavailable", id="corrupt"),
    ],
)
async def test_outcomes_are_counted_by_what_the_caller_can_do(installation, monkeypatch, error, outcome):
    """A 503 is no refusal: an alert on refused requests would blame the router."""

    async def failing(_request):
        raise error

    monkeypatch.setattr(installation.shard, "search", failing)
    answer = await installation.post("/search", search_request())
    await installation.post("/search", b"")

    assert (answer.status_code, problem(answer).kind) == (503, {"unavailable": "unavailable", "superseded": "superseded", "corrupt_data": "corrupt_data"}[error.code])  # fmt: skip
    assert installation.counted("search") == {"ok": 0, "refused": 1, outcome: 1}


async def test_a_bug_is_a_500_that_names_its_route_and_no_text(installation, monkeypatch, caplog):
    """The log finds the bug; the caller learns nothing of the document."""

    async def wrong(_request):
        raise TypeError("secret text")

    monkeypatch.setattr(installation.shard, "search", wrong)
    answer = await installation.post("/search", search_request())
    logged = next(record for record in caplog.records if record.getMessage() == "request_failed")

    assert (answer.status_code, problem(answer).kind) == (500, "bug")
    assert "secret" not in answer.text
    assert logged.groundplane_fields["route"] == "/search"


async def test_metrics_are_true_when_they_are_read(installation):
    """Scraped right after a start, before any write."""
    await installation.post("/write", write_request(document("a")), "write")
    page = (await installation.client.get("/metrics")).text

    assert "corpus_documents 1.0" in page
    assert "corpus_ready 1.0" in page
    assert "corpus_wal_lag_records 1.0" in page
    assert "acme" not in page
