"""Pods: what they may not do, and that they come back."""

import pytest

from e2e.cluster.environment import Environment
from e2e.cluster.steps import StepFailed
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import USER, Workload


def test_a_pod_that_asks_for_more_than_it_needs_is_refused(kubectl: Kubectl, environment: Environment) -> None:
    """Unless the namespace really enforces its standard, pods that run in it prove nothing."""
    container = {"name": "main", "image": environment.image}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "careless"}, "spec": {"containers": [container]}}

    with pytest.raises(StepFailed, match='violates PodSecurity "restricted'):
        kubectl.apply(pod)


def test_a_shard_runs_as_nobody_in_particular_on_a_root_it_cannot_change(kubectl: Kubectl, shard: Workload) -> None:
    """It was made to be run like this: its own user, no rights, and nothing to write to but its volumes."""
    pod = f"deployment/{shard.name}"

    assert kubectl.execute(pod, "id", "-u").strip() == str(USER)
    for folder in ("/", "/tmp", "/opt/groundplane"):
        with pytest.raises(StepFailed, match="Read-only file system"):
            kubectl.execute(pod, "touch", f"{folder}/something")


def test_a_command_that_fails_in_a_pod_is_an_error_with_its_words(kubectl: Kubectl, friend: str) -> None:
    """The other tests trust that what they run in a pod was done."""
    with pytest.raises(StepFailed, match=r"(?s)exit code 7.*the reason|the reason.*exit code 7"):
        kubectl.execute(friend, "sh", "-c", "echo the reason >&2; exit 7")


def test_a_deleted_pod_of_a_deployment_comes_back(kubectl: Kubectl, shard: Workload) -> None:
    """Controllers, scheduler and kubelet work together, and a shard starts a second time on a node that has seen it."""
    (before,) = kubectl.list("pods", selector=f"app.kubernetes.io/name={shard.name}")

    kubectl.delete(f"pod/{before['metadata']['name']}")
    kubectl.await_rollout(f"deployment/{shard.name}")

    (after,) = kubectl.list("pods", selector=f"app.kubernetes.io/name={shard.name}")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
