"""A Kubernetes API server of our own, and a namespace of its own for each test."""

import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster.control_plane import kubectl
from e2e.cluster.state import Cluster
from e2e.cluster.steps import run
from tests.support.control_plane import running_control_plane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a control plane without nodes, one for all tests of this process."""
    with running_control_plane(tmp_path_factory.mktemp("clusters") / "control-plane") as cluster:
        yield cluster


@pytest.fixture
def namespace(control_plane: Cluster) -> str:
    """Give a namespace that no other test uses; it ends with the control plane."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    run(kubectl(control_plane, "create", "namespace", name))
    return name
