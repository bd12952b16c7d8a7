"""etcd, API server and controller manager (and, where there is a node, the scheduler): keys, command lines, start."""

import datetime as dt
import os
from collections.abc import Mapping

from e2e.cluster.certificates import Authority, Identity
from e2e.cluster.kubeconfigs import write_kubeconfigs
from e2e.cluster.processes import Component, log_end, require_alive, start
from e2e.cluster.state import API_SERVICE_ADDRESS, NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK, Cluster, replace_file
from e2e.cluster.steps import Command, run, say, succeeds, wait_until

NODE = "node1"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
READY_SECONDS = 90.0
AUDIT_LOG_MB = 100
# The audit log tells who has written what and when, never contents: tests of the operator read it.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: None
    verbs: [get, list, watch]
  - level: None
    resources: [{group: coordination.k8s.io, resources: [leases]}]
  - level: Metadata
"""
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
IDENTITIES = (
    Identity(
        file="apiserver",
        user="kube-apiserver",
        dns_names=SERVICE_NAMES,
        addresses=("127.0.0.1", API_SERVICE_ADDRESS, NODE_ADDRESS),
    ),
    Identity(file="admin", user="admin", groups=("system:masters",)),
    Identity(file="controller-manager", user="system:kube-controller-manager"),
    Identity(file="scheduler", user="system:kube-scheduler"),
    Identity(
        file="kubelet",
        user=f"system:node:{NODE}",
        groups=("system:nodes",),
        dns_names=(NODE,),
        addresses=("127.0.0.1", NODE_ADDRESS),
    ),
    Identity(file="proxy", user="system:kube-proxy"),
    Identity(file="addons", user="groundplane:addons"),
)


def write_configuration(cluster: Cluster) -> None:
    """Write the audit policy, and keys, certificates and kubeconfigs for everyone in the cluster."""
    replace_file(cluster.config("audit-policy.yaml"), AUDIT_POLICY.encode())
    authority = Authority(cluster.directory / "pki", dt.datetime.now(dt.UTC))
    authority.key_pair("service-accounts")
    for identity in IDENTITIES:
        authority.issue(identity)
    write_kubeconfigs(cluster, [identity.file for identity in IDENTITIES if identity.file != "apiserver"])


def start_control_plane(cluster: Cluster) -> None:
    """Start the control plane and return when the API server is ready; the others join in their own time."""
    say("start the control plane (usually 5 s)")
    for component in (etcd(cluster), api_server(cluster), controller_manager(cluster)):
        start(cluster, component)
    if cluster.has_node:
        start(cluster, scheduler(cluster))
    wait_until(
        lambda: is_ready(cluster),
        what="the API server is ready",
        limit_seconds=READY_SECONDS,
        explain=lambda: f"the last lines of its log:{log_end(cluster, 'kube-apiserver')}",
    )
    wait_until(
        lambda: has_service_account(cluster),
        what="the controller manager has made the default service account",
        limit_seconds=READY_SECONDS,
        explain=lambda: f"the last lines of its log:{log_end(cluster, 'kube-controller-manager')}",
    )


def is_ready(cluster: Cluster) -> bool:
    """Whether the API server says that it is ready. Raises StepFailed if a program of the cluster has ended."""
    require_alive(cluster)
    return succeeds(kubectl(cluster, "get", "--raw=/readyz", "--request-timeout=5s"))


def has_service_account(cluster: Cluster) -> bool:
    """Whether pods can be made in the namespace `default`: the first thing that the controller manager does."""
    require_alive(cluster)
    return succeeds(kubectl(cluster, "get", "serviceaccount/default", "--namespace=default", "--request-timeout=5s"))


def kubectl(cluster: Cluster, *arguments: str, standard_input: bytes = b"") -> Command:
    """Return a kubectl command of the administrator, run where the API server is reached."""
    options = (f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cluster.data('kubectl')}")
    program = str(cluster.program("kubectl"))
    command = (*cluster.enter, program, *options, *arguments)
    return Command(arguments=command, standard_input=standard_input, environment=without_proxies(os.environ))


def without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a client of something on this machine, which no proxy reaches."""
    return {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}


def apply(cluster: Cluster, manifests: bytes) -> None:
    """Make the objects of a YAML document exist as written; idempotent."""
    run(kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-f", "-", standard_input=manifests))


def etcd(cluster: Cluster) -> Component:
    """Return etcd: one member, without fsync, because what it stores is thrown away."""
    client, peer = (f"http://127.0.0.1:{port}" for port in (cluster.ports.etcd, cluster.ports.etcd_peer))
    flags = {
        "data-dir": cluster.data("etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "log-level": "warn",
    }
    return Component.of(cluster, "etcd", flags, "--unsafe-no-fsync")


def api_server(cluster: Cluster) -> Component:
    """Return the API server, with the admission plugins that are on by default and NodeRestriction."""
    pki = cluster.directory / "pki"
    flags = {
        "etcd-servers": f"http://127.0.0.1:{cluster.ports.etcd}",
        "bind-address": "0.0.0.0" if cluster.has_node else "127.0.0.1",  # the node's network is its own
        "advertise-address": cluster.address,
        "secure-port": cluster.ports.api,
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki / "service-accounts.pub",
        "service-account-signing-key-file": pki / "service-accounts.key",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-client-certificate": pki / "admin.crt",
        "kubelet-client-key": pki / "admin.key",
        "kubelet-certificate-authority": pki / "ca.crt",
        "kubelet-preferred-address-types": "InternalIP",  # nothing resolves the node's name
        "endpoint-reconciler-type": "lease" if cluster.has_node else "none",  # none for a loopback address
        "profiling": "false",
        "audit-policy-file": cluster.config("audit-policy.yaml"),
        "audit-log-path": cluster.log("audit"),
        "audit-log-maxsize": AUDIT_LOG_MB,
        "audit-log-maxbackup": 1,
    }
    return Component.of(cluster, "kube-apiserver", flags, "--allow-privileged=true")


def controller_manager(cluster: Cluster) -> Component:
    """Return the controller manager."""
    pki = cluster.directory / "pki"
    flags = {
        "kubeconfig": cluster.config("controller-manager.kubeconfig"),
        "secure-port": cluster.ports.controller_manager,
        "bind-address": "127.0.0.1",
        "service-account-private-key-file": pki / "service-accounts.key",
        "root-ca-file": pki / "ca.crt",
        "use-service-account-credentials": "true",
        "cluster-cidr": POD_NETWORK,
        "allocate-node-cidrs": "false",
        "leader-elect": "false",
    }
    return Component.of(cluster, "kube-controller-manager", flags)


def scheduler(cluster: Cluster) -> Component:
    """Return the scheduler."""
    flags = {
        "kubeconfig": cluster.config("scheduler.kubeconfig"),
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
    }
    return Component.of(cluster, "kube-scheduler", flags)
