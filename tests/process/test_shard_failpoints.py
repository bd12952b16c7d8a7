"""A shard that dies at any step of its work comes back with everything it acknowledged and nothing that nobody sent.

Several corpora go through a chain of lives side by side. In each life the process dies at one named place, under writes
or while it starts or stops; as soon as a later life is ready, everything it holds is compared with what was written.
"""

import os
import random
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from groundplane_shard.failpoints import Failpoint
from tests.checkers.checkers import check
from tests.support.processes import ShardProcess
from tests.support.recording import Recorder
from tests.support.writes import DIMENSION, Versions, begin_write, operation, read_all

pytestmark = pytest.mark.process

DOCUMENTS = 12
STOP_AFTER_WRITES = 3
LIFE_WRITES = 2_000  # more than any place needs to be reached
SETTINGS = {
    "GROUNDPLANE_TESTING": "1",
    "GROUNDPLANE_SNAPSHOT_RECORDS": "3",
    "GROUNDPLANE_SNAPSHOTS_KEEP": "1",  # so that every snapshot leaves something to collect
}


class Life(msgspec.Struct, frozen=True):
    """One life of a process: where it dies, and whether it is asked to stop after its first writes."""

    point: Failpoint
    turn: int = 1
    is_stopped: bool = False

    @property
    def name(self) -> str:
        return f"{self.point}:{self.turn}"


CHAINS: Sequence[Sequence[Life]] = (
    (
        Life(Failpoint.MANIFEST_CREATE_SENT),
        Life(Failpoint.MANIFEST_REPLACE_SENT, 2),  # the analyser's id
        Life(Failpoint.LOG_PUT_SENT, 3),
        Life(Failpoint.BEFORE_ACKNOWLEDGE, 2),
        Life(Failpoint.TABLE_MERGED, 2),  # the first snapshot of this life and its collection are complete
        Life(Failpoint.UPLOAD_SENT, 2),
        Life(Failpoint.MANIFEST_REPLACE_SENT, 2),  # the snapshot's listing
        Life(Failpoint.DELETE_SENT),
        Life(Failpoint.SNAPSHOT_FILE_DOWNLOADED, 3),
        Life(Failpoint.STOPPING, is_stopped=True),
    ),
    (
        Life(Failpoint.MANIFEST_CREATE_DONE),
        Life(Failpoint.MANIFEST_REPLACE_DONE, 3),  # the embedding's identity
        Life(Failpoint.LOG_PUT_DONE, 3),
        Life(Failpoint.STATISTICS_WRITTEN, 2),
        Life(Failpoint.UPLOAD_DONE, 2),
        Life(Failpoint.MANIFEST_REPLACE_DONE, 2),
        Life(Failpoint.SNAPSHOT_RESTORED),
        Life(Failpoint.MANIFEST_REPLACE_SENT, 1),  # the epoch
        Life(Failpoint.DELETE_DONE, 2),
        Life(Failpoint.STOPPED, is_stopped=True),
    ),
    (
        Life(Failpoint.STORE_CHECKED),
        Life(Failpoint.BARRIER_SENT),
        Life(Failpoint.TAKEN_OVER),
        Life(Failpoint.APPLIED, 4),
        Life(Failpoint.MEMTABLE_FROZEN, 2),
        Life(Failpoint.BASE_SWAPPED),
        Life(Failpoint.TABLE_COPIED),
        Life(Failpoint.VERIFY_DONE, 2),
        Life(Failpoint.SNAPSHOT_PUBLISHED, 2),
        Life(Failpoint.LOG_READ),
        Life(Failpoint.MANIFEST_REPLACE_DONE, 1),
        Life(Failpoint.BARRIER_DONE),
    ),
)


class Corpus:
    """One corpus and what was written to it over all lives of its processes."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.recorder = Recorder()
        self.faults: dict[str, list[str]] = {}  # by the life after which they were seen
        self.died_at: set[Failpoint] = set()
        self._random = random.Random(seed)
        self._versions = Versions(self._random)
        self._first = ShardProcess(root, dimension=DIMENSION, settings=SETTINGS)

    def go_through(self, lives: Sequence[Life]) -> None:
        """Live all `lives` and one more, which does not die by itself."""
        unchecked: list[str] = []
        for life in (*lives, None):
            shard = self._start(life)
            try:
                if await_ready_or_dead(shard):
                    found = self._try_read(shard)
                    if found is not None:
                        self.faults |= {name: self.faults[name] + found for name in unchecked}
                        unchecked = []
                        self._write_until_dead(shard, life)
                if life is not None:
                    self._note_end(life, shard.await_end())
                    unchecked = [*unchecked, life.name]
            finally:
                shard.kill()
        assert unchecked == [], "the last life was not read"

    def _start(self, life: Life | None) -> ShardProcess:
        settings = {**SETTINGS, "GROUNDPLANE_FAILPOINTS": life.name if life is not None else ""}
        shard = ShardProcess(self.root, dimension=DIMENSION, settings=settings)
        shard.incarnation = self._first.incarnation
        shard.start()
        return shard

    def _note_end(self, life: Life, code: int) -> None:
        if code == -signal.SIGKILL:
            self.died_at.add(life.point)
        self.faults[life.name] = [] if code == -signal.SIGKILL else [f"the process ended with {code}"]

    def _try_read(self, shard: ShardProcess) -> list[str] | None:
        """Read every document and return whatever is wrong by now; None if the process died of a snapshot meanwhile."""
        try:
            read_all(shard, self.recorder, "reader")
        except httpx.TransportError:
            return None
        return list(map(str, check(self.recorder.history)))

    def _write_until_dead(self, shard: ShardProcess, life: Life | None) -> None:
        with httpx.Client(timeout=10.0) as client:
            for turn in range(LIFE_WRITES if life is not None else 3):
                if life is not None and life.is_stopped and turn == STOP_AFTER_WRITES:
                    os.kill(shard.pid, signal.SIGTERM)
                    return
                number = self._random.randrange(DOCUMENTS)
                version = self._versions.next(number)
                call = begin_write(self.recorder, "writer", number, version)
                try:
                    acknowledged = shard.write(client, operation(number, version))
                except httpx.HTTPError:
                    return
                call.ok(sequence=acknowledged.sequence)


def await_ready_or_dead(shard: ShardProcess) -> bool:
    """Return whether the shard became ready, or died before."""
    try:
        shard.await_ready()
    except AssertionError:
        if shard.await_end(0) != -signal.SIGKILL:  # TimeoutExpired if it is alive
            raise
        return False
    return True


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> list[Corpus]:
    """Every corpus after its last life."""
    corpora = [Corpus(tmp_path_factory.mktemp(f"chain-{number}"), seed=number) for number in range(len(CHAINS))]
    with ThreadPoolExecutor(len(CHAINS)) as threads:
        list(threads.map(Corpus.go_through, corpora, CHAINS))
    return corpora


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("chain", "life"),
    [pytest.param(chain, life, id=life.name) for chain, lives in enumerate(CHAINS) for life in lives],
)
def test_nothing_acknowledged_is_lost_by_dying_at(corpora, chain, life):
    """A power cut comes at any moment: I1, I2, I4, I6, I8."""
    assert corpora[chain].faults[life.name] == []


@pytest.mark.timeout(180)
def test_writes_were_acknowledged_between_the_deaths(corpora):
    """A shard that refuses everything loses nothing either."""
    assert all(corpus.recorder.acknowledged >= 20 for corpus in corpora)


@pytest.mark.timeout(180)
def test_every_failpoint_that_is_declared_was_seen_to_kill_a_process(corpora, record_property):
    """A step that was added is to be tried, and a place that is never reached shows nothing."""
    died_at = set.union(*(corpus.died_at for corpus in corpora))
    record_property("figures", f"a process died at {len(died_at)} of {len(Failpoint)} places")

    assert died_at == set(Failpoint)
