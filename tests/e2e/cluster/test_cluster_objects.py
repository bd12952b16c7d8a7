"""Small pure parts: kubeconfigs, add-ons, ports, and what is read from /proc and control groups."""

from pathlib import Path

import yaml

from e2e.cluster.addons import render_addons, render_service
from e2e.cluster.control_groups import hierarchies, missing_controllers
from e2e.cluster.control_plane import api_server, controller_manager, without_proxies
from e2e.cluster.kubeconfigs import render_kubeconfig
from e2e.cluster.lifecycle import new_cluster
from e2e.cluster.ports import free_ports
from e2e.cluster.remains import remaining_mounts
from e2e.cluster.state import Ports

MOUNTS = """\
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
nsfs /run/netns/groundplane-e2e nsfs rw 0 0
nsfs /run/netns/groundplane-e2e-2 nsfs rw 0 0
tmpfs /state/e2e/data/x tmpfs rw 0 0
tmpfs /state/e2e-2/data/x tmpfs rw 0 0
"""


def test_a_kubeconfig_is_complete_in_itself():
    """It can be copied to where the tests run."""
    text = render_kubeconfig("https://10.244.0.1:6443", "e2e", authority=b"CA", certificate=b"CRT", key=b"KEY")

    config = yaml.safe_load(text)
    context = next(entry["context"] for entry in config["contexts"] if entry["name"] == config["current-context"])
    assert context == {"cluster": config["clusters"][0]["name"], "user": config["users"][0]["name"]}
    assert config["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="


def test_namespaced_addons_come_after_their_namespace():
    """They are applied in one go, from first to last."""
    manifests = list(yaml.safe_load_all(render_addons()))

    made = {"kube-system", "default"}
    for manifest in manifests:
        if manifest["kind"] == "Namespace":
            made.add(manifest["metadata"]["name"])
        assert manifest["metadata"].get("namespace", "default") in made


def test_a_service_without_pods_leads_to_the_node():
    """Pods reach the S3 server by a name, as they would in a cloud."""
    service, endpoints = render_service("test-services", "s3", {"s3": ("TCP", 8333)})

    assert "selector" not in service["spec"]
    assert endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
    assert endpoints["endpoints"][0]["addresses"] == ["10.244.0.1"]


def test_a_control_plane_alone_listens_on_this_machine_only(tmp_path: Path):
    """It has no network of its own, and its API server runs as the developer."""
    cluster = new_cluster(tmp_path / "alone", tmp_path, has_node=False)

    for component in (api_server(cluster), controller_manager(cluster)):
        assert "--bind-address=127.0.0.1" in component.command


def test_ports_are_different_and_usual_ones_are_left(tmp_path: Path):
    """It runs beside a whole cluster, an etcd of the developer, and itself in another process."""
    ports = free_ports()

    numbers = [getattr(ports, name) for name in Ports.__struct_fields__]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 10_000


def test_hierarchies_of_both_versions_are_found():
    """A machine may have version 1, version 2, or both."""
    assert [str(path) for path in hierarchies(MOUNTS)] == [
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/pids",
        "/sys/fs/cgroup/unified",
    ]


def test_only_controllers_that_exist_and_are_off_are_switched_on():
    """Writing another one fails, and with it the whole start."""
    assert missing_controllers("cpuset cpu io memory pids", "cpu memory") == ["cpuset", "pids"]


def test_only_this_clusters_mounts_are_its_remains():
    """Another cluster, of a similar name, may run meanwhile."""
    left = list(remaining_mounts(MOUNTS, Path("/state/e2e")))

    assert left == ["mount /run/netns/groundplane-e2e", "mount /state/e2e/data/x"]


def test_clients_of_the_cluster_use_no_proxy():
    """Behind a company's proxy, 10.244.0.1 would be looked for outside."""
    environment = {"HTTPS_PROXY": "x", "no_proxy": "y", "PATH": "/bin"}

    assert without_proxies(environment) == {"PATH": "/bin"}
