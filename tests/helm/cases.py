"""The values whose manifests are golden files: a reader sees in them what each value does."""

from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"

_MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
_DNS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
_ON_LINUX = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
_WORKLOAD: dict[str, Any] = {
    "podLabels": {"team": "search"},
    "podAnnotations": {"note": "kept"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "search", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ON_LINUX]}}
    },
    "priorityClassName": "high",
    "serviceAccountAnnotations": {"owner": "search"},
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
}
_EVERYTHING: dict[str, Any] = {
    "global": {"imageRegistry": "registry.internal"},
    "image": {
        "registry": "ignored",
        "digest": "sha256:" + "0123456789abcdef" * 4,
        "pullPolicy": "Always",
        "pullSecrets": ["registry", "mirror"],
    },
    "watch": {"anySubjectNamespace": True},
    "rbac": {"secretNames": ["bucket-keys"]},
    "objectStore": {"url": "s3://corpora/prod?endpoint=http://s3.storage.svc:9000", "credentialsSecret": "bucket-keys"},
    "embedder": {
        "kind": "openai",
        "url": "http://embeddings.models.svc:8000",
        "model": "bge-m3",
        "dimension": 1024,
        "format": "bge",
        "apiKeySecret": {"name": "embedder", "key": "token"},
    },
    "grep": {"volume": {"configMap": {"name": "handbook"}}, "directory": "public"},
    "language": "german",
    "logLevel": "debug",
    "networkPolicy": {
        "callers": [{"namespaceSelector": {"matchLabels": {"agents": "true"}}}],
        "metrics": [_MONITORING],
        "dns": [_DNS],
        "apiServer": {"peers": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [443]},
        "objectStore": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "storage"}}}],
        "embedder": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}],
    },
    "metrics": {"scrapeAnnotations": True},
    "operator": {
        **_WORKLOAD,
        "extraEnv": [{"name": "GROUNDPLANE_WORKERS", "value": "16"}],
        "maxConcurrentRollouts": 5,
        "rolloutSeconds": 1_000_000,
        "cleanupSeconds": 600,
        "pollSeconds": 7.5,
        "rotateKeysDays": 0.5,
    },
    "router": {
        **_WORKLOAD,
        "extraEnv": [{"name": "GROUNDPLANE_LOG_LEVEL", "value": "warning"}],
        "replicas": 3,
        "requireSemantic": True,
        "podDisruptionBudget": {"maxUnavailable": 2},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "serviceAnnotations": {"note": "kept"},
    },
    "commonLabels": {"cost-centre": "4711"},
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "handbook"}, "data": {"a.md": "a"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: of-{{ .Release.Name }}\n",
    ],
}
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "namespaced": {"watch": {"scope": "namespaces", "namespaces": ["agents", "search"]}},
    "url-embedder": {"embedder": {"kind": "openai", "url": "https://embeddings.models.svc"}},
    "everything": _EVERYTHING,
}
