"""The node's place on this machine: a network, mounts and process ids of its own.

Nothing that happens on the node can touch the machine: it shares no network with it, sees its own /run, /tmp, /var/lib
and /var/log, and ends with its first process.
"""

import sys
from pathlib import Path

from e2e.cluster.processes import NODE_PROCESS, describe, log_end, record, spawn
from e2e.cluster.state import NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK, Cluster
from e2e.cluster.steps import Command, StepFailed, run, wait_until

BRIDGE = "cni0"
PREPARED_SECONDS = 30.0
# Network settings that are switched on: packets between pods are forwarded, and pass the rules of Services and policies.
SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
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


def _run(*arguments: str) -> None:
    run(Command(arguments=arguments))
