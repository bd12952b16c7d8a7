"""What a shard acknowledged is there after its pod was lost, whatever keeps its corpus."""

import uuid
from pathlib import Path

import httpx
import pytest

from e2e.cluster.environment import Environment, ObjectStore
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import NAME, render_deployment, render_stateful_set
from e2e.smoke.shards import STORE, PodShard
from tests.support.writes import key_of, operation, parts_of

WRITES = ((1, 1), (2, 1), (1, 2))  # number and version of a document
CREDENTIALS = "/credentials"
MAKE_BUCKET = """
import sys
from minio import Minio
host, access_key, secret_key, bucket = sys.argv[1:]
Minio(host, access_key, secret_key, secure=False).make_bucket(bucket)
"""


@pytest.fixture
def object_store(environment: Environment) -> ObjectStore:
    """Give an S3 server that pods reach; skips on a cluster of somebody else's, where we know of none."""
    if environment.object_store is None:
        pytest.skip("no S3 server is known in this cluster")
    return environment.object_store


def assert_survives_its_pod(kubectl: Kubectl, shard: PodShard, resource: str) -> None:
    """Write two documents, one of them twice, delete the shard's pod, and find in the next one what was written last."""
    kubectl.await_rollout(resource)
    with shard.reached(kubectl, resource), httpx.Client(timeout=10.0) as client:
        for number, version in WRITES:
            shard.write(client, operation(number, version))
    (pod,) = kubectl.list("pods", selector=f"{NAME}={shard.name}")
    kubectl.delete(f"pod/{pod['metadata']['name']}")
    kubectl.await_rollout(resource)

    with shard.reached(kubectl, resource), httpx.Client(timeout=10.0) as client:
        for number, version in dict(WRITES).items():
            assert shard.stored_text(client, key_of(number)) == "".join(parts_of(number, version))


def test_a_shard_on_a_claim_keeps_what_it_acknowledged(
    kubectl: Kubectl, environment: Environment, tmp_path: Path
) -> None:
    """A claim is provided when a pod wants it, belongs to the pod's group, and outlives the pod."""
    shard = PodShard("on-claim", tmp_path)
    workload = shard.workload(environment.image, claims={STORE: "1Gi"})
    kubectl.apply(shard.render_keys(), render_stateful_set(workload))

    assert_survives_its_pod(kubectl, shard, "statefulset/on-claim")


def test_a_shard_on_a_bucket_keeps_what_it_acknowledged(
    kubectl: Kubectl, environment: Environment, object_store: ObjectStore, friend: str, tmp_path: Path
) -> None:
    """A pod reaches the S3 server by its name, and nothing of the corpus lies in the pod."""
    bucket = f"smoke-{uuid.uuid4().hex[:8]}"
    host = object_store.endpoint.removeprefix("http://")
    kubectl.python(friend, MAKE_BUCKET, host, object_store.access_key, object_store.secret_key, bucket)
    settings = {
        "GROUNDPLANE_OBJECT_STORE": f"s3://{bucket}?endpoint={object_store.endpoint}",
        "GROUNDPLANE_S3_CREDENTIALS_DIRECTORY": CREDENTIALS,
    }
    shard = PodShard("on-bucket", tmp_path, settings)
    keys = {"access-key": object_store.access_key, "secret-key": object_store.secret_key}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bucket"}, "stringData": keys}
    workload = shard.workload(environment.image, volumes={CREDENTIALS: {"secret": {"secretName": "bucket"}}})
    kubectl.apply(secret, shard.render_keys(), render_deployment(workload))

    assert_survives_its_pod(kubectl, shard, "deployment/on-bucket")
