"""What a cluster has on this machine: all that `down` has to have removed."""

import os
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.control_groups import hierarchies
from e2e.cluster.processes import describe, living
from e2e.cluster.state import machine_name


def remains(directory: Path) -> list[str]:
    """Return what is left of the cluster whose folder this is or was, each as a few words; [] after a complete `down`."""
    mounts = Path("/proc/mounts").read_text()
    return [
        *(describe(pid) for pid in sorted(set(living(directory)))),
        *remaining_mounts(mounts, directory),
        *_remaining_folders(mounts, directory),
    ]


def remaining_mounts(mounts: str, directory: Path) -> Iterator[str]:
    """Yield the mounts of a cluster, from the text of /proc/mounts: its network namespace and what lies below its folder."""
    network = f"/run/netns/{machine_name(directory.name)}"
    for place in (Path(line.split()[1]) for line in mounts.splitlines()):
        if place.is_relative_to(directory) or str(place) == network:
            yield f"mount {place}"


def _remaining_folders(mounts: str, directory: Path) -> Iterator[str]:
    name = machine_name(directory.name)
    groups = [top / name for top in hierarchies(mounts)]
    for path in (directory, Path("/run/netns", name), *groups):
        if os.path.lexists(path):
            yield f"{path}"
