"""The programs of a cluster: started apart from us, recorded, found again and ended, and never somebody else's.

A record holds the process id and the moment at which the kernel says it began, so that another process which got the
same id later is not mistaken for it. A record is written after the program has started; for the case that we are killed
in between, every program also carries the cluster's folder in its environment, which its children inherit.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from e2e.cluster.debian import SEARCH_PATH
from e2e.cluster.state import Cluster, replace_file
from e2e.cluster.steps import StepFailed, last_lines, wait_until

MARK = "GROUNDPLANE_CLUSTER_DIRECTORY"  # in the environment of everything that belongs to a cluster
NODE_PROCESS = "node"
END_SECONDS = 30.0


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was started."""

    name: str
    pid: int
    start_ticks: int  # after boot, field 22 of /proc/<pid>/stat

    @property
    def is_alive(self) -> bool:
        """Whether this very process, not another with its id, still runs."""
        return start_ticks(self.pid) == self.start_ticks


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A program of the cluster and how it is called."""

    name: str
    command: tuple[str, ...]

    @classmethod
    def of(cls, cluster: Cluster, program: str, flags: Mapping[str, object], *switches: str) -> "Component":
        """Return a component that is called like its program, which was built for clusters."""
        options = [f"--{name}={value}" for name, value in flags.items()]
        return cls(name=program, command=(str(cluster.program(program)), *options, *switches))


def start(cluster: Cluster, component: Component) -> None:
    """Start a program that outlives us, on the node if there is one, with its output in its log, and record it."""
    leash = ("setpriv", "--pdeathsig=KILL") if cluster.ends_with_us else ()
    spawn(cluster, component.name, (*leash, *inside(cluster), *component.command))


def inside(cluster: Cluster) -> tuple[str, ...]:
    """Return what to put before a command so that it runs on the node; () for a control plane alone.

    The record `node` is that of `unshare`, which stays outside as the parent of the node's first process: the mounts
    are its own, the process ids those of its children.
    """
    if not cluster.has_node:
        return ()
    namespaces = Path("/proc", str(record(cluster.directory, NODE_PROCESS).pid), "ns")
    return ("nsenter", f"--net={namespaces}/net", f"--mount={namespaces}/mnt", f"--pid={namespaces}/pid_for_children")


def spawn(cluster: Cluster, name: str, command: tuple[str, ...]) -> None:
    """Start and record a program where we are ourselves."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    own = str(cluster.directory)
    environment = {"PATH": SEARCH_PATH, "HOME": own, MARK: own}  # and nothing of the user's
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(cluster.log(name)), append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGPIPE],  # Python ignores it, and a child would inherit that
        )
    except OSError as error:
        raise StepFailed(f"cannot start {name}, {command[0]}: {error.strerror}") from error
    started = ProcessRecord(name=name, pid=pid, start_ticks=start_ticks(pid) or 0)
    replace_file(_record_path(cluster.directory, name), msgspec.json.encode(started))


def record(directory: Path, name: str) -> ProcessRecord:
    """Return the record of a program that was started."""
    return msgspec.json.decode(_record_path(directory, name).read_bytes(), type=ProcessRecord)


def records(directory: Path) -> list[ProcessRecord]:
    """Return the records below a cluster's folder, by name."""
    return [record(directory, path.stem) for path in sorted((directory / "processes").glob("*.json"))]


def require_alive(cluster: Cluster) -> None:
    """Raise StepFailed, with the last lines of its log, if a program has ended."""
    for found in records(cluster.directory):
        if not found.is_alive:
            raise StepFailed(
                f"{found.name} has ended; the last lines of {cluster.log(found.name)}:{log_end(cluster, found.name)}"
            )


def log_end(cluster: Cluster, component: str) -> str:
    """Return the last lines of a component's log, indented below the sentence that they explain."""
    try:
        with cluster.log(component).open("rb") as log:
            return "".join(f"\n  | {line[:400]}" for line in last_lines(log).splitlines())
    except FileNotFoundError:
        return " (it has not written any)"


def end_all(directory: Path) -> None:
    """Kill everything that belongs to a cluster and return when none of it is left. Raises StepFailed if some stays.

    Killing is enough: nothing of a cluster outlives it, so that there is nothing to be saved.
    """

    def kill_and_look() -> bool:
        found = set(living(directory))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    def who_stays() -> str:
        return f"still there: {', '.join(describe(pid) for pid in living(directory))}"

    wait_until(kill_and_look, what="the cluster's processes end", limit_seconds=END_SECONDS, explain=who_stays)


def living(directory: Path) -> Iterator[int]:
    """Yield the ids of all processes that belong to a cluster: recorded ones, and those that carry its mark."""
    yield from (found.pid for found in records(directory) if found.is_alive)
    mark = f"{MARK}={directory}".encode()
    yield from (pid for pid in process_ids() if mark in _environment(pid) and start_ticks(pid) is not None)


def process_ids() -> list[int]:
    """Return the ids of all processes of this machine."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def describe(pid: int) -> str:
    """Return "process 17 (etcd)"."""
    try:
        return f"process {pid} ({Path('/proc', str(pid), 'comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks after boot; None if it does not run or only waits to be reaped."""
    try:
        status = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return None
    state, *fields = status[status.rindex(")") + 2 :].split()  # the name before may hold anything
    return None if state in {"Z", "X"} else int(fields[18])


def _record_path(directory: Path, name: str) -> Path:
    return directory / "processes" / f"{name}.json"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or is another user's and so not ours
        return []
