"""The node's control groups: one of our own in each hierarchy, below which the kubelet keeps its pods.

A machine has one hierarchy of version 2, or several of version 1 with one controller or more in each, or both.
"""

import os
from contextlib import suppress
from pathlib import Path

from e2e.cluster.state import Cluster
from e2e.cluster.steps import StepFailed, wait_until

KUBELET_CONTROLLERS = ("cpu", "cpuset", "hugetlb", "memory", "pids")  # what it demands where they can be switched off
REMOVED_SECONDS = 15.0


def make_control_groups(cluster: Cluster) -> None:
    """Make the node's control group in every hierarchy. Raises StepFailed."""
    for group in control_groups(cluster):
        _switch_on(group.parent)
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            raise StepFailed(f"{group} cannot be made: {error.strerror}; {_advice()}") from error


def remove_control_groups(cluster: Cluster) -> None:
    """Remove the node's control groups; their processes have ended. Raises StepFailed if one cannot be removed."""
    wait_until(
        lambda: all(_is_removed(group) for group in control_groups(cluster)),
        what="the node's control groups are removed",
        limit_seconds=REMOVED_SECONDS,
        explain=lambda: f"still there: {', '.join(str(group) for group in control_groups(cluster) if group.exists())}",
    )


def control_groups(cluster: Cluster) -> list[Path]:
    """Return the node's control group in each hierarchy that is mounted."""
    return [place / cluster.machine_name for place in hierarchies(Path("/proc/mounts").read_text())]


def hierarchies(mounts: str) -> list[Path]:
    """Return where control group hierarchies are mounted, from the text of /proc/mounts."""
    fields = [line.split() for line in mounts.splitlines()]
    return sorted({Path(place) for _, place, kind, *_ in fields if kind in {"cgroup", "cgroup2"}})


def missing_controllers(available: str, switched_on: str) -> list[str]:
    """Return what has to be switched on of the controllers that a hierarchy has; both are lists with blanks between."""
    return [name for name in KUBELET_CONTROLLERS if name in available.split() and name not in switched_on.split()]


def _switch_on(hierarchy: Path) -> None:
    """Give the groups of a hierarchy of version 2 the controllers that the kubelet demands; version 1 has them on."""
    available, switches = hierarchy / "cgroup.controllers", hierarchy / "cgroup.subtree_control"
    if not available.exists():
        return
    for controller in missing_controllers(available.read_text(), switches.read_text()):
        try:
            switches.write_text(f"+{controller}")
        except OSError as error:
            raise StepFailed(
                f"{controller} cannot be switched on in {switches}: {error.strerror}; {_advice()}"
            ) from error


def _is_removed(top: Path) -> bool:
    for group, _, _ in os.walk(top, topdown=False):  # children before parents
        with suppress(OSError):  # gone already, or the kernel is still taking its last process out
            Path(group).rmdir()
    return not top.exists()


def _advice() -> str:
    return "in a container, give it the machine's control groups (docker run --privileged --cgroupns=host)"
