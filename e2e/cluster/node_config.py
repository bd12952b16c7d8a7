"""The configuration files of the node's programs, as text; pure."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.control_plane import NODE
from e2e.cluster.state import DNS_SERVICE_ADDRESS, NODE_ADDRESS, POD_NETWORK, Cluster

CNI_PLUGINS = "/usr/lib/cni"  # of Debian's containernetworking-plugins
FIRST_POD_ADDRESS = "10.244.0.10"
KUBELET_FREE = {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}


def render_containerd(cluster: Cluster, pause_image: str, snapshotter: str) -> str:
    """Return containerd's configuration. Version 2 of the format is read by containerd 1.6 and all later ones."""
    runtime = 'plugins."io.containerd.grpc.v1.cri"'
    files = cluster.data("containerd")
    return f"""\
version = 2
root = {_toml(files / "root")}
state = {_toml(files / "state")}
[grpc]
  address = {_toml(cluster.containerd_socket)}
[{runtime}]
  sandbox_image = {_toml(pause_image)}
  # lowering the score needs CAP_SYS_RESOURCE, which root lacks on some machines
  restrict_oom_score_adj = true
  [{runtime}.cni]
    bin_dir = {_toml(CNI_PLUGINS)}
    conf_dir = {_toml(cluster.config("cni"))}
  [{runtime}.containerd]
    snapshotter = {_toml(snapshotter)}
"""


def choose_snapshotter(mounts: str, directory: Path) -> str:
    """Return how containerd layers file systems below `directory`: an overlay cannot lie on an overlay.

    mounts: the text of /proc/mounts.
    """
    fields = [line.split() for line in mounts.splitlines()]
    around = [(Path(place), kind) for _, place, kind, *_ in fields if directory.is_relative_to(place)]
    _, kind = max(around, key=lambda mount: len(mount[0].parts), default=(Path("/"), ""))
    return "native" if kind == "overlay" else "overlayfs"


def render_cni(cluster: Cluster, bridge: str) -> str:
    """Return the pods' network: a bridge with addresses that are given out one after the other."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_NETWORK, "rangeStart": FIRST_POD_ADDRESS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(cluster.data("cni")),
    }
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": True, "hairpinMode": True, "ipMasq": False}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin | {"ipam": addresses}]}, indent=2)


def render_kubelet(cluster: Cluster) -> str:
    """Return the kubelet's configuration. It accepts both versions of control groups."""
    pki = cluster.directory / "pki"
    return _yaml(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet.key"),
            "containerRuntimeEndpoint": f"unix://{cluster.containerd_socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cluster.machine_name}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "clusterDNS": [DNS_SERVICE_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(cluster.config("resolv.conf")),
            "podLogsDir": "/var/log/pods",
            "volumePluginDir": str(cluster.data("volume-plugins")),
            "evictionHard": KUBELET_FREE,
            "imageGCHighThresholdPercent": 100,  # images come from files: one that is collected does not come back
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
        }
    )


def render_proxy(cluster: Cluster) -> str:
    """Return kube-proxy's configuration. The connection table's limits stay as they are: they belong to the machine."""
    conntrack: dict[str, Any] = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return _yaml(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": POD_NETWORK,
            "hostnameOverride": NODE,
            "clientConnection": {"kubeconfig": str(cluster.config("proxy.kubeconfig"))},
            "conntrack": conntrack,
        }
    )


def render_corefile(cluster: Cluster) -> str:
    """Return CoreDNS's configuration. It answers for the cluster alone: nothing outside can be reached anyway."""
    return f"""\
. {{
  bind {NODE_ADDRESS}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {cluster.config("addons.kubeconfig")}
    pods insecure
    ttl 5
  }}
}}
"""


def render_prometheus(cluster: Cluster) -> str:
    """Return Prometheus's configuration: it scrapes the pods that `targets.py` finds.

    Rules are read from `config/rules/*.yaml` at every reload (`POST /-/reload`).
    """
    pods = {
        "job_name": "pods",
        "file_sd_configs": [{"files": [str(cluster.config("targets.json"))]}],
    }
    return _yaml(
        {
            "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
            "rule_files": [str(cluster.config("rules") / "*.yaml")],
            "scrape_configs": [pods],
        }
    )


def render_s3_identities(access_key: str, secret_key: str) -> str:
    """Return SeaweedFS's users: one that may do everything."""
    user = {
        "name": "tests",
        "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    return json.dumps({"identities": [user]}, indent=2)


def _toml(value: object) -> str:
    return json.dumps(str(value))  # a JSON string is a TOML string


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False)
