"""Evictions, as a drained node causes them."""

import pytest

from e2e.cluster.environment import Environment
from e2e.cluster.steps import StepFailed
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import IDLE, NAME, Workload, render_deployment, render_disruption_budget


def evict(kubectl: Kubectl, workload: Workload) -> str:
    """Evict the workload's first pod and return its name."""
    pod: str = kubectl.list("pods", selector=f"{NAME}={workload.name}")[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    kubectl.create(eviction, path=f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction")
    return pod


def test_a_pod_is_evicted_when_its_budget_can_spare_it_and_not_before(
    kubectl: Kubectl, environment: Environment
) -> None:
    """A drained node must not take the only copy of anything; with a second copy there it must not be held up."""
    workload = Workload(name="guarded", image=environment.image, command=IDLE)
    kubectl.apply(render_deployment(workload), render_disruption_budget(workload, min_available=1))
    kubectl.await_rollout("deployment/guarded")
    kubectl.await_state("poddisruptionbudget/guarded", "jsonpath={.status.currentHealthy}=1")
    with pytest.raises(StepFailed, match="would violate the pod's disruption budget"):
        evict(kubectl, workload)

    kubectl.apply(render_deployment(workload, replicas=2))
    kubectl.await_state("poddisruptionbudget/guarded", "jsonpath={.status.disruptionsAllowed}=1")
    evicted = evict(kubectl, workload)

    kubectl.await_state(f"pod/{evicted}", "delete")
    kubectl.await_rollout("deployment/guarded")
