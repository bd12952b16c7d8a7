"""A second cluster beside the one that the other tests run in, to be made, broken and removed."""

import os
from collections.abc import Iterator

import pytest

from e2e.cluster import lifecycle
from e2e.cluster.environment import Environment
from e2e.cluster.state import Cluster, state_directory
from e2e.cluster.toolchain import cache_directory

NAME = "spare"


@pytest.fixture(scope="session", autouse=True)
def _own_cluster(environment: Environment) -> None:
    """Skip where the cluster is not of our making: then there is no program of ours to be tested."""
    if environment.kind != "own":
        pytest.skip("these tests are about clusters that e2e.cluster makes")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give what the spare cluster is to be. A test may find it made by the test before; the last one's is removed.

    Its files lie below /tmp, of which the node sees another: what the cluster needs has to be seen through it.
    """
    home = tmp_path_factory.mktemp("state", numbered=True)
    folder = state_directory({"XDG_STATE_HOME": str(home)}, NAME)
    yield lifecycle.new_cluster(folder, cache_directory(os.environ), has_node=True)
    lifecycle.down(folder)
