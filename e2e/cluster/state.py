"""What a cluster is and where its files lie.

Everything of a cluster lies in `$XDG_STATE_HOME/groundplane/clusters/<name>` (`~/.local/state/...`):

    cluster.json       the `Cluster` below, written first
    complete           written last: the digest of the program that made the cluster
    processes/*.json   one record for each program that was started
    logs/*.log         what they write
    pki/  config/      keys, certificates, configuration files; admin.kubeconfig is in config/
    data/              etcd, containerd, kubelet, volumes, S3 objects, metrics

`<name>.lock` beside the folder is held by whoever makes or removes the cluster.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from e2e.cluster.builds import ALL_MODULES, binary
from e2e.cluster.steps import StepFailed

NODE_CLUSTER = "e2e"  # the usual name of a cluster with a node
CONTROL_PLANE = "control-plane"  # and of one without
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")

POD_NETWORK = "10.244.0.0/24"
NODE_ADDRESS = "10.244.0.1"  # of the bridge that the pods hang on
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where the control plane listens. A node has its network for itself, so that the usual ports are always free."""

    api: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    controller_manager: int = 10257


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of this machine: with a node in namespaces of its own, or a control plane alone on 127.0.0.1."""

    name: str
    directory: Path
    cache: Path  # of the programs
    has_node: bool
    ports: Ports = Ports()
    ends_with_us: bool = False  # with the process that makes it, even if that is killed: for tests

    @property
    def address(self) -> str:
        """Where the API server is reached: by everyone on the node, pods too, or on this machine alone."""
        return NODE_ADDRESS if self.has_node else "127.0.0.1"

    @property
    def api_url(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.ports.api}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, complete in itself."""
        return self.config("admin.kubeconfig")

    @property
    def machine_name(self) -> str:
        """What the node's namespace and control groups are called on this machine."""
        return machine_name(self.name)

    @property
    def network_namespace(self) -> Path:
        """The file by which the node's network is entered."""
        return Path("/run/netns") / self.machine_name

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put before a command that has to reach the API server, Services and pods; () if nothing is needed."""
        return ("nsenter", f"--net={self.network_namespace}") if self.has_node else ()

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens."""
        return self.directory / "containerd.sock"

    def config(self, name: str) -> Path:
        """Return the path of a configuration file."""
        return self.directory / "config" / name

    def data(self, name: str) -> Path:
        """Return the folder of a component's data."""
        return self.directory / "data" / name

    def log(self, component: str) -> Path:
        """Return the path of a component's log."""
        return self.directory / "logs" / f"{component}.log"

    def program(self, name: str) -> Path:
        """Return the path of a program that was built for clusters."""
        return binary(self.cache, name)


def machine_name(name: str) -> str:
    """Return what the network namespace and the control groups of a cluster's node are called on this machine."""
    return f"groundplane-{name}"


def state_directory(environment: Mapping[str, str], name: str) -> Path:
    """Return the folder of the cluster `name`. Raises StepFailed for a name that cannot name files and namespaces."""
    if not NAME.fullmatch(name):
        raise StepFailed(
            f"cluster name {name!r}: expected at most 40 small letters, digits and hyphens, a letter first"
        )
    home = Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "groundplane" / "clusters" / name


def lock_file(directory: Path) -> Path:
    """Return the file that is locked while the cluster is made or removed."""
    return directory.with_name(f"{directory.name}.lock")


def write(cluster: Cluster) -> None:
    """Make the cluster's folders and record what it is."""
    for folder in ("processes", "logs", "pki", "config", "data"):
        (cluster.directory / folder).mkdir(parents=True, exist_ok=True)
    cluster.directory.chmod(0o700)  # keys lie in it
    replace_file(cluster.directory / "cluster.json", msgspec.json.encode(cluster, enc_hook=str))


def read(directory: Path) -> Cluster | None:
    """Return the cluster whose folder this is; None if there is none, or its making was cut short before it had begun."""
    try:
        return msgspec.json.decode(
            (directory / "cluster.json").read_bytes(), type=Cluster, dec_hook=lambda _, text: Path(text)
        )
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def mark_complete(cluster: Cluster) -> None:
    """Record that everything was made, and by which version of this program."""
    replace_file(cluster.directory / "complete", program_digest().encode())


def is_complete(cluster: Cluster) -> bool:
    """Whether everything was made, by the same version of this program."""
    path = cluster.directory / "complete"
    return path.exists() and path.read_text() == program_digest()


def program_digest() -> str:
    """Return what a cluster depends on: this program's sources and the versions it builds."""
    digest = hashlib.sha256("".join(module.digest for module in ALL_MODULES).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never half of it."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.rename(path)
