"""A change of the embedding model on real processes: two real models of different size, everything killed half-way."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from groundplane.demo import SCOPES, load_documents, load_questions
from groundplane.wire.internal import ShardStatus
from tests.fakes.sentence_encoder import DIMENSION, SentenceEncoderServer
from tests.support.command_line import command, environment
from tests.support.processes import RouterProcess, ShardProcess

pytestmark = pytest.mark.process

KEY = "t-acme"
EMBEDDED = {"GROUNDPLANE_EMBEDDER": "embedded"}
DOCUMENTS = sorted((each for scope in SCOPES for each in load_documents(scope)), key=lambda each: each.id)
EARLY, LATE, LAST = DOCUMENTS[0].id, DOCUMENTS[-2].id, DOCUMENTS[-1]
QUESTION, ANSWER = "How often is the oil in a KP-40 changed?", "acme-kp40-service"
LEAST_FOUND = 0.8


class Installation:
    """One shard, and one router at a time."""

    def __init__(self, root: Path, store: Mapping[str, str]) -> None:
        self._root = root
        self.shard = ShardProcess(root, key=KEY, settings=store)
        self.router: RouterProcess | None = None

    @property
    def running_router(self) -> RouterProcess:
        """The router of now."""
        assert self.router is not None
        return self.router

    def start_router(self, settings: Mapping[str, str]) -> None:
        """Replace the router by one with these settings."""
        self.end_router()
        self.router = RouterProcess(self._root, [self.shard], settings)
        self.router.start()
        self.router.await_ready()

    def end_router(self) -> None:
        """Kill the router, if there is one."""
        if self.router is not None and self.router.is_running:
            self.router.kill()

    def restart_shard(self) -> None:
        """Start the shard after a kill, and tell the router's directory nothing new: it is the same address."""
        self.shard.start()
        self.shard.await_ready()

    def ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Return the answer of one request."""
        router = self.running_router
        content = msgspec.json.encode(body) if body else None
        headers = {**router.headers(KEY), "content-type": "application/json"}
        return httpx.request(method, f"{router.url}{path}", content=content, headers=headers, timeout=60.0)

    def evidence(self, query: str) -> Any:
        """Return the evidence for `query`."""
        answer = self.ask("POST", "/v1/evidence", query=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self) -> ShardStatus:
        """Return what the shard says."""
        with httpx.Client() as client:
            return self.shard.status(client)

    def publish(self) -> None:
        """Publish a snapshot of now."""
        httpx.post(f"{self.shard.url}/snapshot", headers=self.shard.headers("operate"), timeout=60.0).raise_for_status()

    def reindex(self) -> subprocess.Popen[str]:
        """Start `groundplane corpus reindex`."""
        token = self._root / "token"
        token.write_text(self.running_router.token(KEY))
        token.chmod(0o600)
        arguments = ("--url", self.running_router.url, "--token-file", str(token), "-o", "json")
        return subprocess.Popen(
            command("corpus", "reindex", *arguments), env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def found_share(self) -> float:
        """Return for how many of every third judged question the first five hits hold a relevant document."""
        questions = [each for each in load_questions() if each.tenant == "acme"][::3]
        found = 0
        for question in questions:
            hits = {hit["doc_id"] for hit in self.evidence(question.text)["hits"]}
            found += bool(hits & {name.partition("/")[2] for name in question.relevant})
        return found / len(questions)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Return where the corpus is kept."""
    if request.param == "local":
        return {}
    server = request.getfixturevalue("s3_server")
    location = server.location()
    return {
        "GROUNDPLANE_STORE_DIRECTORY": "",
        "GROUNDPLANE_OBJECT_STORE": f"s3://{location.bucket}/{location.prefix}?endpoint={location.endpoint}",
        "GROUNDPLANE_S3_ACCESS_KEY": server.settings.access_key,
        "GROUNDPLANE_S3_SECRET_KEY": server.settings.secret_key,
    }


@pytest.fixture
def installation(tmp_path: Path, store: Mapping[str, str]) -> Iterator[Installation]:
    installation = Installation(tmp_path, store)
    with contextlib.ExitStack() as ending:
        installation.shard.start()
        ending.callback(lambda: installation.shard.kill() if installation.shard.is_running else None)
        ending.callback(installation.end_router)
        installation.shard.await_ready()
        yield installation


@pytest.fixture
def encoder() -> Iterator[SentenceEncoderServer]:
    with SentenceEncoderServer() as server:
        yield server


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_corpus_changes_its_model_over_kills_of_everything(
    installation: Installation, encoder: SentenceEncoderServer
) -> None:
    """The whole promise: refused and honest before, words meanwhile, nothing lost by kills, meaning afterwards."""
    installation.start_router(EMBEDDED)
    documents = [{"id": each.id, "title": each.title, "text": each.text} for each in DOCUMENTS]
    assert installation.ask("POST", "/v1/documents", documents=documents).status_code == 200
    assert installation.ask("PUT", "/v1/memos/m/f", response=1).status_code == 200
    before = installation.found_share()
    installation.publish()

    installation.start_router({"EMBEDDING_URL": encoder.url, "MODEL_EMBEDDING_DIM": str(DIMENSION)})
    refused = installation.ask("POST", "/v1/documents", documents=documents[:1])
    unasked = installation.ask("POST", "/v1/evidence", query=QUESTION)
    report = installation.ask("GET", "/v1/corpus").json()["corpus"]
    assert (refused.status_code, refused.json()["unavailable_detail"]) == (422, "got_512_expected_384")
    assert (unasked.status_code, unasked.json()["reason"]) == (503, "dimension_mismatch")
    assert (report["semantic"], report["detail"]) == (False, "got_512_expected_384")

    encoder.stalls_at = LAST.title
    with installation.reindex() as first:
        until(lambda: encoder.misbehaviour == "slow")
        words = installation.evidence(QUESTION)  # its vector is remembered: the model stalls
        for doc_id in (EARLY, LATE):
            assert installation.ask("DELETE", f"/v1/documents/{doc_id}").json()["found"]
        done = installation.status().reindex
        installation.shard.kill()
        installation.end_router()
        first.kill()
    assert words["semantic"] is False
    assert done is not None
    assert 0 < done.documents < len(DOCUMENTS) - 2

    encoder.go_on()
    installation.restart_shard()
    assert installation.status().reindex == done
    installation.publish()
    installation.shard.kill()
    installation.restart_shard()  # from a snapshot of both generations
    assert installation.status().reindex == done
    installation.start_router({"EMBEDDING_URL": encoder.url, "MODEL_EMBEDDING_DIM": str(DIMENSION)})
    meanwhile = installation.evidence(QUESTION)
    assert meanwhile["semantic"] is False
    assert {hit["match"] for hit in meanwhile["hits"]} == {"keyword"}
    assert ANSWER in {hit["doc_id"] for hit in meanwhile["hits"]}

    with installation.reindex() as second:
        out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert msgspec.json.decode(out)["state"] == "finished"
    installation.publish()
    installation.shard.kill()
    installation.restart_shard()

    status = installation.status()
    assert (status.documents, status.generation, status.reindex) == (len(DOCUMENTS) - 2, 1, None)
    assert status.embedding is not None
    assert status.embedding.dimension == DIMENSION
    answer = installation.evidence(QUESTION)
    assert answer["semantic"] is True
    assert ANSWER in {hit["doc_id"] for hit in answer["hits"]}
    assert [installation.ask("GET", f"/v1/documents/{each}").status_code for each in (EARLY, LATE)] == [404, 404]
    assert installation.ask("GET", "/v1/memos/m/f").json()["response"] == 1
    after = installation.found_share()
    print(f"\nquestions whose first five hits hold a relevant document: {before:.2f} before, {after:.2f} after")
    assert after >= LEAST_FOUND * before
