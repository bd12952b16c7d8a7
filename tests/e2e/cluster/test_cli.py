"""The verbs say what is wrong in one line and with the right exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import state
from e2e.cluster.lifecycle import new_cluster

ROOT = Path(__file__).parents[3]


@pytest.fixture
def call(tmp_path: Path):
    """Give a function that calls the program with its state in the test's folder."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "e2e.cluster", *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60
        )

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> state.Cluster:
    """Give a control plane alone that was recorded and never started."""
    cluster = new_cluster(state.state_directory({"XDG_STATE_HOME": str(tmp_path)}, "tiny"), tmp_path, has_node=False)
    state.write(cluster)
    return cluster


@pytest.mark.parametrize("verb", [["status"], ["env"], ["kubectl", "get", "pods"], ["run", "true"], ["logs", "etcd"]])
def test_without_a_cluster_it_is_said_how_to_make_one(call, verb: list[str]):
    """The commonest mistake, on the first day."""
    finished = call(*verb)

    assert finished.returncode == 1
    assert finished.stderr == "groundplane: no cluster e2e on this machine: make it with `up`\n"


def test_a_name_that_cannot_be_one_is_refused(call):
    """It becomes part of paths that root removes."""
    finished = call("--name", "../../etc", "down")

    assert (finished.returncode, finished.stderr.startswith("groundplane: cluster name '../../etc'")) == (1, True)


def test_removing_what_is_not_there_is_no_failure(call):
    """`make cluster-down` may be called at any time."""
    assert call("down").returncode == 0


def test_a_cluster_whose_making_was_cut_short_is_unusable_and_removed(call, recorded: state.Cluster):
    """What a killed `up` leaves is seen by `status` and goes with `down`."""
    status, down = call("--name", "tiny", "status"), call("--name", "tiny", "down")

    assert "cannot be used: its making was cut short" in status.stderr
    assert (status.returncode, down.returncode, recorded.directory.exists()) == (1, 0, False)


def test_the_shell_gets_what_it_needs(call, recorded: state.Cluster):
    """`eval` of the output must not depend on what paths look like."""
    assert f"export KUBECONFIG={recorded.kubeconfig}\n" in call("--name", "tiny", "env").stdout


def test_images_are_not_loaded_where_no_node_is(call, recorded: state.Cluster):
    """A control plane alone has no containerd."""
    assert "has no node to load images into" in call("--name", "tiny", "load-image", "x.tar").stderr


def test_a_log_that_is_not_there_names_those_that_are(call, recorded: state.Cluster):
    """Nobody knows the names of the components by heart."""
    recorded.log("etcd").touch()

    assert "no log of etc: expected one of etcd" in call("--name", "tiny", "logs", "etc").stderr


def test_options_of_another_command_are_its_own(call, recorded: state.Cluster):
    """`kubectl -n tenant get pods` is typed as everywhere else."""
    finished = call("--name", "tiny", "run", "echo", "--name", "x", "-n", "y")

    assert finished.stdout == "--name x -n y\n"
