"""What real shards, and a whole `groundplane up`, do while their store is away for a minute, each in a way of its own.

All outages happen side by side, since they consist of waiting. Each has a prefix, a proxy and a load of its own.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from groundplane.wire.internal import SearchAnswer, ShardStatus
from tests.checkers.checkers import check
from tests.support.behind_proxy import ACCESS_DENIED, SLOW_DOWN, keys, proxy_before, shard_behind, store_url
from tests.support.command_line import EXAMPLES, answer, groundplane, running_up
from tests.support.fault_proxy import AnswerStatus, Delay, FaultProxy, Reset, Rule, Throttle
from tests.support.load import Load, Pace
from tests.support.processes import ShardProcess, running
from tests.support.seaweedfs import S3Server
from tests.support.writes import operation, read_all, search_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

SEED = 20261201
OUTAGE_SECONDS = 60.0
LONGEST_OUTAGE_SECONDS = 600.0  # it is ended before
ANSWER_SECONDS = 2.0
BUSY_SECONDS = 0.25  # that ten installations on two cores may take for the way of a request there and back
READ_GAP_SECONDS = 2.0  # a reader asks five times a second; the rest is a busy machine
OLD_SECONDS = OUTAGE_SECONDS - 10.0  # a call that was under way when the outage began may end well after that
YOUNG_SECONDS = 10.0
STOP_SECONDS = 20.0  # what `groundplane up` grants
BACK_SECONDS = 60.0
REFUSED_SECONDS = 10.0
STARTS_AT_ONCE = 2
MANY_WRITERS = 40  # what they write at once takes a slow store longer than anybody is kept waiting
PACE = Pace(after_refusal_seconds=0.5, between_reads_seconds=0.2)
TWO = (EXAMPLES / "acme.yaml", EXAMPLES / "platform.yaml")

PARTITION = "partition"
SLOW = "10-kilobytes-a-second"
RULES: dict[str, tuple[Rule, ...]] = {
    PARTITION: (),
    "503": (Rule(AnswerStatus(status=503, body=SLOW_DOWN)),),
    "403": (Rule(AnswerStatus(status=403, body=ACCESS_DENIED)),),
    "reset": (Rule(Reset()),),
    "30-seconds-late": (Rule(Delay(30.0)),),
    SLOW: (Rule(Throttle(10_000)),),
}
SILENT = tuple(name for name in RULES if name != SLOW)  # outages in which no call ends well


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a shard at the end of an outage, and after it."""

    sequence_before: int  # the highest acknowledged before it
    status: ShardStatus
    searched: SearchAnswer | None
    slowest_answer: float
    longest_gap: float
    age_after: float
    events: list[str]  # of its log
    anomalies: list[str]
    is_same_process: bool
    figures: str


class SeenIdle(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a shard that nobody wrote to while its store was away."""

    sequence_before: int
    searched: SearchAnswer
    age_after: float
    events: list[str]


class SeenStopped(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a shard that was asked to stop while its store was away."""

    exit_code: int
    seconds: float
    anomalies: list[str]


class SeenStarted(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a shard that was started while its store refused it, and after that was repaired."""

    readiness: str
    health: int
    documents: int
    is_same_process: bool


class SeenInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said at the end of an outage, and after it."""

    evidence: Any
    status: Any
    index: tuple[int, str, str]  # exit code, stdout, stderr
    index_after: Any
    processes_before: list[int]
    processes_after: list[int]
    said: list[str]


class Outages:
    """Starts each kind of installation, takes its store away for a minute, and looks at it."""

    def __init__(self, root: Path, server: S3Server) -> None:
        self._root = root
        self._server = server
        self._turns = threading.Semaphore(STARTS_AT_ONCE)

    def of_a_shard(self, name: str) -> Seen:
        """Let a shard with writers and a reader be cut off in the way of this name."""
        with ExitStack() as stack, httpx.Client(timeout=10.0) as client:
            proxy, shard = self._start(name, stack)
            pid = shard.pid
            with Load(shard, writers=MANY_WRITERS if name == SLOW else 4, seed=SEED, pace=PACE) as load:
                load.await_acknowledged(100)
                sequence_before = load.sequence
                load.measure()
                _take_away(proxy, name)
                time.sleep(OUTAGE_SECONDS - 1.0)  # the outage itself
                status, searched = shard.status(client), load.searched
                slowest_answer, longest_gap = load.slowest_answer, load.longest_gap
                time.sleep(1.0)
                proxy.rules = ()
                load.await_acknowledged(50, BACK_SECONDS)
                age_after = shard.status(client).age_seconds
            read_all(shard, load.recorder, "the end")
            return Seen(
                sequence_before=sequence_before,
                status=status,
                searched=searched,
                slowest_answer=slowest_answer,
                longest_gap=longest_gap,
                age_after=age_after,
                events=_events(shard),
                anomalies=[*map(str, check(load.recorder.history)), *load.stale],
                is_same_process=shard.pid == pid and client.get(f"{shard.url}/readyz").status_code == 200,
                figures=f"{load.recorder.acknowledged} writes acknowledged, writers were told {dict(load.answers)}, slowest "
                f"answer {slowest_answer:.2f} s, longest time without a read {longest_gap:.2f} s, age {status.age_seconds:.0f} s",
            )

    def of_an_idle_shard(self) -> SeenIdle:
        """Let a shard be cut off that nobody writes to."""
        with ExitStack() as stack, httpx.Client(timeout=10.0) as client:
            proxy, shard = self._start("idle", stack)
            with Load(shard, writers=1, seed=SEED) as load:
                load.await_acknowledged(20)
            _take_away(proxy, PARTITION)
            time.sleep(OUTAGE_SECONDS - 1.0)  # the outage itself
            searched = shard.search(client, search_for(shard, 0))
            return SeenIdle(
                sequence_before=load.sequence,
                searched=searched,
                age_after=_until(lambda: shard.status(client).age_seconds, lambda age: age < YOUNG_SECONDS),
                events=_events(shard),
            )

    def of_a_shard_that_is_stopped(self) -> SeenStopped:
        """Ask a shard to stop while it is cut off, and look at what its next process has."""
        with ExitStack() as stack:
            proxy, shard = self._start("stopped", stack)
            with Load(shard, writers=4, seed=SEED, pace=PACE) as load:
                load.await_acknowledged(100)
                _take_away(proxy, PARTITION)
                time.sleep(5.0)  # writes are under way by then
                started = time.monotonic()
                exit_code = shard.stop()
                seconds = time.monotonic() - started
            proxy.partition(0.0)
            shard.start()
            shard.await_ready()
            read_all(shard, load.recorder, "the end")
            return SeenStopped(
                exit_code=exit_code, seconds=seconds, anomalies=list(map(str, check(load.recorder.history)))
            )

    def of_a_shard_that_is_started(self) -> SeenStarted:
        """Start a shard whose credentials are refused, and accept them later."""
        with ExitStack() as stack, httpx.Client(timeout=10.0) as client:
            proxy, shard = self._start("started", stack)
            shard.write(client, operation(1, 1))
            shard.kill()
            proxy.rules = RULES["403"]
            with self._turns:
                shard.start()
                pid = shard.pid
                _until(lambda: _readiness(shard, client), lambda said: "store_denied" in said)
            time.sleep(REFUSED_SECONDS)
            readiness = _readiness(shard, client)
            health = client.get(f"{shard.url}/healthz").status_code
            proxy.rules = ()
            _until(lambda: _readiness(shard, client), lambda said: said == "ok")
            return SeenStarted(
                readiness=readiness,
                health=health,
                documents=shard.status(client).documents,
                is_same_process=shard.pid == pid,
            )

    def of_an_installation(self) -> SeenInstallation:
        """Let the bucket of a whole installation be cut off, and ask it by the command line."""
        data, docs = self._root / "installation", self._root / "docs"
        docs.mkdir()
        (docs / "lunch.txt").write_text("Lunch is served at noon in the hall.\n")
        (docs / "tea.txt").write_text("Tea is served at four in the garden.\n")
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_before(self._server, seed=SEED))
            bucket = ("--object-store", store_url(self._server, proxy))
            with self._turns:
                up = stack.enter_context(running_up(data, *bucket, manifests=TWO, **keys(self._server)))
                answer(data, "index", str(docs / "lunch.txt"), "--tenant", "acme")
            processes = up.children()
            proxy.partition(LONGEST_OUTAGE_SECONDS)
            time.sleep(OUTAGE_SECONDS)  # the outage itself
            evidence = answer(data, "evidence", "When is lunch served?", "--tenant", "acme")
            status = answer(data, "status", "--tenant", "acme")
            index = groundplane(data, "index", str(docs / "tea.txt"), "--tenant", "acme")
            proxy.partition(0.0)
            _until(lambda: groundplane(data, "index", str(docs), "--tenant", "acme")[0], lambda code: code == 0)
            return SeenInstallation(
                evidence=evidence,
                status=status[0]["answer"]["corpus"],
                index=index,
                index_after=answer(data, "index", str(docs), "--tenant", "acme"),
                processes_before=processes,
                processes_after=up.children(),
                said=up.lines,
            )

    def _start(self, name: str, stack: ExitStack) -> tuple[FaultProxy, ShardProcess]:
        proxy = stack.enter_context(proxy_before(self._server, seed=SEED))
        shard = shard_behind(self._root / name, self._server, proxy, {"GROUNDPLANE_SNAPSHOT_RECORDS": "60"})
        with self._turns:
            stack.enter_context(running(shard))
        return proxy, shard


def _take_away(proxy: FaultProxy, name: str) -> None:
    if name == PARTITION:
        proxy.partition(OUTAGE_SECONDS)
    proxy.rules = RULES[name]


def _events(shard: ShardProcess) -> list[str]:
    return [msgspec.json.decode(line)["event"] for line in shard.log_path.read_text().splitlines()]


def _readiness(shard: ShardProcess, client: httpx.Client) -> str:
    """Return what the shard's probe says; nothing before it listens."""
    try:
        return client.get(f"{shard.url}/readyz").text.strip()
    except httpx.TransportError:
        return ""


def _until(ask: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
    """Return the first answer that is enough, or the last one before time is up."""
    deadline = time.monotonic() + BACK_SECONDS
    while not is_enough(found := ask()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def outages(tmp_path_factory, s3_server) -> Iterator[dict[str, Future[Any]]]:
    """Everything that was seen, by the outage's name."""
    outages = Outages(tmp_path_factory.mktemp("outages"), s3_server)
    with ThreadPoolExecutor(len(RULES) + 4) as threads:
        seen = {name: threads.submit(outages.of_a_shard, name) for name in RULES}
        yield {
            **seen,
            "idle": threads.submit(outages.of_an_idle_shard),
            "stopped": threads.submit(outages.of_a_shard_that_is_stopped),
            "started": threads.submit(outages.of_a_shard_that_is_started),
            "installation": threads.submit(outages.of_an_installation),
        }


@pytest.mark.parametrize("name", RULES)
def test_nothing_acknowledged_is_lost_and_nothing_is_invented(outages, name, record_property):
    """Whatever a writer was told before, during and after an outage has to be true: I1-I4."""
    seen = outages[name].result()
    record_property("figures", seen.figures)

    assert seen.anomalies == []


@pytest.mark.parametrize("name", RULES)
def test_writes_are_answered_in_time(outages, name):
    """Callers must not hang. What a read waited, which needs no store, is the machine's share of it."""
    seen = outages[name].result()
    machine_seconds = BUSY_SECONDS + max(0.0, seen.longest_gap - PACE.between_reads_seconds)

    assert seen.slowest_answer - machine_seconds <= ANSWER_SECONDS


@pytest.mark.parametrize("name", RULES)
def test_reads_go_on(outages, name):
    """The bucket is the corpus, but what a process knows it can still tell."""
    seen = outages[name].result()

    assert seen.longest_gap <= READ_GAP_SECONDS
    assert seen.searched.sequence >= seen.sequence_before


@pytest.mark.parametrize("name", SILENT)
def test_answers_say_how_old_they_are(outages, name):
    """A reader must be able to tell that something newer may exist by now, and when that is over."""
    seen = outages[name].result()

    assert OLD_SECONDS <= seen.searched.age_seconds <= seen.status.age_seconds <= OUTAGE_SECONDS + YOUNG_SECONDS
    assert seen.age_after < YOUNG_SECONDS


@pytest.mark.parametrize("name", RULES)
def test_the_process_goes_on(outages, name):
    """A restart would throw away what can still be searched, and a restart loop would never get it back."""
    seen = outages[name].result()

    assert seen.is_same_process
    assert {"shard_opens_again", "snapshot_download"}.isdisjoint(seen.events)
    assert not {"writes_refused", "writes_suspended"}.isdisjoint(seen.events)


def test_an_idle_shard_says_its_age_too_and_finds_by_itself_that_the_store_is_back(outages):
    """Nobody writes to most corpora most of the time."""
    seen = outages["idle"].result()

    assert seen.searched.age_seconds >= OLD_SECONDS
    assert seen.searched.sequence == seen.sequence_before
    assert seen.age_after < YOUNG_SECONDS
    assert {"shard_opens_again", "writes_suspended"}.isdisjoint(seen.events)


def test_a_shard_that_is_stopped_during_an_outage_ends_in_time_and_loses_nothing(outages, record_property):
    """Whoever stopped it kills it otherwise, and its last words are missing."""
    seen = outages["stopped"].result()
    record_property("figures", f"ended after {seen.seconds:.1f} s")

    assert (seen.exit_code, seen.anomalies) == (0, [])
    assert seen.seconds <= STOP_SECONDS


def test_a_shard_that_is_started_while_its_store_refuses_it_says_why_and_waits(outages):
    """Credentials are mended by people: the process is up, names the refusal, wipes nothing, and goes on by itself."""
    seen = outages["started"].result()

    assert "store_denied" in seen.readiness
    assert (seen.health, seen.documents, seen.is_same_process) == (200, 1, True)


def test_an_installation_answers_with_sequence_and_age_during_an_outage(outages):
    """What the shard knows has to reach whoever asks."""
    seen = outages["installation"].result()
    own = seen.evidence["searched"]["tenant"]

    assert seen.evidence["hits"][0]["doc_id"] == "lunch.txt"
    assert (own["ok"], own["sequence"]) == (True, 2)
    assert own["age_seconds"] >= OLD_SECONDS
    assert seen.status["ready"]
    assert seen.status["age_seconds"] >= own["age_seconds"]


def test_an_installation_refuses_documents_during_an_outage_and_takes_them_afterwards(outages):
    """The command says that it may be repeated, and repeating it is enough."""
    code, _, error = outages["installation"].result().index

    assert code != 0
    assert "Traceback" not in error
    assert outages["installation"].result().index_after["unchanged"] == 2


def test_nothing_of_an_installation_is_restarted_by_an_outage(outages):
    """A supervisor that restarts what is cut off makes an outage of the store one of the reads."""
    seen = outages["installation"].result()

    assert seen.processes_after == seen.processes_before
    assert not [line for line in seen.said if "ended" in line]
