"""Making, examining and removing a cluster."""

import os
import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path

from e2e.cluster import control_plane, node, state
from e2e.cluster.addons import render_addons
from e2e.cluster.builds import build, require_free_space
from e2e.cluster.control_groups import make_control_groups, remove_control_groups
from e2e.cluster.debian import require_programs
from e2e.cluster.images.pause import pause_image
from e2e.cluster.locks import lock
from e2e.cluster.namespaces import make_network, remove_network, require_free, start_node
from e2e.cluster.ports import free_ports
from e2e.cluster.processes import end_all, records
from e2e.cluster.remains import remains
from e2e.cluster.state import Cluster, lock_file
from e2e.cluster.steps import StepFailed, say
from e2e.cluster.unpacked import unpacked_program

LOCK_SECONDS = 600.0  # more than all limits of an `up` together
FREE_BYTES = 2 << 30  # images and volumes


def up(wanted: Cluster) -> Cluster:
    """Return a running cluster: the one that is there if it is healthy, else a new one in its place.

    What an earlier run left, at whatever point it was cut short, is removed first. Raises StepFailed; what was started
    by then stays, for its logs, until the next `up` or `down`.
    """
    prepare_machine(wanted)
    with _locked(wanted.directory):
        there = state.read(wanted.directory)
        if there is not None:
            reason = why_not_usable(there)
            if reason is None:
                say(f"cluster {there.name} runs and is healthy: it is used as it is")
                return there
            say(f"cluster {there.name} is begun again: {reason}")
        return _make(wanted)


def down(directory: Path) -> None:
    """Remove a cluster with everything it left on this machine; nothing if there is none. Raises StepFailed."""
    with _locked(directory):
        _remove(directory)


def prepare_machine(cluster: Cluster) -> None:
    """Make sure that this machine has what a cluster needs: rights, programs, room. Raises StepFailed."""
    if cluster.has_node:
        require_root()
        require_programs(node.PACKAGES)
        for name in ("containerd", "prometheus"):
            unpacked_program(cluster.cache, name)
    build(cluster.cache, (*control_plane.PROGRAMS, *(node.PROGRAMS if cluster.has_node else ())))
    require_free_space(cluster.directory, FREE_BYTES)


def require_root() -> None:
    """Raise StepFailed unless we may make namespaces and mounts."""
    if os.geteuid() != 0:
        raise StepFailed(
            "a node needs root, for network namespaces, mounts and containers: run this as root, "
            "or install kind, or set KUBECONFIG to a cluster of yours (docs/cluster.md)"
        )


def why_not_usable(there: Cluster) -> str | None:
    """Return why a cluster cannot be used as it is; None if it can."""
    if not state.is_complete(there):
        return "its making was cut short, or this program has changed since"
    dead = [found.name for found in records(there.directory) if not found.is_alive]
    if dead:
        return f"{', '.join(dead)} ended"
    try:
        silent = [] if control_plane.is_ready(there) else ["kube-apiserver"]
    except StepFailed as failure:  # it ended just now
        return str(failure)
    if not silent and there.has_node:
        silent = node.unready(there)
    return f"no answer from {', '.join(silent)}" if silent else None


def new_cluster(directory: Path, cache: Path, *, has_node: bool) -> Cluster:
    """Return what a cluster of this folder would be; nothing is made."""
    ports = state.Ports() if has_node else free_ports()
    return Cluster(name=directory.name, directory=directory, cache=cache, has_node=has_node, ports=ports)


def _make(cluster: Cluster) -> Cluster:
    started = time.monotonic()
    _remove(cluster.directory)
    if cluster.has_node:
        require_free(cluster)  # before our record exists: `down` removes what the record names
    state.write(cluster)
    control_plane.write_configuration(cluster)
    if cluster.has_node:
        _make_node(cluster)
    else:
        control_plane.start_control_plane(cluster)
    state.mark_complete(cluster)
    say(f"cluster {cluster.name} is ready after {time.monotonic() - started:.0f} s")
    return cluster


def _make_node(cluster: Cluster) -> None:
    pause = pause_image(cluster.cache)
    make_network(cluster)
    make_control_groups(cluster)
    start_node(cluster)
    node.write_configuration(cluster, pause.reference)
    node.start_runtime(cluster)
    control_plane.start_control_plane(cluster)
    control_plane.apply(cluster, render_addons())
    node.start_kubernetes(cluster)
    node.wait_for_runtime(cluster)
    node.import_images(cluster, [pause.path])
    node.wait_until_ready(cluster)


def _remove(directory: Path) -> None:
    """Remove processes, namespaces, control groups and files, in this order, each whether or not it is there."""
    there = state.read(directory)
    end_all(directory)
    if there is not None and there.has_node:
        remove_network(there)
        remove_control_groups(there)
    if directory.exists():
        shutil.rmtree(directory)
    left = remains(directory) if there is not None else []
    if left:
        raise StepFailed(f"cluster {directory.name} is not gone: {', '.join(left[:10])} of {len(left)} are still there")


def _locked(directory: Path) -> AbstractContextManager[None]:
    return lock(
        lock_file(directory), what="another run of this program lets go of the cluster", limit_seconds=LOCK_SECONDS
    )
