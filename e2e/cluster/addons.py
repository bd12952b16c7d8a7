"""The objects that every cluster with a node has: DNS, the default StorageClass, names of the S3 server and Prometheus."""

from collections.abc import Mapping

import yaml

from e2e.cluster.api import Manifest
from e2e.cluster.node import PROMETHEUS_PORT, S3_PORT
from e2e.cluster.state import DNS_SERVICE_ADDRESS, NODE_ADDRESS
from e2e.cluster.volumes import render_storage_class

SERVICES_NAMESPACE = "test-services"
READERS = "groundplane:addons"  # CoreDNS, kube-router and Prometheus, which only read
READ = {
    "": ["endpoints", "namespaces", "nodes", "pods", "services"],
    "discovery.k8s.io": ["endpointslices"],
    "networking.k8s.io": ["networkpolicies"],
}


def render_addons() -> bytes:
    """Return the objects as one YAML document stream, each after what it needs."""
    dns_ports = {"dns": ("UDP", 53), "dns-tcp": ("TCP", 53)}
    manifests = [
        render_storage_class(),
        *render_reader_role(),
        *render_service("kube-system", "kube-dns", dns_ports, cluster_ip=DNS_SERVICE_ADDRESS),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SERVICES_NAMESPACE}},
        *render_service(SERVICES_NAMESPACE, "s3", {"s3": ("TCP", S3_PORT)}),
        *render_service(SERVICES_NAMESPACE, "prometheus", {"http": ("TCP", PROMETHEUS_PORT)}),
    ]
    return yaml.safe_dump_all(manifests, sort_keys=False).encode()


def render_reader_role() -> list[Manifest]:
    """Return the role of the add-ons and its binding."""
    rules = [
        {"apiGroups": [group], "resources": kinds, "verbs": ["get", "list", "watch"]} for group, kinds in READ.items()
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READERS}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READERS}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": READERS}}
    return [
        head | {"kind": "ClusterRole", "rules": rules},
        head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [user]},
    ]


def render_service(
    namespace: str, name: str, ports: Mapping[str, tuple[str, int]], *, cluster_ip: str | None = None
) -> list[Manifest]:
    """Return a Service for a program that runs on the node beside the pods, and the EndpointSlice that leads to it.

    ports: name -> protocol and number.
    """
    listed = [{"name": port, "protocol": protocol, "port": number} for port, (protocol, number) in ports.items()]
    spec: Manifest = {"ports": listed} | ({"clusterIP": cluster_ip} if cluster_ip else {})
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": namespace,
                "name": f"{name}-node",
                "labels": {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "e2e-cluster"},
            },
            "addressType": "IPv4",
            "ports": listed,
            "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}],
        },
    ]
