"""The chart, installed as a user installs it, with the corpora of examples/ and agents in a namespace of their own."""

import time
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from e2e.cluster.environment import Environment
from e2e.cluster.steps import Command, run
from e2e.install.agents import Agent, start_agent
from e2e.install.corpora import await_grant, await_ready, examples, make_bucket, render_credentials
from e2e.kubectl import Kubectl
from e2e.release import Release, released
from e2e.smoke.manifests import render_namespace

READY_SECONDS = 60.0  # three shards that start at once on two cores; one alone takes about 7
CORPORA = ("acme", "globex", "platform")


class Installation(msgspec.Struct, frozen=True):
    """A release with corpora, and agents by the names of their ServiceAccounts."""

    release: Release
    agents: dict[str, Agent]
    ready_seconds: float  # from apply until all three corpora were Ready

    def shard_pods(self) -> dict[str, str]:
        """Return the uid of the pod of each of `CORPORA`."""
        pods = self.release.kubectl.list("pods", selector="app.kubernetes.io/component=shard")
        uids = {pod["metadata"]["labels"]["groundplane.dev/corpus"]: pod["metadata"]["uid"] for pod in pods}
        return {name: uids[name] for name in CORPORA}


@pytest.fixture(scope="module")
def scope() -> str:
    """Give the scope of the release; a module may choose another."""
    return "cluster"


@pytest.fixture(scope="module")
def agents_kubectl() -> Iterator[Kubectl]:
    """Give kubectl in the namespace of the agents, which enforces the restricted standard too."""
    name = f"agents-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(name)
    kubectl.apply(render_namespace(name))
    yield kubectl
    run(Command(arguments=("kubectl", "delete", "namespace", name, "--wait=false")))


@pytest.fixture(scope="module")
def installation(environment: Environment, scope: str, agents_kubectl: Kubectl) -> Iterator[Installation]:
    """Give a release whose corpora are Ready and whose agents get answers."""
    with released(environment, {"watch": {"scope": scope}}) as release:
        names = ("acme-indexer", "acme-agent", "globex-agent", "stranger")
        agents = {name: start_agent(agents_kubectl, name, image=environment.image, url=release.url) for name in names}
        if environment.object_store:
            make_bucket(environment.object_store, agents["stranger"])
            release.kubectl.apply(render_credentials(environment.object_store))
        started = time.monotonic()
        release.kubectl.apply(*examples(environment, system=release.namespace, agents=agents_kubectl.namespace))
        await_ready(release.kubectl, *CORPORA, limit_seconds=READY_SECONDS)
        ready_seconds = time.monotonic() - started
        for name in names[:-1]:
            await_grant(agents[name], limit_seconds=READY_SECONDS)
        yield Installation(release, agents, ready_seconds)
