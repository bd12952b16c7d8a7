"""Names, Services and policies between pods."""

from collections.abc import Iterator

import pytest

from e2e.cluster.steps import StepFailed, wait_until
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import FRIEND, Workload, render_policy

RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=3).status)"
POLICY_SECONDS = 30.0  # kube-router takes up to five


@pytest.fixture
def policy(kubectl: Kubectl, shard: Workload) -> Iterator[None]:
    """Let friends reach the shard, and nobody else."""
    kubectl.apply(render_policy(shard, peer=FRIEND))
    yield
    kubectl.delete(f"networkpolicy/{shard.name}")


def is_reached(kubectl: Kubectl, pod: str, url: str) -> bool:
    """Whether an URL answers a request from a pod."""
    try:
        return kubectl.python(pod, GET, url).strip() == "200"
    except StepFailed:
        return False


@pytest.mark.parametrize("suffix", ["", ".{namespace}", ".{namespace}.svc.cluster.local"])
def test_a_service_is_found_by_its_name(kubectl: Kubectl, shard: Workload, friend: str, suffix: str) -> None:
    """Routers find shards by name alone, shortened as users shorten it."""
    address = kubectl.get(f"service/{shard.name}")["spec"]["clusterIP"]

    resolved = kubectl.python(friend, RESOLVE, shard.name + suffix.format(namespace=kubectl.namespace))

    assert resolved.strip() == address


def test_a_service_leads_to_its_pod(kubectl: Kubectl, shard: Workload, friend: str) -> None:
    """The address of a Service is no interface's: kube-proxy's rules have to be there for pods."""
    assert kubectl.python(friend, GET, f"http://{shard.name}:{shard.port}/healthz").strip() == "200"


@pytest.mark.usefixtures("policy")
def test_a_policy_lets_in_whom_it_names_and_nobody_else(
    kubectl: Kubectl, shard: Workload, friend: str, stranger: str
) -> None:
    """The tests of isolation would pass without a policy on a cluster that ignores them."""
    url = f"http://{shard.name}:{shard.port}/healthz"

    wait_until(
        lambda: not is_reached(kubectl, stranger, url),
        what="the stranger is kept out of the shard",
        limit_seconds=POLICY_SECONDS,
        explain=lambda: "it still gets an answer: does this cluster enforce NetworkPolicy?",
    )
    wait_until(
        lambda: is_reached(kubectl, friend, url),
        what="the friend gets into the shard",
        limit_seconds=POLICY_SECONDS,
        explain=lambda: "it gets no answer, although the policy names it",
    )
    assert not is_reached(kubectl, stranger, url)
