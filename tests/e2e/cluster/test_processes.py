"""What belongs to a cluster is found and ended, and nothing else."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from e2e.cluster import processes, state
from e2e.cluster.lifecycle import new_cluster
from e2e.cluster.processes import (
    MARK,
    Component,
    ProcessRecord,
    end_all,
    living,
    record,
    require_alive,
    start,
    start_ticks,
)
from e2e.cluster.state import Cluster
from e2e.cluster.steps import StepFailed, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give a cluster without a node, in which nothing runs yet."""
    made = new_cluster(tmp_path / "some", tmp_path / "cache", has_node=False)
    state.write(made)
    yield made
    end_all(made.directory)


def sleeper(*, seconds: int = 60) -> Component:
    """Return a component that does nothing."""
    return Component(name="sleeper", command=("sleep", str(seconds)))


def ended(pid: int) -> None:
    """Return when a process has ended."""
    wait_until(lambda: start_ticks(pid) is None, what=f"{pid} ended", limit_seconds=10, explain=lambda: "it runs")


def test_a_started_program_is_recorded_and_ended(cluster: Cluster):
    """`up` starts it, `down`, another process, ends it."""
    start(cluster, sleeper())
    started = record(cluster.directory, "sleeper")
    assert started.pid in living(cluster.directory)

    end_all(cluster.directory)

    assert not started.is_alive


def test_a_program_without_a_record_is_ended_too(cluster: Cluster):
    """`up` may be killed between starting a program and recording it."""
    start(cluster, sleeper())
    started = record(cluster.directory, "sleeper")
    (cluster.directory / "processes" / "sleeper.json").unlink()

    end_all(cluster.directory)

    assert not started.is_alive


def test_a_process_that_got_the_id_later_is_left_alone(cluster: Cluster):
    """After a reboot the recorded ids are other people's processes."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        stale = ProcessRecord(name="etcd", pid=stranger.pid, start_ticks=1)
        (cluster.directory / "processes" / "etcd.json").write_bytes(msgspec.json.encode(stale))

        end_all(cluster.directory)

        assert stranger.poll() is None
        stranger.kill()


def test_another_clusters_programs_are_left_alone(cluster: Cluster, tmp_path: Path):
    """A control plane for tests runs beside a whole cluster."""
    neighbour = {**os.environ, MARK: f"{cluster.directory}-2"}
    with subprocess.Popen(["sleep", "60"], env=neighbour) as process:
        end_all(cluster.directory)

        assert process.poll() is None
        process.kill()


def test_a_program_that_ended_is_told_with_its_log(cluster: Cluster):
    """The last lines of the component that failed are what the person needs."""
    start(cluster, Component(name="etcd", command=("sh", "-c", "echo address already in use; exit 1")))
    ended(record(cluster.directory, "etcd").pid)

    with pytest.raises(
        StepFailed, match=r"etcd has ended; the last lines of .*etcd\.log:\n  \| address already in use"
    ):
        require_alive(cluster)


def test_a_program_that_cannot_be_started_is_named(cluster: Cluster):
    """A missing program is an ordinary failure, not a traceback."""
    with pytest.raises(StepFailed, match="cannot start etcd, /no/such/etcd: No such file or directory"):
        start(cluster, Component(name="etcd", command=("/no/such/etcd",)))


def test_programs_get_nothing_of_the_users_environment(cluster: Cluster, monkeypatch):
    """A proxy or a token in the user's shell must neither change a cluster nor end up in it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    start(cluster, Component(name="printer", command=("env",)))
    ended(record(cluster.directory, "printer").pid)

    names = {line.split("=")[0] for line in cluster.log("printer").read_text().splitlines()}

    assert names == {"PATH", "HOME", MARK}


def test_the_moment_of_a_start_survives_odd_names(tmp_path: Path):
    """The name of a process may hold blanks and brackets, and stands before the field that is wanted."""
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as process:
        assert (start_ticks(process.pid) or 0) >= (start_ticks(os.getpid()) or 0) > 0
        process.kill()


def test_a_process_that_waits_to_be_reaped_does_not_run():
    """Its parent may be a test runner that looks later."""
    process = subprocess.Popen(["true"])
    ended(process.pid)

    assert processes.start_ticks(process.pid) is None
    process.wait()
