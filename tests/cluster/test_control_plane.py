"""What tests of the operator rely on: the API server is a real one, and so are the controllers behind it."""

import json
from typing import Any

import pytest
import yaml

from e2e.cluster.control_plane import apply, kubectl
from e2e.cluster.state import Cluster
from e2e.cluster.steps import StepFailed, run, succeeds, wait_until

SIZED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boxes.tests.groundplane.dev"},
    "spec": {
        "group": "tests.groundplane.dev",
        "names": {"kind": "Box", "plural": "boxes", "singular": "box"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer"}},
                                "x-kubernetes-validations": [
                                    {"rule": "self.size >= oldSelf.size", "message": "a box never shrinks"}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}


def config_map(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    """Return a ConfigMap manifest."""
    named = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"answer": "42"}}


def box(namespace: str, size: int) -> dict[str, Any]:
    """Return an object of the kind that the test defines."""
    metadata = {"name": "box", "namespace": namespace}
    return {"apiVersion": "tests.groundplane.dev/v1", "kind": "Box", "metadata": metadata, "spec": {"size": size}}


def as_yaml(manifest: dict[str, Any]) -> bytes:
    """Return a manifest as `kubectl apply` takes it."""
    return yaml.safe_dump(manifest).encode()


def test_an_object_comes_back_as_it_was_stored(control_plane: Cluster, namespace: str) -> None:
    """Requests pass authentication, admission and etcd, and not a fake of them."""
    apply(control_plane, as_yaml(config_map("kept", namespace)))

    stored = json.loads(run(kubectl(control_plane, "-n", namespace, "get", "configmap", "kept", "-o", "json")))

    assert stored["data"] == {"answer": "42"}


def test_a_rule_of_a_custom_resource_definition_is_enforced(control_plane: Cluster, namespace: str) -> None:
    """The CRD's CEL rules are part of the product, and only a real API server evaluates them."""
    apply(control_plane, as_yaml(SIZED))
    run(
        kubectl(
            control_plane, "wait", "--for=condition=Established", "crd/boxes.tests.groundplane.dev", "--timeout=20s"
        )
    )
    apply(control_plane, as_yaml(box(namespace, 2)))

    with pytest.raises(StepFailed, match="a box never shrinks"):
        apply(control_plane, as_yaml(box(namespace, 1)))


def test_children_go_with_their_owner(control_plane: Cluster, namespace: str) -> None:
    """The operator deletes no child itself: it relies on the garbage collector of the controller manager."""
    apply(control_plane, as_yaml(config_map("owner", namespace)))
    uid = run(kubectl(control_plane, "-n", namespace, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    apply(control_plane, as_yaml(config_map("child", namespace, ownerReferences=[owner])))

    run(kubectl(control_plane, "-n", namespace, "delete", "configmap", "owner"))

    wait_until(
        lambda: not succeeds(kubectl(control_plane, "-n", namespace, "get", "configmap", "child")),
        what="the child is collected",
        limit_seconds=30,
        explain=lambda: "it is still there",
    )


@pytest.mark.parametrize("run_number", [1, 2])
def test_each_test_has_a_namespace_of_its_own(control_plane: Cluster, namespace: str, run_number: int) -> None:
    """Tests that share an API server must not see one another's objects, whatever their order."""
    there = run(kubectl(control_plane, "-n", namespace, "get", "configmap", "-o", "name")).split()

    apply(control_plane, as_yaml(config_map("mine", namespace)))

    assert "configmap/mine" not in there
