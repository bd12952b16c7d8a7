"""Names, labels and annotations of what the operator makes; whoever looks for a child finds its name here."""

from collections.abc import Mapping
from typing import Final

from groundplane.api.v1alpha1 import GROUP

FIELD_MANAGER: Final = "groundplane-operator"
FINALIZER: Final = f"{GROUP}/cleanup"

CORPUS_LABEL: Final = f"{GROUP}/corpus"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"

PAUSED_ANNOTATION: Final = f"{GROUP}/paused"
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"
"""Digest of the manifest as it was applied: a field that is rendered no longer shows as a difference here."""
INPUTS_ANNOTATION: Final = f"{GROUP}/inputs"
"""Of a Deployment: digest of what its pods were made from."""
TEMPLATE_ANNOTATION: Final = f"{GROUP}/template"
"""Of a Deployment: the pod template as it was applied, JSON."""
TEMPLATE_DIGEST_ANNOTATION: Final = f"{GROUP}/template-digest"
"""Of a Deployment: digest of that template, so that one edited by hand is not taken for ours."""
CHANGE_ANNOTATION: Final = f"{GROUP}/change"
"""Of a Deployment: the first field of the pod template that the last roll-out changed."""
WITNESSED_ANNOTATION: Final = f"{GROUP}/witnessed-at"
"""Of a ConfigMap: when witness.json was last raised, RFC 3339."""
STORAGE_KEY_ANNOTATION: Final = f"{GROUP}/storage-key"
"""Of a volume: the corpus key whose data lies on it."""

SHARD_COMPONENT: Final = "shard"
CLEANUP_COMPONENT: Final = "cleanup"
SHARD_CONTAINER: Final = "shard"
RESTORE_CONTAINER: Final = "restore"
SHARD_PORT: Final = 8081
SHARD_PORT_NAME: Final = "shard"
WITNESS_FILE: Final = "witness.json"


def child_name(corpus_name: str) -> str:
    """Return the name of every child but the clean-up Job; at most 57 characters for the longest name of a resource."""
    return f"corpus-{corpus_name}"


def cleanup_name(corpus_name: str) -> str:
    """Return the name of the clean-up Job. Not the children's with a suffix: that would not fit into a label."""
    return f"cleanup-{corpus_name}"


def endpoint(corpus_name: str, namespace: str) -> str:
    """Return the URL under which router and operator reach the shard."""
    return f"http://{child_name(corpus_name)}.{namespace}.svc:{SHARD_PORT}"


def labels(corpus_name: str, component: str = SHARD_COMPONENT) -> dict[str, str]:
    """Return the labels of a child, or of a pod."""
    return {
        "app.kubernetes.io/name": "groundplane",
        COMPONENT_LABEL: component,
        "app.kubernetes.io/instance": corpus_name,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        CORPUS_LABEL: corpus_name,
    }


def shard_selector(corpus_name: str) -> dict[str, str]:
    """Return the labels by which Service and Deployment know the shard's pods. It can never change."""
    return {CORPUS_LABEL: corpus_name, COMPONENT_LABEL: SHARD_COMPONENT}


def is_paused(annotations: Mapping[str, str]) -> bool:
    """Return whether a resource's annotations stop the operator."""
    return annotations.get(PAUSED_ANNOTATION) == "true"
