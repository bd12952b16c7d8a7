"""A corpus under load over many lives of its processes and a store that lies: nothing acknowledged is lost, nothing invented.

A life ends by a kill, by a take-over (the writer is paused, another process takes over, the first one wakes up), or goes
on after the store was away for a moment. What writers and readers did and were told is recorded and checked as a whole.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from tests.checkers.checkers import check
from tests.support.behind_proxy import INTERNAL_ERROR, SLOW_DOWN, proxy_before, shard_behind
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
from tests.support.processes import ShardProcess
from tests.support.writes import begin_write, is_refusal, operation, read_all

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

SEED = 20261201
ACKNOWLEDGED = 10_000
LONGEST_SECONDS = 400.0
LIFE_SECONDS = (1.0, 9.0)
AWAY_SECONDS = 3.0
COLLECTED_SECONDS = 10.0  # after which the log has moved on so far that what was here is collected
WRITERS = 12
READERS = 4
ROUNDS = 2
LATE_WRITES = 20  # that a writer is sent after another one took over
ENDINGS = ("kill", "take-over", "outage")
SUPERSEDED_SECONDS = 30.0

OBJECTS = r"/(log/\d{20}|snapshots/|MANIFEST)"
LISTINGS = r"list-type=2"
NOTHING_LISTED = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
WRONG_ORDER = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated>"
    b"<Contents><Key>z</Key></Contents><Contents><Key>a</Key></Contents></ListBucketResult>"
)

STORM = (
    Rule(DropAnswer(), ("PUT", "DELETE"), OBJECTS, probability=0.01),
    Rule(DeliverLate(0.3), ("PUT", "DELETE"), OBJECTS, probability=0.01),
    Rule(DeliverLate(COLLECTED_SECONDS), ("PUT", "DELETE"), OBJECTS, probability=0.005),
    Rule(RepeatLater(0.5), ("PUT", "DELETE"), OBJECTS, probability=0.03),
    Rule(RepeatLater(COLLECTED_SECONDS), ("PUT", "DELETE"), OBJECTS, probability=0.01),
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
    Rule(AnswerStatus(status=200, body=NOTHING_LISTED), ("GET",), LISTINGS, probability=0.05),
    Rule(AnswerStatus(status=200, body=WRONG_ORDER), ("GET",), LISTINGS, probability=0.05),
)


class Storm:
    """One corpus, the two processes that take turns as its writer, and the load upon them."""

    def __init__(self, first: ShardProcess, proxy: FaultProxy) -> None:
        self.load = Load(first, writers=WRITERS, readers=READERS, seed=SEED)
        self.endings: Counter[str] = Counter()
        self.late: Counter[str] = Counter()  # what superseded writers answered and said of themselves
        self.proxy = proxy
        self._writer, self._other = first, first.twin()
        self._random = random.Random(SEED)

    def run(self) -> None:
        """Let lives follow each other, in rounds of all endings, until enough was acknowledged."""
        self._start(self._writer)
        ends = time.monotonic() + LONGEST_SECONDS
        with self.load:
            while time.monotonic() < ends and not self._is_enough():
                for ending in self._random.sample(ENDINGS, len(ENDINGS)):
                    time.sleep(self._random.uniform(*LIFE_SECONDS))  # when a life ends is what is varied
                    {"kill": self._kill, "take-over": self._take_over, "outage": self._lose_the_store}[ending]()
                    self.endings[ending] += 1
        self.proxy.rules = ()
        self.proxy.await_late()

    def read_all(self) -> None:
        """Read every document of a process that was started afresh."""
        self._writer.kill()
        self._start(self._writer, rules=())
        read_all(self._writer, self.load.recorder, "the end")

    def close(self) -> None:
        """Kill what runs still."""
        for shard in (self._writer, self._other):
            if shard.is_running:
                shard.kill()

    def _is_enough(self) -> bool:
        return self.load.recorder.acknowledged >= ACKNOWLEDGED and min(self.endings.values(), default=0) >= ROUNDS

    def _start(self, shard: ShardProcess, rules: tuple[Rule, ...] = STORM) -> None:
        self.proxy.rules = rules
        shard.start()
        shard.await_ready()

    def _kill(self) -> None:
        self._writer.kill()
        self._start(self._writer)

    def _lose_the_store(self) -> None:
        self.proxy.partition(AWAY_SECONDS)
        time.sleep(AWAY_SECONDS)  # the outage itself

    def _take_over(self) -> None:
        paused, successor = self._writer, self._other
        os.kill(paused.pid, signal.SIGSTOP)
        self._start(successor)
        self._writer, self._other = successor, paused
        self.load.target = successor
        os.kill(paused.pid, signal.SIGCONT)
        self._write_late(paused)
        self.late[f"is {_await_unready(paused)}"] += 1
        paused.kill()

    def _write_late(self, superseded: ShardProcess) -> None:
        """Write documents of their own to a writer that another one has followed."""
        first = 100_000 + 1_000 * self.endings["take-over"]
        with httpx.Client(timeout=10.0) as client:
            for number in range(first, first + LATE_WRITES):
                call = begin_write(self.load.recorder, "late", number, 1)
                body = superseded.write_body(operation(number, 1))
                answer = client.post(f"{superseded.url}/write", content=body, headers=superseded.headers("write"))
                self.late[f"answers {answer.status_code}"] += 1
                if answer.status_code == 200:
                    call.ok(sequence=0)
                elif is_refusal(answer.content):
                    call.fail()


def _await_unready(shard: ShardProcess) -> str:
    """Return what the shard's probe says when it is not ready any more."""
    deadline = time.monotonic() + SUPERSEDED_SECONDS
    with httpx.Client(timeout=5.0) as client:
        while (answer := client.get(f"{shard.url}/readyz")).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
    return answer.text.strip()


@pytest.fixture(scope="module")
def storm(tmp_path_factory, s3_server) -> Iterator[Storm]:
    """The corpus after the storm, every document read once more."""
    settings = {"GROUNDPLANE_SNAPSHOT_RECORDS": "60", "GROUNDPLANE_SNAPSHOTS_KEEP": "2"}
    with proxy_before(s3_server, seed=SEED) as proxy:
        storm = Storm(shard_behind(tmp_path_factory.mktemp("storm"), s3_server, proxy, settings), proxy)
        try:
            storm.run()
            storm.read_all()
            yield storm
        finally:
            storm.close()


def test_every_recorded_answer_is_one_that_a_sound_corpus_could_give(storm, record_property):
    """Acknowledged is seen, nothing unattempted is, documents are whole, each is one register, sequences never fall: I1-I5."""
    started = time.monotonic()
    anomalies = check(storm.load.recorder.history)
    recorder, faults = storm.load.recorder, storm.proxy.injected
    by_checker = Counter(anomaly.checker for anomaly in anomalies)
    lost = by_checker["acknowledged_seen"] + by_checker["linearizable"]
    invented = by_checker["nothing_unattempted"] + by_checker["documents_whole"]
    record_property(
        "figures",
        f"{recorder.acknowledged} writes acknowledged, {lost} lost, {invented} invented, {len(anomalies)} anomalies in "
        f"{len(recorder.history)} events "
        f"({recorder.reads} reads), checked in {time.monotonic() - started:.1f} s; seed {SEED}, {dict(storm.endings)}, "
        f"{sum(faults.values())} faults in {storm.proxy.forwarded} store requests: {dict(sorted(faults.items()))}; "
        f"writers were told {dict(storm.load.answers)}",
    )

    assert [msgspec.to_builtins(anomaly) for anomaly in anomalies[:5]] == []


def test_enough_was_acknowledged_over_every_way_to_end_a_life(storm):
    """A shard that refuses everything loses nothing either."""
    assert storm.load.recorder.acknowledged >= ACKNOWLEDGED
    assert all(storm.endings[ending] >= ROUNDS for ending in ENDINGS)


def test_every_kind_of_fault_was_met(storm):
    """A rule that never fires shows nothing."""
    assert storm.proxy.injected.keys() >= {type(rule.fault).__name__ for rule in STORM} | {"partition"}


def test_a_writer_that_was_paused_acknowledges_nothing_after_another_took_over(storm):
    """A machine may sleep for a minute and wake up in the belief that it is the writer: I5."""
    assert storm.late == {
        "answers 503": LATE_WRITES * storm.endings["take-over"],
        "is superseded": storm.endings["take-over"],
    }


def test_no_search_showed_less_than_it_was_asked_for(storm):
    """Whoever asks for the sequence of an acknowledgement sees it, or is told that it cannot be seen yet: I18."""
    assert storm.load.stale == []
