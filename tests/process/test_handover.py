"""A second process of a corpus follows the log of the first and takes over, while writers and readers go on.

That is every rolling replacement of a shard. How long nobody's write is acknowledged is measured by `make bench`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.checkers.checkers import check
from tests.support.load import Load
from tests.support.processes import READY_SECONDS, ShardProcess
from tests.support.seaweedfs import S3Server
from tests.support.writes import DIMENSION, read_all

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SEED = 20261201
WRITERS = 4
BEFORE, BETWEEN, AFTER = 400, 50, 100  # acknowledged writes


class Handover:
    """What was seen of one hand-over: the load, and what the first process said of itself afterwards."""

    def __init__(self, first: ShardProcess) -> None:
        self.first, self.second = first, first.twin()
        self.load = Load(first, writers=WRITERS, seed=SEED)
        self.acknowledged_meanwhile = 0
        self.first_says = ""
        self.first_is_alive = False

    def run(self) -> None:
        """Hand over from the first process to the second under load, and read everything at the end."""
        self.first.start()
        self.first.await_ready()
        with self.load:
            self.load.await_acknowledged(BEFORE)
            before = self.load.recorder.acknowledged
            self.second.start()
            self.load.await_acknowledged(BETWEEN)
            self.second.await_ready()
            self.acknowledged_meanwhile = self.load.recorder.acknowledged - before
            self.load.target = self.second
            self.load.await_acknowledged(AFTER)
            self.first_says = self._await_superseded()
            self.first_is_alive = self.first.is_running
        read_all(self.second, self.load.recorder, "the end")

    def close(self) -> None:
        """Kill what runs still."""
        for shard in (self.first, self.second):
            if shard.is_running:
                shard.kill()

    def _await_superseded(self) -> str:
        ends = time.monotonic() + READY_SECONDS
        with httpx.Client(timeout=5.0) as client:
            while (answer := client.get(f"{self.first.url}/readyz")).status_code == 200 and time.monotonic() < ends:
                time.sleep(0.05)
        return answer.text.strip()


@pytest.fixture(scope="module")
def handover(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Handover]:
    """A hand-over that is over."""
    handover = Handover(shard_in_bucket(tmp_path_factory.mktemp("handover"), s3_server))
    try:
        handover.run()
        yield handover
    finally:
        handover.close()


def shard_in_bucket(directory: Path, server: S3Server) -> ShardProcess:
    """Return a shard that publishes a snapshot now and then, also while another process restores one."""
    location = server.location()
    settings = {
        "GROUNDPLANE_STORE_DIRECTORY": "",
        "GROUNDPLANE_OBJECT_STORE": f"s3://{location.bucket}/{location.prefix}?endpoint={location.endpoint}",
        "GROUNDPLANE_S3_ACCESS_KEY": server.settings.access_key,
        "GROUNDPLANE_S3_SECRET_KEY": server.settings.secret_key,
        "GROUNDPLANE_SNAPSHOT_RECORDS": "150",
        "GROUNDPLANE_SNAPSHOTS_KEEP": "2",
    }
    return ShardProcess(directory, dimension=DIMENSION, settings=settings)


def test_nothing_is_lost_invented_or_half_seen_over_a_handover(handover):
    """Whoever replaces a shard need not stop its writers first."""
    anomalies = check(handover.load.recorder.history)

    assert [msgspec.to_builtins(anomaly) for anomaly in anomalies[:5]] == []


def test_the_first_process_goes_on_while_the_second_restores(handover):
    """A large corpus takes a while to fetch; until then there is somebody who writes."""
    assert handover.acknowledged_meanwhile >= BETWEEN


def test_the_first_process_stays_up_and_unready(handover):
    """Its probe says why, so that whoever runs it can replace it; started again by itself it would duel with the second."""
    assert handover.first_is_alive
    assert handover.first_says.startswith("superseded")


def test_the_second_process_is_a_later_writer(handover):
    """Its epoch is what shuts the first one out."""
    with httpx.Client(timeout=10.0) as client:
        status = handover.second.status(client)

    assert status.epoch > 1
    assert status.sequence >= handover.load.sequence
