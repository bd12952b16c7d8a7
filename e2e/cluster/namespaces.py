"""The node's place on this machine: a network, mounts, process ids and control groups of its own.

Nothing that happens on the node can touch the machine: it shares no network with it, sees its own /run, /tmp, /var/lib
and /var/log, and ends with its first process.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from e2e.cluster.processes import NODE_PROCESS, describe, log_end, process_ids, record, spawn
from e2e.cluster.state import NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK, Cluster
from e2e.cluster.steps import Command, StepFailed, run, wait_until

BRIDGE = "cni0"
PREPARED_SECONDS = 30.0
# Network settings that are switched on: packets between pods are forwarded, and pass the rules of Services and policies.
SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
KUBELET_CONTROLLERS = ("cpu", "cpuset", "hugetlb", "memory", "pids")  # of version 2, where they have to be switched on
INIT = Path(__file__).with_name("init.py")


def make_network(cluster: Cluster) -> None:
    """Make the network namespace with the bridge of the pods in it."""
    name = cluster.machine_name
    _run("ip", "netns", "add", name)
    inside = ("ip", "-n", name)
    prefix = POD_NETWORK.split("/")[1]
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "link", "add", BRIDGE, "type", "bridge")
    _run(*inside, "address", "add", f"{NODE_ADDRESS}/{prefix}", "dev", BRIDGE)
    _run(*inside, "link", "set", BRIDGE, "up")
    _run(*inside, "route", "add", SERVICE_NETWORK, "dev", BRIDGE)  # else the node itself reaches no Service
    if not Path("/proc/sys/net/bridge").exists():
        _run("modprobe", "br_netfilter")
    for setting in SETTINGS:
        _run(*cluster.enter, "sh", "-c", f"echo 1 > /proc/sys/{setting}")


def require_free(cluster: Cluster) -> None:
    """Remove a left-over namespace of our name that nobody uses. Raises StepFailed if somebody does."""
    if not cluster.network_namespace.exists():
        return
    users = run(Command(arguments=("ip", "netns", "pids", cluster.machine_name))).split()
    if users:
        raise StepFailed(
            f"network namespace {cluster.machine_name} is taken: {', '.join(describe(int(pid)) for pid in users[:5])}"
            f" of {len(users)} run in it and are not of {cluster.directory}: end them, or choose another name with --name"
        )
    remove_network(cluster)


def remove_network(cluster: Cluster) -> None:
    """Remove the network namespace, and with it every interface, rule and set in it; nothing if there is none."""
    if cluster.network_namespace.exists():
        _run("ip", "netns", "delete", cluster.machine_name)


def start_node(cluster: Cluster) -> None:
    """Start the node's first process and return when its mounts are in place."""
    files = cluster.data("node")
    visible = (cluster.directory, cluster.cache)
    command = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")
    python = (sys.executable, "-I", str(INIT), str(files), *map(str, visible))
    spawn(cluster, NODE_PROCESS, (*cluster.enter, *command, *python))

    def is_prepared() -> bool:
        if not record(cluster.directory, NODE_PROCESS).is_alive:
            raise StepFailed(f"the node cannot be prepared:{log_end(cluster, NODE_PROCESS)}")
        return (files / "prepared").exists()

    wait_until(
        is_prepared,
        what="the node's mounts are in place",
        limit_seconds=PREPARED_SECONDS,
        explain=lambda: log_end(cluster, NODE_PROCESS) or "it says nothing",
    )


def make_control_groups(cluster: Cluster) -> None:
    """Make the control group below which the kubelet keeps its pods, in every hierarchy. Raises StepFailed."""
    for group in control_groups(cluster):
        _switch_on(group.parent)
        group.mkdir(exist_ok=True)


def _switch_on(hierarchy: Path) -> None:
    """Give the groups of a hierarchy of version 2 the controllers that the kubelet demands; version 1 has one in each."""
    available = hierarchy / "cgroup.controllers"
    if not available.exists():
        return
    switches = hierarchy / "cgroup.subtree_control"
    for controller in missing_controllers(available.read_text(), switches.read_text()):
        try:
            switches.write_text(f"+{controller}")
        except OSError as error:
            raise StepFailed(
                f"control group controller {controller} cannot be switched on in {switches}: {error.strerror}; in a "
                "container, give it the machine's control groups (docker run --privileged --cgroupns=host)"
            ) from error


def missing_controllers(available: str, switched_on: str) -> list[str]:
    """Return what has to be switched on of the controllers that a hierarchy has; both are lists with blanks between."""
    return [name for name in KUBELET_CONTROLLERS if name in available.split() and name not in switched_on.split()]


def remove_control_groups(cluster: Cluster) -> None:
    """Remove the node's control groups; their processes have ended."""
    for top in control_groups(cluster):
        for group, _, _ in os.walk(top, topdown=False):  # children before parents
            with suppress(FileNotFoundError):
                Path(group).rmdir()


def control_groups(cluster: Cluster) -> list[Path]:
    """Return the node's control group in each hierarchy that is mounted: one of version 2, several of version 1."""
    mounts = Path("/proc/mounts").read_text()
    return [place / cluster.machine_name for place in hierarchies(mounts)]


def hierarchies(mounts: str) -> list[Path]:
    """Return where control group hierarchies are mounted, from the text of /proc/mounts."""
    fields = [line.split() for line in mounts.splitlines()]
    return sorted({Path(place) for _, place, kind, *_ in fields if kind in {"cgroup", "cgroup2"}})


def processes_inside(cluster: Cluster) -> list[int]:
    """Return the processes of this machine whose network is the node's."""
    with suppress(OSError):
        wanted = cluster.network_namespace.stat().st_ino
        return [pid for pid in process_ids() if _network_of(pid) == wanted]
    return []


def _network_of(pid: int) -> int | None:
    try:
        return Path("/proc", str(pid), "ns", "net").stat().st_ino
    except OSError:
        return None


def _run(*arguments: str) -> None:
    run(Command(arguments=arguments))
