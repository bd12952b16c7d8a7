"""The corpora of examples/, in the namespaces of a test."""

from pathlib import Path

import yaml

from e2e.cluster.api import Manifest
from e2e.cluster.environment import Environment, ObjectStore
from e2e.cluster.steps import StepFailed, wait_until
from e2e.install.agents import Agent
from e2e.kubectl import Kubectl
from e2e.release import BUCKET, CREDENTIALS

EXAMPLES = Path(__file__).parents[2] / "examples"
VOLUME = {"storage": {"size": "1Gi"}}
_MAKE_BUCKET = """
import sys
from minio import Minio
host, access_key, secret_key, bucket = sys.argv[1:]
client = Minio(host, access_key, secret_key, secure=False)
if not client.bucket_exists(bucket):
    client.make_bucket(bucket)
"""


def examples(environment: Environment, *, system: str, agents: str) -> list[Manifest]:
    """Return the manifests of examples/ with the release's namespace and that of the agents; on volumes without a bucket."""
    texts = [path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))]
    moved = [
        text.replace("groundplane-system", system).replace("namespace: agents", f"namespace: {agents}")
        for text in texts
    ]
    manifests = [yaml.safe_load(text) for text in moved]
    place = {} if environment.object_store else VOLUME
    return [{**each, "spec": {**each["spec"], **place}} for each in manifests]


def make_bucket(store: ObjectStore, agent: Agent) -> None:
    """Make the bucket of all releases if it is not there, from a pod: the server may be reached from there alone."""
    host = store.endpoint.removeprefix("http://")
    agent.kubectl.python(agent.name, _MAKE_BUCKET, host, store.access_key, store.secret_key, BUCKET)


def render_credentials(store: ObjectStore) -> Manifest:
    """Return the Secret that the chart names for corpora without a place of their own."""
    keys = {"access-key": store.access_key, "secret-key": store.secret_key}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CREDENTIALS}, "stringData": keys}


def await_ready(kubectl: Kubectl, *names: str, limit_seconds: float) -> None:
    """Return when these corpora are Ready in the router's eyes and the operator's. Raises StepFailed with their statuses."""

    def statuses() -> dict[str, Manifest]:
        return {name: kubectl.get(f"tenantcorpus/{name}").get("status", {}) for name in names}

    def are_ready() -> bool:
        return all(
            any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
            for status in statuses().values()
        )

    wait_until(
        are_ready,
        what=f"{', '.join(names)} are Ready",
        limit_seconds=limit_seconds,
        explain=lambda: str(statuses()),
    )


def await_grant(agent: Agent, *, limit_seconds: float) -> None:
    """Return when the router knows the agent's corpus and its shard answers."""

    def is_answered() -> bool:
        try:
            return agent.ground("are you there?").status == 200
        except StepFailed:  # no router's pod is known to the Service yet
            return False

    wait_until(
        is_answered, what=f"{agent.name} gets an answer", limit_seconds=limit_seconds, explain=lambda: "it gets none"
    )
