"""A real shard process: what it acknowledged is there after every kill, and nobody without its capability gets in."""

import random
import time

import httpx
import msgspec
import numpy as np
import pytest

from groundplane.tokens import SigningKey, capability_audience
from groundplane.wire.internal import SearchRequest, ShardProblem
from groundplane.wire.names import CorpusKey, Incarnation
from tests.checkers.checkers import check
from tests.support.load import Load, Pace
from tests.support.processes import ANALYSER_ID, ShardProcess, running
from tests.support.writes import DELETED, DIMENSION, operation, read_all, search_for

pytestmark = pytest.mark.process

SEED = 20261201
KILLS = 30
PACE = Pace(after_refusal_seconds=0.05, between_reads_seconds=0.005)  # lives are short


def search_request(shard: ShardProcess, text: str = "version", **more) -> SearchRequest:
    return SearchRequest(incarnation=shard.incarnation, analyser=ANALYSER_ID, terms=(text,), window=200, **more)


@pytest.mark.timeout(240)
def test_no_acknowledged_write_is_lost_and_no_document_is_half_visible_over_thirty_kills(tmp_path, record_property):
    """The promise that everything else rests on: I1, I2."""
    generator = random.Random(SEED)
    shard = ShardProcess(tmp_path, dimension=DIMENSION, settings={"GROUNDPLANE_SNAPSHOT_RECORDS": "40"})
    with Load(shard, writers=4, readers=2, seed=SEED, pace=PACE) as load:
        for _ in range(KILLS):
            shard.start()
            shard.await_ready()
            time.sleep(generator.uniform(0.02, 0.5))  # the moment of the kill is the thing being varied
            shard.kill()
    with running(shard):
        read_all(shard, load.recorder, "the end")
    recorder = load.recorder
    record_property(
        "figures", f"{recorder.acknowledged} writes acknowledged, {recorder.reads} reads over {KILLS} kills"
    )

    assert check(recorder.history) == []
    assert load.stale == []
    assert recorder.acknowledged > 10 * KILLS
    assert recorder.reads > 10 * KILLS


def test_a_stopped_shard_comes_back_with_everything_and_the_same_answer(tmp_path):
    """SIGTERM publishes a snapshot; a restart answers as before, to the last digit."""
    shard = ShardProcess(tmp_path, dimension=DIMENSION)
    vector = np.ones(DIMENSION, dtype="<f4").tobytes()
    with httpx.Client(timeout=10.0) as client:
        with running(shard):
            shard.write(client, *(operation(number, 1) for number in range(30)))
            shard.write(client, operation(3, 2), operation(4, DELETED))
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
        first.write(client, operation(1, 1))
        second = first.twin()
        with running(second):
            second.write(client, operation(2, 1))
            refused = client.post(
                f"{first.url}/write", content=first.write_body(operation(3, 1)), headers=first.headers("write")
            )
            again = client.post(
                f"{first.url}/write", content=first.write_body(operation(3, 1)), headers=first.headers("write")
            )
            readiness = client.get(f"{first.url}/readyz")
            stored = second.status(client).documents, second.search(client, search_for(second, 3)).candidates

    assert (refused.status_code, again.status_code) == (503, 503)
    assert (readiness.status_code, readiness.text.strip()) == (503, "superseded")
    assert stored == (2, [])


def test_a_corpus_made_again_shares_nothing_with_the_one_before_whose_writer_lives(tmp_path):
    """A resource may be deleted and created again while its old process still has writes to send: I9."""
    settings = {"GROUNDPLANE_STORE_DIRECTORY": str(tmp_path / "store")}
    old, new = (ShardProcess(tmp_path / name, dimension=DIMENSION, settings=settings) for name in ("old", "new"))
    with httpx.Client(timeout=10.0) as client, running(old):
        old.write(client, operation(1, 1))
        with running(new):
            old.write(client, operation(2, 1))
            new.write(client, operation(3, 1))
            old.write(client, operation(1, DELETED))
            found = [
                [each for each in (1, 2, 3) if shard.search(client, search_for(shard, each)).candidates]
                for shard in (old, new)
            ]
            statuses = [shard.status(client) for shard in (old, new)]

    assert found == [[2], [3]]
    assert [status.sequence for status in statuses] == [4, 2]
    assert sorted(path.name for path in (tmp_path / "store" / "t-acme").iterdir()) == sorted(
        [old.incarnation, new.incarnation]
    )


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
        shard.write(client, operation(1, 1))
        yield shard
