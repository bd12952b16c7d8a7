"""Clusters are made whatever an earlier run left, and removed without a trace."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e.cluster import lifecycle, processes
from e2e.cluster.control_plane import apply, kubectl
from e2e.cluster.images.pause import pause_image
from e2e.cluster.remains import remains
from e2e.cluster.state import Cluster
from e2e.cluster.steps import Command, StepFailed, run, wait_until

KILLS = 5
UP_SECONDS = 15.0  # what a whole `up` takes on two cores
SEED = random.SystemRandom().randrange(1_000_000)


def render_pod(image: str) -> bytes:
    """Return a pod with every kind of mount that the kubelet makes: memory, disk, token."""
    mounts = [{"name": "memory", "mountPath": "/memory"}, {"name": "disk", "mountPath": "/disk"}]
    container = {"name": "pause", "image": image, "command": ["/pause"], "volumeMounts": mounts}
    volumes = [{"name": "memory", "emptyDir": {"medium": "Memory"}}, {"name": "disk", "emptyDir": {}}]
    spec = {"containers": [container], "volumes": volumes}
    metadata = {"name": "pause", "namespace": "default"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).encode()


def machine() -> set[str]:
    """Return what a cluster could leave on the machine: mounts, network interfaces and namespaces, control groups."""
    with Path("/proc/mounts").open() as mounts:
        places = {f"mount {line.split()[1]}" for line in mounts}
    links = {f"link {link.name}" for link in Path("/sys/class/net").iterdir()}
    namespaces = {f"namespace {path.name}" for path in Path("/run/netns").glob("*")}
    folders = ("/sys/fs/cgroup", "/var/log", "/var/lib", "/run", "/tmp")
    groups = {str(path) for folder in folders for path in Path(folder).glob("*/groundplane-spare")}
    left = {
        str(path)
        for path in map(Path, ("/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods"))
        if path.exists()
    }
    return places | links | namespaces | groups | left


def test_a_healthy_cluster_is_used_again(wanted: Cluster) -> None:
    """`up` before every test run costs a second, not a cluster."""
    before = processes.records(lifecycle.up(wanted).directory)

    again = lifecycle.up(wanted)

    assert processes.records(again.directory) == before


@pytest.mark.parametrize("victim", ["node", "etcd", "volumes"])
def test_a_half_dead_cluster_is_made_anew(wanted: Cluster, victim: str) -> None:
    """A component that was killed is noticed before the tests fail for reasons that nobody understands."""
    lost = processes.record(lifecycle.up(wanted).directory, victim)
    os.kill(lost.pid, signal.SIGKILL)
    wait_until(lambda: not lost.is_alive, what=f"{victim} has ended", limit_seconds=10, explain=lambda: "it runs")

    repaired = lifecycle.up(wanted)

    assert processes.record(repaired.directory, victim) != lost
    assert lifecycle.why_not_usable(repaired) is None


def test_up_is_finished_after_it_was_killed_at_any_moment(wanted: Cluster) -> None:
    """A test run that is aborted, wherever it was, must not need a person before the next one."""
    moments = random.Random(SEED)
    environment = {**os.environ, "XDG_STATE_HOME": str(wanted.directory.parents[2])}
    for delay in (moments.uniform(0, UP_SECONDS) for _ in range(KILLS)):
        started = subprocess.Popen([sys.executable, "-m", "e2e.cluster", "--name", wanted.name, "up"], env=environment)
        time.sleep(delay)  # the moment is the point of the test
        started.send_signal(signal.SIGKILL)
        started.wait()

    cluster = lifecycle.up(wanted)

    assert lifecycle.why_not_usable(cluster) is None, f"seed {SEED}"
    lifecycle.down(cluster.directory)
    assert remains(cluster.directory) == [], f"seed {SEED}"


def test_nothing_stays_on_the_machine(wanted: Cluster) -> None:
    """Whoever runs the tests as root gets the machine back as it was, pods and all."""
    lifecycle.down(wanted.directory)
    before = machine()
    pause = pause_image(wanted.cache)
    cluster = lifecycle.up(wanted)
    apply(cluster, render_pod(pause.reference))
    run(kubectl(cluster, "wait", "--for=condition=Ready", "pod/pause", "--timeout=60s"))
    assert remains(cluster.directory)

    lifecycle.down(cluster.directory)

    assert remains(cluster.directory) == []
    assert machine() - before == set()


def test_a_namespace_of_somebody_else_is_left_alone(wanted: Cluster) -> None:
    """The name of the network namespace may be taken; what runs in it is not ours to end."""
    lifecycle.down(wanted.directory)
    with taken_namespace(wanted.machine_name) as pid:
        with pytest.raises(StepFailed, match=rf"is taken: process {pid} \(sleep\)"):
            lifecycle.up(wanted)
        lifecycle.down(wanted.directory)

        assert processes.start_ticks(pid) is not None
        assert wanted.network_namespace.exists()


@contextmanager
def taken_namespace(name: str) -> Iterator[int]:
    """Give the id of a process that runs in a network namespace of this name."""
    run(Command(arguments=("ip", "netns", "add", name)))
    process = subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", "sleep", "120"])
    try:
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":  # it is still nsenter
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.wait()
        run(Command(arguments=("ip", "netns", "delete", name)))
