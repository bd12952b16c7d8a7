"""Two real shards behind a real router: what only the whole can get wrong."""

import contextlib
import time
from urllib.parse import quote

import httpx
import msgspec
import pytest

from groundplane.wire.public import EvidenceAnswer, GroundAnswer
from tests.fakes.embedding_server import EmbeddingServer
from tests.support.processes import RouterProcess, ShardProcess, running

pytestmark = pytest.mark.process

DIMENSION = 16
ACME, GLOBEX, PLATFORM = "t-acme", "t-globex", "platform"
CANARY = "zirconium-parrot"


class Installation:
    """A router before three shards; every corpus holds one document of its own."""

    def __init__(self, root, embedder):
        self.root = root
        self.embedder = embedder
        self.shards = {key: ShardProcess(root, key=key) for key in (ACME, GLOBEX, PLATFORM)}
        self.settings = {"EMBEDDING_URL": embedder.url, "MODEL_EMBEDDING_DIM": str(DIMENSION)}
        self.router = RouterProcess(root, list(self.shards.values()), self.settings)

    def post(self, path, key, **body):
        return httpx.post(f"{self.router.url}{path}", json=body, headers=self.router.headers(key), timeout=20.0)

    def index(self, key, doc_id, text, **more):
        answer = self.post("/v1/documents", key, documents=[{"id": doc_id, "text": text, **more}])
        assert answer.status_code == 200, answer.text
        return answer.json()["position"]

    def evidence(self, key, query, **more):
        return self.post("/v1/evidence", key, query=query, **more)


def end(process):
    if process.is_running:
        process.kill()


@pytest.fixture
def installation(tmp_path):
    with contextlib.ExitStack() as processes:
        embedder = processes.enter_context(EmbeddingServer(DIMENSION))
        installation = Installation(tmp_path, embedder)
        for shard in installation.shards.values():
            shard.start()
            processes.callback(end, shard)
        for shard in installation.shards.values():
            shard.await_ready()
        installation.router.start()
        processes.callback(end, installation.router)
        installation.router.await_ready()
        installation.index(ACME, "own", f"the {CANARY} of acme")
        installation.index(GLOBEX, "own", "the invoice of globex")
        installation.index(PLATFORM, "shared", "the handbook of everybody")
        yield installation


def test_a_request_with_two_tokens_is_refused_whoever_they_name(installation):
    """A proxy that checked the first and a router that takes the second would open one tenant to another."""
    headers = [*installation.router.headers(ACME).items(), *installation.router.headers(GLOBEX).items()]
    answer = httpx.get(f"{installation.router.url}/v1/corpus", headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_http")


def test_a_stopped_shard_is_never_an_empty_answer_and_partial_marks_it(installation):
    """Promise 2: a shard that is down is never "nothing to say"."""
    installation.shards[PLATFORM].kill()
    refused = installation.evidence(ACME, "handbook")
    partial = installation.evidence(ACME, CANARY, partial="allow")
    grounded = installation.post("/v1/ground", ACME, query="handbook")

    assert (refused.status_code, refused.json()["reason"]) == (503, "search_failed")
    assert "retry-after" in refused.headers
    answer = msgspec.json.decode(partial.content, type=EvidenceAnswer)
    assert answer.searched.platform is not None
    assert answer.searched.tenant is not None
    assert (answer.searched.tenant.ok, answer.searched.platform.ok) == (True, False)
    assert [hit.doc_id for hit in answer.hits] == ["own"]
    assert grounded.json()["status"] == "degraded"

    installation.shards[PLATFORM].start()
    installation.shards[PLATFORM].await_ready()
    assert installation.evidence(ACME, "handbook").status_code == 200


def test_no_way_of_naming_another_tenant_brings_its_text(installation):
    """Promise 3, over real processes: header, body, query string, filter, path, memo name and metadata."""
    router, headers = installation.router, installation.router.headers(GLOBEX)
    spoofed = {**headers, "X-Tenant-Id": "acme", "X-Scope-OrgID": "acme", "X-Groundplane-Tenant": ACME}
    filters = [{"op": "eq", "key": "tenant", "value": "acme"}, {"op": "prefix", "key": "doc_id", "value": "own"}]
    answers = [
        httpx.post(f"{router.url}/v1/ground?tenant=acme", json={"query": CANARY}, headers=spoofed),
        *(
            httpx.post(f"{router.url}/v1/evidence", json={"query": CANARY, "filter": one, "k": 50}, headers=headers)
            for one in filters
        ),
        httpx.post(f"{router.url}/v1/evidence", json={"query": CANARY, "tenant": "acme"}, headers=headers),
        httpx.get(f"{router.url}/v1/documents/own", headers=spoofed),
        httpx.get(f"{router.url}/v1/documents/..%2F..%2F{ACME}%2Fown", headers=headers),
        httpx.get(f"{router.url}/v1/memos/{ACME}/own", headers=headers),
        httpx.get(f"{router.url}/v1/documents?tenant=acme", headers=spoofed),
        httpx.get(f"{router.url}/v1/corpus", headers=spoofed),
    ]

    assert all(CANARY not in answer.text for answer in answers)
    assert all(answer.status_code < 500 for answer in answers)
    assert CANARY in installation.evidence(ACME, CANARY).text


def test_a_write_is_seen_at_its_position(installation):
    """I18: after an acknowledgement, a question that asks for its position sees it."""
    position = installation.index(ACME, "new", "a brand new centrifuge")
    answer = installation.evidence(ACME, "centrifuge", min_position=position)

    assert "new" in [hit["doc_id"] for hit in answer.json()["hits"]]
    assert installation.evidence(GLOBEX, "centrifuge", min_position=position).status_code == 409


def test_another_model_behind_the_same_address_switches_meaning_off(installation, tmp_path):
    """I19: vectors of two models are never compared, even of equal size."""
    installation.router.kill()
    with EmbeddingServer(DIMENSION, seed=99) as other:
        replaced = RouterProcess(
            tmp_path, list(installation.shards.values()), {**installation.settings, "EMBEDDING_URL": other.url}
        )
        installation.router = replaced
        with running(replaced):
            asked = installation.evidence(ACME, CANARY)
            written = installation.post("/v1/documents", ACME, documents=[{"id": "x", "text": "x"}])

    assert (asked.status_code, asked.json()["reason"]) == (503, "search_failed")
    assert asked.json()["unavailable_detail"] == "embedding_mismatch"
    assert written.status_code in {409, 503}


def test_delete_removes_exactly_that_id_and_it_stays_deleted_over_a_restart(installation):
    """Quotes and wildcards in an id are part of the id."""
    names = ["a", "a'", "a%", "a' OR '1'='1", 'a"', "a/b", "ä"]
    for name in names:
        installation.index(ACME, name, f"document {len(name)} about turbines")
    headers = installation.router.headers(ACME)
    victim = "a' OR '1'='1"
    deleted = httpx.delete(httpx.URL(installation.router.url).copy_with(raw_path=path_of(victim)), headers=headers)
    installation.shards[ACME].kill()
    installation.shards[ACME].start()
    installation.shards[ACME].await_ready()
    listed = httpx.get(f"{installation.router.url}/v1/documents", headers=headers).json()

    assert deleted.status_code == 200
    assert {row["id"] for row in listed["documents"]} == {"own", *names} - {victim}


def test_a_memo_becomes_stale_when_either_corpus_moves_on(installation):
    """An approved answer says of itself whether what it rests on has changed."""
    headers = installation.router.headers(ACME)
    url = f"{installation.router.url}/v1/memos/greeting/v1"
    assert httpx.put(url, json={"response": {"answer": 42}}, headers=headers).status_code == 200
    fresh = installation.post("/v1/ground", ACME, query="anything", name="greeting", fingerprint="v1").json()
    installation.index(PLATFORM, "more", "one more page of the handbook")
    stale = installation.post("/v1/ground", ACME, query="anything", name="greeting", fingerprint="v1").json()
    refused = installation.post("/v1/ground", ACME, query=CANARY, name="greeting", fingerprint="v1", fresh=True)
    answer = msgspec.json.decode(refused.content, type=GroundAnswer)

    assert (fresh["tier"], fresh["memo"]["stale"], fresh["memo"]["response"]) == ("memo", False, {"answer": 42})
    assert (stale["tier"], stale["memo"]["stale"]) == ("memo", True)
    assert answer.tier == "hybrid"


def test_a_corpus_that_the_directory_calls_suspended_is_no_corpus(installation):
    """The directory is followed while the router runs; its state is the detail."""
    shards = list(installation.shards.values())
    installation.router.write_directory(shards, states={ACME: "corpus_suspended"})
    deadline = time.monotonic() + 10.0
    while (answer := installation.evidence(ACME, CANARY)).status_code == 200:
        assert time.monotonic() < deadline, "the router did not follow its directory"
    others = installation.evidence(GLOBEX, "invoice")

    assert (answer.status_code, answer.json()["reason"]) == (503, "no_corpus")
    assert answer.json()["unavailable_detail"] == "corpus_suspended"
    assert others.status_code == 200


def path_of(doc_id):
    return f"/v1/documents/{quote(doc_id, safe='')}".encode()
