"""The objects of the smoke tests, as a namespace that enforces the `restricted` Pod Security Standard takes them; pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from e2e.cluster.api import Manifest

USER = 65532  # of the image
NAME = "app.kubernetes.io/name"
FRIEND = {"may-reach": "shard"}  # the label of pods that policies let in
IDLE = ("sh", "-c", "trap exit TERM; sleep infinity & wait")  # ends when it is told to, although it is process 1
TOKENS = "/tokens"  # where a pod with `render_token_source` finds the token, as a file named like its audience
AUDIENCE = "groundplane"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One container of the product's image, and what it needs."""

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    volumes: Mapping[str, Mapping[str, Any]] = {}  # path in the container -> source, as in a pod's `volumes`
    claims: Mapping[str, str] = {}  # path in the container -> size; only a StatefulSet has them
    port: int = 0  # 0: it listens nowhere
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def render_namespace(name: str) -> Manifest:
    """Return a namespace that refuses every pod which may do more than it needs."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def render_pod(workload: Workload) -> Manifest:
    """Return a pod that nothing brings back."""
    return {"apiVersion": "v1", "kind": "Pod", **_template(workload, name=workload.name)}


def render_deployment(workload: Workload, *, replicas: int = 1) -> Manifest:
    """Return a Deployment; an update replaces the old pod before it starts the new one."""
    spec = {
        "replicas": replicas,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _selector(workload)},
        "template": _template(workload),
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": workload.name}, "spec": spec}


def render_stateful_set(workload: Workload) -> Manifest:
    """Return a StatefulSet of one pod, `<name>-0`, with its claims."""
    claims = [
        {
            "metadata": {"name": _volume_name(path)},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        }
        for path, size in workload.claims.items()
    ]
    spec = {
        "replicas": 1,
        "serviceName": workload.name,
        "selector": {"matchLabels": _selector(workload)},
        "template": _template(workload),
        "volumeClaimTemplates": claims,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": workload.name}, "spec": spec}


def render_service(workload: Workload) -> Manifest:
    """Return a Service of the workload's name and port."""
    spec = {"selector": _selector(workload), "ports": [{"name": "http", "port": workload.port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": workload.name}, "spec": spec}


def render_policy(workload: Workload, *, peer: Mapping[str, str]) -> Manifest:
    """Return the policy that lets pods with the labels `peer`, and no others, reach the workload's port."""
    ingress = {
        "from": [{"podSelector": {"matchLabels": dict(peer)}}],
        "ports": [{"protocol": "TCP", "port": workload.port}],
    }
    spec = {"podSelector": {"matchLabels": _selector(workload)}, "policyTypes": ["Ingress"], "ingress": [ingress]}
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return head | {"metadata": {"name": workload.name}, "spec": spec}


def render_disruption_budget(workload: Workload, *, min_available: int) -> Manifest:
    """Return the budget that keeps so many of the workload's pods from being evicted."""
    spec = {"minAvailable": min_available, "selector": {"matchLabels": _selector(workload)}}
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return head | {"metadata": {"name": workload.name}, "spec": spec}


def render_token_source() -> Manifest:
    """Return the source of a volume with a token of the pod's ServiceAccount for our audience."""
    token = {"audience": AUDIENCE, "path": AUDIENCE, "expirationSeconds": 600}
    return {"projected": {"sources": [{"serviceAccountToken": token}]}}


def _template(workload: Workload, **metadata: str) -> Manifest:
    labels = {**_selector(workload), **workload.labels}
    return {
        "metadata": {**metadata, "labels": labels, "annotations": dict(workload.annotations)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 10,
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(workload)],
            "volumes": [{"name": _volume_name(path), **source} for path, source in workload.volumes.items()],
        },
    }


def _container(workload: Workload) -> Manifest:
    container: Manifest = {
        "name": "main",
        "image": workload.image,
        "command": list(workload.command),
        "env": [{"name": name, "value": value} for name, value in workload.environment.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": _volume_name(path), "mountPath": path} for path in (*workload.volumes, *workload.claims)
        ],
    }
    if workload.port:
        probe = {"httpGet": {"path": "/readyz", "port": workload.port}, "periodSeconds": 1, "failureThreshold": 60}
        container |= {"ports": [{"name": "http", "containerPort": workload.port}], "readinessProbe": probe}
    return container


def _selector(workload: Workload) -> dict[str, str]:
    return {NAME: workload.name}


def _volume_name(path: str) -> str:
    return path.strip("/").replace("/", "-")
