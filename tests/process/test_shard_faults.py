"""Real shards over a real S3 server that lies, stalls and vanishes: nothing acknowledged is lost, nothing is invented.

Figures and seeds are printed; `pytest -s` shows them.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.fault_proxy import (
    AnswerStatus,
    CutAnswer,
    Delay,
    DeliverLate,
    DropAnswer,
    FaultProxy,
    FlipAnswer,
    RepeatLater,
    Reset,
    Rule,
)
from tests.support.load import Load
from tests.support.processes import ShardProcess, running
from tests.support.seaweedfs import S3Server
from tests.support.writes import DIMENSION, operation, stored_versions

pytestmark = pytest.mark.process

SEED = 20261201
STORM_SECONDS = 45.0
LIFE_SECONDS = 7.0
OUTAGE_SECONDS = 8.0
ANSWER_SECONDS = 2.0
READ_GAP_SECONDS = 1.5  # a reader asks every 50 ms; the rest is a busy machine
WRITERS = 12
OBJECTS = r"/(log/\d{20}|snapshots/|MANIFEST)"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>m</Message></Error>"
INTERNAL_ERROR = b"<Error><Code>InternalError</Code><Message>m</Message></Error>"
ACCESS_DENIED = b"<Error><Code>AccessDenied</Code><Message>m</Message></Error>"

STORM = (
    Rule(DropAnswer(), ("PUT", "DELETE"), OBJECTS, probability=0.01),
    Rule(DeliverLate(0.3), ("PUT", "DELETE"), OBJECTS, probability=0.01),
    Rule(RepeatLater(0.5), ("PUT", "DELETE"), OBJECTS, probability=0.03),
    Rule(AnswerStatus(status=500, body=INTERNAL_ERROR, is_applied=True), ("PUT",), OBJECTS, probability=0.01),
    Rule(AnswerStatus(status=503, body=SLOW_DOWN), (), OBJECTS, probability=0.01),
    Rule(AnswerStatus(status=500), (), OBJECTS, probability=0.005),
    Rule(AnswerStatus(status=429), (), OBJECTS, probability=0.005),
    Rule(AnswerStatus(status=409), ("PUT",), OBJECTS, probability=0.01),
    Rule(AnswerStatus(status=412), ("PUT",), OBJECTS, probability=0.005),
    Rule(AnswerStatus(status=200, body=INTERNAL_ERROR), ("GET",), OBJECTS, probability=0.01),
    Rule(Reset(), (), OBJECTS, probability=0.01),
    Rule(CutAnswer(20), ("GET",), OBJECTS, probability=0.02),
    Rule(FlipAnswer(), ("GET",), OBJECTS, probability=0.02),
    Rule(Delay(0.1), (), OBJECTS, probability=0.02),
)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """Give a proxy before the store."""
    endpoint = urlsplit(s3_server.location().endpoint)
    with FaultProxy(endpoint.hostname or "", endpoint.port or 80, seed=SEED) as proxy:
        yield proxy


@pytest.fixture
def shard(tmp_path: Path, s3_server: S3Server, proxy: FaultProxy) -> ShardProcess:
    """Give a shard of a corpus in the bucket behind the proxy."""
    location = s3_server.location()
    settings = {
        "GROUNDPLANE_STORE_DIRECTORY": "",
        "GROUNDPLANE_OBJECT_STORE": f"s3://{location.bucket}/{location.prefix}?endpoint={proxy.url}",
        "GROUNDPLANE_S3_ACCESS_KEY": s3_server.settings.access_key,
        "GROUNDPLANE_S3_SECRET_KEY": s3_server.settings.secret_key,
        "GROUNDPLANE_SNAPSHOT_RECORDS": "60",
        "GROUNDPLANE_SNAPSHOTS_KEEP": "2",
    }
    return ShardProcess(tmp_path, dimension=DIMENSION, settings=settings)


@contextmanager
def working(load: Load, proxy: FaultProxy) -> Iterator[None]:
    """Run the load for a block and print what came of it, also if the block fails."""
    try:
        with load:
            yield
    finally:
        faults = dict(sorted(proxy.injected.items()))
        print(
            f"\nseed {SEED}: acknowledged {load.history.acknowledged}, answers {dict(load.answers)}, reads {load.reads}"
        )
        print(f"slowest answer {load.slowest_answer:.2f} s, longest time without a search {load.longest_gap:.2f} s")
        print(f"store requests {proxy.forwarded}, faults {sum(faults.values())}: {faults}")


def differences(load: Load, shard: ShardProcess) -> tuple[list[str], list[str], list[str]]:
    """Return what was lost, what was invented, and what the reader saw that it may not."""
    stored = stored_versions(shard)
    return load.history.lost(stored), load.history.invented(stored), load.violations


@pytest.mark.timeout(240)
def test_nothing_acknowledged_is_lost_over_kills_behind_a_store_that_lies(shard, proxy):
    """Answers lost, requests late and repeated, failures that did it, damage on the way, and a kill now and then: I1-I5."""
    generator = random.Random(SEED)
    load = Load(shard, writers=WRITERS, seed=SEED)
    ends = time.monotonic() + STORM_SECONDS
    with working(load, proxy):
        while time.monotonic() < ends:
            shard.start()
            shard.await_ready()
            proxy.rules = STORM
            time.sleep(generator.uniform(0.5, 1.5) * LIFE_SECONDS)  # the moment of the kill is what is varied
            shard.kill()
    proxy.rules = ()
    proxy.await_late()
    with running(shard):
        found = differences(load, shard)

    assert found == ([], [], [])
    assert load.history.acknowledged > 500
    assert proxy.injected.keys() >= {type(rule.fault).__name__ for rule in STORM}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(None, id="partition"),
        pytest.param((Rule(AnswerStatus(status=503, body=SLOW_DOWN)),), id="503"),
        pytest.param((Rule(AnswerStatus(status=403, body=ACCESS_DENIED)),), id="403"),
        pytest.param((Rule(Reset()),), id="reset"),
    ],
)
def test_while_the_store_is_away_reads_go_on_and_writes_are_refused_in_time(shard, proxy, rules):
    """The bucket is the corpus, but what a process knows it can still tell; and callers must not hang."""
    load = Load(shard, writers=4, seed=SEED)
    with running(shard):
        pid = shard.pid
        with working(load, proxy):
            load.await_acknowledged(100)
            load.measure()
            if rules is None:
                proxy.partition(OUTAGE_SECONDS)
            else:
                proxy.rules = rules
            time.sleep(OUTAGE_SECONDS)  # the outage itself
            proxy.rules = ()
            load.await_acknowledged(50)
            slowest_answer, longest_gap = load.slowest_answer, load.longest_gap
        found = differences(load, shard)
        is_the_same = shard.pid == pid and httpx.get(f"{shard.url}/readyz").status_code == 200

    assert found == ([], [], [])
    assert is_the_same
    assert slowest_answer <= ANSWER_SECONDS
    assert longest_gap <= READ_GAP_SECONDS


@pytest.mark.timeout(240)
def test_a_writer_that_was_paused_acknowledges_nothing_after_another_took_over(shard, proxy):
    """A machine may sleep for a minute and wake up in the belief that it is the writer: I5."""
    load = Load(shard, writers=WRITERS, seed=SEED)
    successor = shard.twin()
    with httpx.Client(timeout=10.0) as client, running(shard), cleaned_up(successor):
        with working(load, proxy):
            load.await_acknowledged(300)
            os.kill(shard.pid, signal.SIGSTOP)
            successor.start()
            successor.await_ready()
            load.target = successor
            load.await_acknowledged(300)
            os.kill(shard.pid, signal.SIGCONT)
            statuses = {write_status(client, shard, number) for number in range(10_000, 10_020)}
            load.await_acknowledged(300)
            readiness = client.get(f"{shard.url}/readyz")
        found = differences(load, successor)

    assert found == ([], [], [])
    assert statuses == {503}
    assert (readiness.status_code, readiness.text.strip()) == (503, "superseded")


@contextmanager
def cleaned_up(shard: ShardProcess) -> Iterator[None]:
    """Kill the shard at the end of a block if it was started."""
    try:
        yield
    finally:
        if shard.is_running:
            shard.kill()


def write_status(client: httpx.Client, shard: ShardProcess, number: int) -> int:
    """Return what the shard answers to one write of a document that nobody else writes."""
    body = shard.write_body(operation(number, 1))
    return client.post(f"{shard.url}/write", content=body, headers=shard.headers("write")).status_code
