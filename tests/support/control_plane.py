"""A real Kubernetes API for tests: etcd, API server and controller manager on 127.0.0.1, built once, up in seconds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from e2e.cluster import builds, control_plane, lifecycle
from e2e.cluster.state import Cluster
from e2e.cluster.toolchain import cache_directory


def is_ready() -> bool:
    """Whether nothing has to be built."""
    return not builds.plan_builds(cache_directory(os.environ), control_plane.PROGRAMS)


def build() -> None:
    """Build what the cache lacks. Raises `e2e.cluster.steps.StepFailed`."""
    builds.build(cache_directory(os.environ), control_plane.PROGRAMS)


@contextmanager
def running_control_plane(directory: Path) -> Iterator[Cluster]:
    """Give a control plane with its files in `directory`; it ends with the block, or with this process if that is killed."""
    wanted = lifecycle.new_cluster(directory, cache_directory(os.environ), has_node=False)
    try:
        yield lifecycle.up(msgspec.structs.replace(wanted, ends_with_us=True))
    finally:
        lifecycle.down(directory)
