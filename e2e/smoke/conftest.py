"""One restricted namespace for all smoke tests, with a shard and two peers in it."""

import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster.environment import Environment
from e2e.cluster.steps import Command, run
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import (
    FRIEND,
    IDLE,
    TOKENS,
    Workload,
    render_deployment,
    render_namespace,
    render_pod,
    render_service,
    render_token_source,
)
from e2e.smoke.shards import STORE, PodShard


@pytest.fixture(scope="session")
def kubectl() -> Iterator[Kubectl]:
    """Give kubectl in a namespace that enforces the restricted standard; it is removed afterwards, without a wait."""
    name = f"smoke-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(name)
    kubectl.apply(render_namespace(name))
    yield kubectl
    run(Command(arguments=("kubectl", "delete", "namespace", name, "--wait=false")))


@pytest.fixture(scope="session")
def shard(environment: Environment, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Give a ready shard that keeps its corpus in an emptyDir: a Deployment `shard` with a Service."""
    shard = PodShard("shard", tmp_path_factory.mktemp("shard"))
    workload = shard.workload(environment.image, volumes={STORE: {"emptyDir": {}}})
    kubectl.apply(shard.render_keys(), render_deployment(workload), render_service(workload))
    kubectl.await_rollout("deployment/shard")
    return workload


@pytest.fixture(scope="session")
def friend(environment: Environment, kubectl: Kubectl) -> str:
    """Give a pod that policies let in, with a token of its ServiceAccount for us."""
    volumes = {TOKENS: render_token_source()}
    return _peer(
        kubectl, Workload(name="friend", image=environment.image, command=IDLE, labels=FRIEND, volumes=volumes)
    )


@pytest.fixture(scope="session")
def stranger(environment: Environment, kubectl: Kubectl) -> str:
    """Give a pod that no policy lets in."""
    return _peer(kubectl, Workload(name="stranger", image=environment.image, command=IDLE))


def _peer(kubectl: Kubectl, workload: Workload) -> str:
    kubectl.apply(render_pod(workload))
    kubectl.await_state(f"pod/{workload.name}", "condition=Ready")
    return workload.name
