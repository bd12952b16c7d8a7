"""The configuration that makes a node of this machine without touching it."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from e2e.cluster import node_config
from e2e.cluster.lifecycle import new_cluster
from e2e.cluster.state import Cluster

MOUNTS = """\
/dev/vda / ext4 rw 0 0
overlay /var/lib/thing overlay rw 0 0
tmpfs /var/lib/thing/memory tmpfs rw 0 0
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Give a cluster that is not made."""
    return new_cluster(tmp_path / "some", tmp_path / "cache", has_node=True)


def test_containerd_keeps_to_the_clusters_folder(cluster: Cluster):
    """A machine with docker has a containerd of its own, with the same default paths."""
    config = tomllib.loads(node_config.render_containerd(cluster, "localhost/pause:1", "overlayfs"))

    runtime = config["plugins"]["io.containerd.grpc.v1.cri"]
    paths = [config["root"], config["state"], config["grpc"]["address"], runtime["cni"]["conf_dir"]]
    assert all(Path(path).is_relative_to(cluster.directory) for path in paths)
    assert runtime["sandbox_image"] == "localhost/pause:1"


@pytest.mark.parametrize(
    ("directory", "snapshotter"),
    [
        pytest.param("/root/.local", "overlayfs", id="disk"),
        pytest.param("/var/lib/thing/x", "native", id="overlay"),
        pytest.param("/var/lib/thing/memory/x", "overlayfs", id="memory-on-an-overlay"),
        pytest.param("/var/lib/thingummy", "overlayfs", id="similar-name"),
    ],
)
def test_no_overlay_is_laid_on_an_overlay(directory: str, snapshotter: str):
    """The kernel refuses it, inside containers for one, and pods would never start."""
    assert node_config.choose_snapshotter(MOUNTS, Path(directory)) == snapshotter


def test_the_kubelet_takes_both_versions_of_control_groups(cluster: Cluster):
    """Machines with version 1 are still about, and the kubelet refuses them unless told otherwise."""
    config = yaml.safe_load(node_config.render_kubelet(cluster))

    assert config["failCgroupV1"] is False
    assert config["cgroupRoot"] == "/groundplane-some"


def test_the_kubelet_lets_nobody_in_without_a_name(cluster: Cluster):
    """It runs commands in every pod."""
    config = yaml.safe_load(node_config.render_kubelet(cluster))

    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"


def test_kube_proxy_leaves_the_machines_connection_table_alone(cluster: Cluster):
    """Its limits are not of the namespace but of the machine."""
    config = yaml.safe_load(node_config.render_proxy(cluster))

    assert set(map(str, config["conntrack"].values())) == {"0", "0s"}


def test_pods_get_addresses_beside_the_nodes_own(cluster: Cluster):
    """The node's address is the gateway; a pod with it would cut the others off."""
    plugin = json.loads(node_config.render_cni(cluster, "cni0"))["plugins"][0]

    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24", "rangeStart": "10.244.0.10"}]]


def test_prometheus_scrapes_what_is_found(cluster: Cluster):
    """The file that the finder writes is the one that Prometheus reads."""
    config = yaml.safe_load(node_config.render_prometheus(cluster))

    files = config["scrape_configs"][0]["file_sd_configs"][0]["files"]
    assert files == [str(cluster.config("targets.json"))]
