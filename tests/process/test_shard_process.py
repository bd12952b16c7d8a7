"""A real shard process: what it acknowledged is there after every kill, and nobody without its capability gets in."""

import random
import threading
import time

import httpx
import msgspec
import numpy as np
import pytest

from groundplane.tokens import SigningKey, capability_audience
from groundplane.wire.internal import (
    ChunkFields,
    ChunkInput,
    DeleteDocument,
    DocumentPage,
    ReplaceDocument,
    SearchRequest,
    ShardProblem,
    StoredDocument,
)
from groundplane.wire.names import CorpusKey, Incarnation
from tests.support.processes import ANALYSER_ID, ShardProcess, running

pytestmark = pytest.mark.process

DIMENSION = 8
KILLS = 30
CHUNKS = 3


def document(number: int, version: int) -> ReplaceDocument:
    """One document of three chunks; every chunk carries the version, so that half of a replacement shows."""
    parts = [f"document {number} version {version} part {part}. " for part in range(CHUNKS)]
    vectors = np.random.default_rng([number, version]).standard_normal((CHUNKS, DIMENSION)).astype("<f4")
    starts = [sum(map(len, parts[:part])) for part in range(CHUNKS)]
    return ReplaceDocument(
        doc_id=f"doc-{number}",
        text="".join(parts),
        title=None,
        uri=None,
        metadata=msgspec.json.encode({"version": version}),
        chunker="test",
        chunks=tuple(
            ChunkInput(start=start, end=start + len(part), heading=None, vector=vector.tobytes())
            for start, part, vector in zip(starts, parts, vectors, strict=True)
        ),
    )


def search_request(shard: ShardProcess, text: str = "version", **more) -> SearchRequest:
    return SearchRequest(incarnation=shard.incarnation, analyser=ANALYSER_ID, terms=(text,), window=200, **more)


class Reader:
    """Searches all the time; records what no search may ever show."""

    def __init__(self, shard: ShardProcess) -> None:
        self.shard = shard
        self.violations: list[str] = []
        self.answers = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        with httpx.Client(timeout=2.0) as client:
            while not self._stop.is_set():
                try:
                    answer = self.shard.search(client, search_request(self.shard))
                except httpx.HTTPError:
                    self._stop.wait(0.01)
                    continue
                self.answers += 1
                seen: dict[str, set[str]] = {}
                counts: dict[str, int] = {}
                for candidate in answer.candidates:
                    fields = msgspec.msgpack.decode(candidate.chunk, type=ChunkFields)
                    seen.setdefault(fields.doc_id, set()).add(fields.text.split(" part ")[0])
                    counts[fields.doc_id] = counts.get(fields.doc_id, 0) + 1
                for doc_id, versions in seen.items():
                    if len(versions) != 1 or counts[doc_id] != CHUNKS:
                        self.violations.append(f"{doc_id}: {versions}, {counts[doc_id]} chunks")


def write_until_killed(
    shard: ShardProcess, generator: random.Random, acknowledged: dict[int, int], attempted: dict[int, set[int]]
):
    """Write replacements until the process dies under it; remember what was acknowledged and what was only sent."""
    version = max((max(versions) for versions in attempted.values()), default=0)
    with httpx.Client(timeout=5.0) as client:
        while True:
            version += 1
            numbers = generator.sample(range(40), generator.randint(1, 4))
            for number in numbers:
                attempted.setdefault(number, set()).add(version)
            try:
                shard.write(client, *(document(number, version) for number in numbers))
            except httpx.HTTPError:
                return
            for number in numbers:
                acknowledged[number] = version


def stored_versions(shard: ShardProcess) -> dict[int, int]:
    """Return the version of every document that the shard holds."""
    versions = {}
    with httpx.Client(timeout=10.0) as client:
        page = client.get(f"{shard.url}/documents", params={"limit": 1000}, headers=shard.headers())
        for row in msgspec.msgpack.decode(page.content, type=DocumentPage).documents:
            answer = client.get(f"{shard.url}/document", params={"id": row.doc_id}, headers=shard.headers())
            text = msgspec.msgpack.decode(answer.content, type=StoredDocument).text
            versions[int(row.doc_id.removeprefix("doc-"))] = int(text.split(" version ")[1].split(" ")[0])
    return versions


@pytest.mark.timeout(240)
def test_no_acknowledged_write_is_lost_and_no_document_is_half_visible_over_thirty_kills(tmp_path):
    """The promise that everything else rests on: I1, I2."""
    generator = random.Random(20261201)
    shard = ShardProcess(tmp_path, dimension=DIMENSION, settings={"GROUNDPLANE_SNAPSHOT_RECORDS": "40"})
    acknowledged: dict[int, int] = {}
    attempted: dict[int, set[int]] = {}
    with Reader(shard) as reader:
        for _ in range(KILLS):
            shard.start()
            shard.await_ready()
            writer = threading.Thread(target=write_until_killed, args=(shard, generator, acknowledged, attempted))
            writer.start()
            time.sleep(generator.uniform(0.02, 0.5))  # the moment of the kill is the thing being varied
            shard.kill()
            writer.join(timeout=30)
    with running(shard):
        stored = stored_versions(shard)

    assert reader.violations == []
    assert reader.answers > 0
    assert len(acknowledged) > 10
    for number, version in acknowledged.items():
        assert stored[number] >= version
        assert stored[number] in attempted[number]


def test_a_stopped_shard_comes_back_with_everything_and_the_same_answer(tmp_path):
    """SIGTERM publishes a snapshot; a restart answers as before, to the last digit."""
    shard = ShardProcess(tmp_path, dimension=DIMENSION)
    vector = np.ones(DIMENSION, dtype="<f4").tobytes()
    with httpx.Client(timeout=10.0) as client:
        with running(shard):
            shard.write(client, *(document(number, 1) for number in range(30)))
            shard.write(client, document(3, 2), DeleteDocument(doc_id="doc-4"))
            request = search_request(shard, vector=vector, embedding_id=shard.embedding.id)
            before = shard.search(client, request)
            assert shard.stop() == 0
        with running(shard):
            after = shard.search(client, request)
            status = shard.status(client)

    assert status.snapshot_sequence is not None
    assert (after.statistics, after.candidates) == (before.statistics, before.candidates)
    assert after.epoch > before.epoch


def test_an_older_writer_never_answers_again_after_a_second_process_took_over(tmp_path):
    """Two processes of one corpus may run by accident; only one of them may ever acknowledge: I5."""
    first = ShardProcess(tmp_path, dimension=DIMENSION)
    with httpx.Client(timeout=10.0) as client, running(first):
        first.write(client, document(1, 1))
        second = first.twin()
        with running(second):
            second.write(client, document(2, 1))
            refused = client.post(
                f"{first.url}/write", content=first.write_body(document(3, 1)), headers=first.headers("write")
            )
            again = client.post(
                f"{first.url}/write", content=first.write_body(document(3, 1)), headers=first.headers("write")
            )
            readiness = client.get(f"{first.url}/readyz")
            stored = stored_versions(second)

    assert (refused.status_code, again.status_code) == (503, 503)
    assert (readiness.status_code, readiness.text.strip()) == (503, "superseded")
    assert stored == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("key", "incarnation", "right", "status"),
    [
        pytest.param("t-other", None, "read", 401, id="another-corpus"),
        pytest.param("t-acme", "00000000-0000-4000-8000-000000000000", "read", 401, id="another-life"),
        pytest.param("t-acme", None, "operate", 401, id="a-right-of-another-role"),
        pytest.param("t-acme", None, "write", 403, id="another-right"),
    ],
)
def test_a_capability_for_something_else_is_refused(shard_for_access, key, incarnation, right, status):
    """A request meant for another corpus must be refused by the shard itself, whoever sent it: I15."""
    shard = shard_for_access
    audience = capability_audience(CorpusKey(key), Incarnation(incarnation or shard.incarnation))
    token = shard._signing["router"].sign_capability(audience, right, now=time.time())

    answer = post_search(shard, f"Bearer {token}")

    assert answer.status_code == status
    assert msgspec.msgpack.decode(answer.content, type=ShardProblem).code == "capability_denied"


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x.y.z", "Basic YTpi"])
def test_no_route_answers_without_a_capability(shard_for_access, authorization):
    """An open shard port would bypass every check of the router."""
    assert post_search(shard_for_access, authorization).status_code == 401


def test_a_stranger_with_a_key_of_his_own_is_refused(shard_for_access):
    """Only keys in the mounted directory count, whatever the token says of itself."""
    shard = shard_for_access
    audience = capability_audience(shard.key, shard.incarnation)
    token = SigningKey.generate().sign_capability(audience, "read", now=time.time())

    assert post_search(shard, f"Bearer {token}").status_code == 401


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"incarnation": "00000000-0000-4000-8000-000000000000"}, "wrong_incarnation", id="incarnation"),
        pytest.param({"analyser": "words-1-german"}, "analyser_mismatch", id="analyser"),
        pytest.param({"min_sequence": 10_000, "deadline_ms": 50}, "sequence_not_reached", id="sequence"),
    ],
)
def test_a_search_that_cannot_be_answered_truly_says_why(shard_for_access, change, code):
    """Another life, another analyser, a sequence that is not there yet: each is its own refusal, never an empty answer."""
    shard = shard_for_access
    request = msgspec.structs.replace(search_request(shard), **change)
    answer = httpx.post(f"{shard.url}/search", content=msgspec.msgpack.encode(request), headers=shard.headers())

    assert msgspec.msgpack.decode(answer.content, type=ShardProblem).code == code


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"{}", b"\x80", b"\x91" * 2_000], ids=["empty", "reserved", "json", "no-fields", "nested"]
)
def test_a_body_that_is_no_request_is_refused_with_400(shard_for_access, body):
    """No bytes from outside may end in a 500."""
    shard = shard_for_access
    answer = httpx.post(f"{shard.url}/search", content=body, headers=shard.headers())

    assert answer.status_code == 400


def test_a_request_with_two_capabilities_is_refused_with_400(shard_for_access):
    """Not only the router reads heads strictly: whatever stands between it and the shard may have checked the other one."""
    shard = shard_for_access
    headers = [*shard.headers().items(), ("authorization", shard.headers()["authorization"])]
    answer = httpx.post(f"{shard.url}/search", content=msgspec.msgpack.encode(search_request(shard)), headers=headers)

    assert (answer.status_code, answer.headers["connection"]) == (400, "close")


def post_search(shard: ShardProcess, authorization: str) -> httpx.Response:
    headers = {"content-type": "application/msgpack"} | ({"authorization": authorization} if authorization else {})
    return httpx.post(f"{shard.url}/search", content=msgspec.msgpack.encode(search_request(shard)), headers=headers)


@pytest.fixture(scope="module")
def shard_for_access(tmp_path_factory):
    """One running shard for all tests of access."""
    shard = ShardProcess(tmp_path_factory.mktemp("access"), dimension=DIMENSION)
    with running(shard), httpx.Client(timeout=10.0) as client:
        shard.write(client, document(1, 1))
        yield shard
