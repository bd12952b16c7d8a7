"""The node's programs: container runtime, kubelet, Service and NetworkPolicy rules, DNS, S3 server and Prometheus."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import node_config
from e2e.cluster.control_plane import NODE, kubectl, without_proxies
from e2e.cluster.images.partial import write_part
from e2e.cluster.namespaces import BRIDGE
from e2e.cluster.processes import Component, inside, log_end, require_alive, spawn, start
from e2e.cluster.state import NODE_ADDRESS, SERVICE_NETWORK, Cluster, replace_file
from e2e.cluster.steps import Command, StepFailed, run, say, succeeds, wait_until
from e2e.cluster.unpacked import unpacked_program

PACKAGES = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "iptables": "iptables",
    "ipset": "ipset",
    "runc": "runc",
    f"{node_config.CNI_PLUGINS}/bridge": "containernetworking-plugins",
}
PROGRAMS = ("kube-scheduler", "kubelet", "kube-proxy", "coredns", "kube-router", "weed", "helm")
S3_PORT = 8333
PROMETHEUS_PORT = 9090
S3_ACCESS_KEY = "groundplane"  # nobody outside the node reaches the server
S3_SECRET_KEY = "groundplane-secret"
ROOT = Path(__file__).parents[2]
IMAGES = ("--namespace=k8s.io", "images")  # where the kubelet looks for them
CONTENT = ("--namespace=k8s.io", "content")
READY_SECONDS = 120.0
# What answers as soon as a component works; asked on the node.
PROBES = {
    "kube-proxy": "http://127.0.0.1:10256/healthz",
    "coredns": "http://127.0.0.1:8181/ready",
    "kube-router": "http://127.0.0.1:20244/healthz",
    "weed": f"http://{NODE_ADDRESS}:{S3_PORT}/healthz",
    "prometheus": f"http://{NODE_ADDRESS}:{PROMETHEUS_PORT}/-/ready",
}


def write_configuration(cluster: Cluster, pause_image: str) -> None:
    """Write the configuration files of the node's programs; `pause_image` holds the namespaces of each pod."""
    snapshotter = node_config.choose_snapshotter(Path("/proc/mounts").read_text(), cluster.directory)
    files = {
        "containerd.toml": node_config.render_containerd(cluster, pause_image, snapshotter),
        "cni/pods.conflist": node_config.render_cni(cluster, BRIDGE),
        "kubelet.yaml": node_config.render_kubelet(cluster),
        "resolv.conf": "",  # pods ask the cluster's DNS alone
        "proxy.yaml": node_config.render_proxy(cluster),
        "Corefile": node_config.render_corefile(cluster),
        "prometheus.yaml": node_config.render_prometheus(cluster),
        "targets.json": "[]",
        "s3.json": node_config.render_s3_identities(S3_ACCESS_KEY, S3_SECRET_KEY),
    }
    for folder in ("cni", "rules"):
        cluster.config(folder).mkdir(exist_ok=True)
    for name, content in files.items():
        replace_file(cluster.config(name), content.encode())
    for component in ("containerd", "kubelet", "volume-plugins", "volumes", "s3", "prometheus"):
        cluster.data(component).mkdir(exist_ok=True)


def start_runtime(cluster: Cluster) -> None:
    """Start containerd, S3 server and Prometheus: what does not need the API server."""
    for component in (containerd(cluster), s3_server(cluster), prometheus(cluster)):
        start(cluster, component)


def start_kubernetes(cluster: Cluster) -> None:
    """Start what makes this machine a node; the API server answers already."""
    for component in (kubelet(cluster), kube_proxy(cluster), coredns(cluster)):
        start(cluster, component)
    spawn(cluster, "targets", own_program(cluster, "targets", cluster.config("targets.json")))
    spawn(cluster, "volumes", own_program(cluster, "volumes", cluster.data("volumes")))

    def is_registered() -> bool:
        require_alive(cluster)
        return succeeds(kubectl(cluster, "get", "node", NODE, "--request-timeout=5s"))

    wait_until(
        is_registered,
        what="the kubelet has registered the node",
        limit_seconds=READY_SECONDS,
        explain=lambda: f"the last lines of its log:{log_end(cluster, 'kubelet')}",
    )
    start(cluster, kube_router(cluster))  # it ends at once if there is no node


def wait_until_ready(cluster: Cluster) -> None:
    """Return when the node is Ready and every program on it answers. Raises StepFailed, naming the one that does not."""
    say("wait for the node (usually 15 s)")
    waiting = dict(PROBES)

    def all_ready() -> bool:
        require_alive(cluster)
        for name in [name for name, url in waiting.items() if answers(cluster, url)]:
            del waiting[name]
        return not waiting and node_is_ready(cluster)

    def who_is_missing() -> str:
        name = next(iter(waiting), "kubelet")
        return f"{name} is not ready; the last lines of its log:{log_end(cluster, name)}"

    wait_until(all_ready, what="the node is ready", limit_seconds=READY_SECONDS, explain=who_is_missing)


def unready(cluster: Cluster) -> list[str]:
    """Return the components of the node that do not answer."""
    silent = [name for name, url in PROBES.items() if not answers(cluster, url)]
    return silent if node_is_ready(cluster) else [*silent, "kubelet"]


def answers(cluster: Cluster, url: str) -> bool:
    """Whether an URL on the node answers with a status below 400."""
    ask = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)"
    command = (*cluster.enter, sys.executable, "-I", "-c", ask, url)
    return succeeds(Command(arguments=command, environment=without_proxies(os.environ), limit_seconds=10.0))


def node_is_ready(cluster: Cluster) -> bool:
    """Whether the node takes pods: it says that it is ready, and nothing keeps pods away."""
    try:
        node = json.loads(run(kubectl(cluster, "get", "node", NODE, "--output=json", "--request-timeout=5s")))
    except StepFailed:
        return False
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def wait_for_runtime(cluster: Cluster) -> None:
    """Return when containerd takes commands."""

    def runtime_answers() -> bool:
        require_alive(cluster)
        return succeeds(ctr(cluster, "version"))

    wait_until(
        runtime_answers,
        what="containerd answers",
        limit_seconds=READY_SECONDS,
        explain=lambda: f"the last lines of its log:{log_end(cluster, 'containerd')}",
    )


def import_images(cluster: Cluster, archives: Sequence[Path]) -> None:
    """Give the node the images of docker-archive files. Raises StepFailed for a file that is none."""
    for archive in archives:
        if not archive.is_file():
            raise StepFailed(f"image archive {archive}: expected a file, as `docker save` writes it")
        known = set(run(ctr(cluster, *CONTENT, "list", "--quiet")).split())
        with tempfile.TemporaryDirectory(dir=cluster.data("containerd")) as directory:
            part = Path(directory, "part.tar")
            source = part if write_part(archive, part, known=known) else archive.resolve()
            what = f"load {archive.name}, {source.stat().st_size >> 20} MiB"
            run(ctr(cluster, *IMAGES, "import", str(source), what=what))


def image_references(cluster: Cluster) -> set[str]:
    """Return the names of the images that the node has."""
    return set(run(ctr(cluster, *IMAGES, "list", "--quiet")).split())


def ctr(cluster: Cluster, *arguments: str, what: str = "") -> Command:
    """Return a command of containerd's own client, run on the node: it mounts while it unpacks."""
    program = str(unpacked_program(cluster.cache, "containerd").with_name("ctr"))
    command = (*inside(cluster), program, f"--address={cluster.containerd_socket}", *arguments)
    return Command(arguments=command, what=what, usual_seconds=10 if what else 0, limit_seconds=300.0)


def containerd(cluster: Cluster) -> Component:
    """Return the container runtime."""
    program = unpacked_program(cluster.cache, "containerd")
    return Component(name="containerd", command=(str(program), f"--config={cluster.config('containerd.toml')}"))


def kubelet(cluster: Cluster) -> Component:
    """Return the kubelet."""
    flags = {
        "config": cluster.config("kubelet.yaml"),
        "kubeconfig": cluster.config("kubelet.kubeconfig"),
        "hostname-override": NODE,
        "node-ip": NODE_ADDRESS,
        "root-dir": cluster.data("kubelet"),
        "cert-dir": cluster.data("kubelet") / "pki",
    }
    return Component.of(cluster, "kubelet", flags)


def kube_proxy(cluster: Cluster) -> Component:
    """Return what makes Service addresses work."""
    return Component.of(cluster, "kube-proxy", {"config": cluster.config("proxy.yaml")})


def coredns(cluster: Cluster) -> Component:
    """Return the DNS server; CoreDNS takes its one flag with a single hyphen as well as with two."""
    return Component.of(cluster, "coredns", {"conf": cluster.config("Corefile")})


def kube_router(cluster: Cluster) -> Component:
    """Return what enforces NetworkPolicy, and nothing else of kube-router."""
    flags = {
        "kubeconfig": cluster.config("addons.kubeconfig"),
        "hostname-override": NODE,
        "service-cluster-ip-range": SERVICE_NETWORK,
        "run-firewall": "true",
        "run-router": "false",
        "run-service-proxy": "false",
        "health-port": "20244",
    }
    return Component.of(cluster, "kube-router", flags)


def prometheus(cluster: Cluster) -> Component:
    """Return Prometheus, which starts with nothing to scrape."""
    program = unpacked_program(cluster.cache, "prometheus")
    flags = {
        "config.file": cluster.config("prometheus.yaml"),
        "storage.tsdb.path": cluster.data("prometheus"),
        "web.listen-address": f"{NODE_ADDRESS}:{PROMETHEUS_PORT}",
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    return Component(name="prometheus", command=(str(program), *options, "--web.enable-lifecycle"))


def own_program(cluster: Cluster, module: str, file: Path) -> tuple[str, ...]:
    """Return the command of a program of this package, in the node's network; our Python may not be visible on the node."""
    python = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", f"{__package__}.{module}")
    return (*cluster.enter, *python, cluster.api_url, str(cluster.directory / "pki"), str(file))


def s3_server(cluster: Cluster) -> Component:
    """Return the S3 server; it reports to nobody."""
    flags = {
        "dir": cluster.data("s3"),
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "master.electionTimeout": "1s",
        "volume.max": 50,
        "s3.ip.bind": NODE_ADDRESS,
        "s3.port": S3_PORT,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.config": cluster.config("s3.json"),
    }
    options = [f"-{name}={value}" for name, value in flags.items()]
    return Component(name="weed", command=(str(cluster.program("weed")), "server", "-s3", *options))
