"""The Job that removes log and snapshots of a deleted corpus from its bucket."""

from typing import Final

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, manifest, seal
from groundplane_operator.render.pod import (
    CREDENTIALS_MOUNT,
    TOOL,
    WORK_MOUNT,
    container_security,
    environment_list,
    pod_security,
    store_environment,
)
from groundplane_operator.store_location import Bucket

ATTEMPTS: Final = 20
"""More than fit into any `cleanup_seconds`, since each waits twice as long as the one before: the deadline ends it."""


def render_cleanup_job(corpus: Corpus) -> Manifest | None:
    """Return the Job: it fences the writer, deletes what carries this incarnation and lists to prove that nothing is left.

    None for a corpus on a volume: the volume itself goes. It runs with the corpus's own Secret, within
    `cleanup_seconds` whatever happens.
    """
    bucket = corpus.store
    if not isinstance(bucket, Bucket):
        return None
    labels = names.labels(corpus.name, names.CLEANUP_COMPONENT)
    pod = {
        **pod_security(corpus.name),
        "restartPolicy": "Never",
        "containers": [_container(corpus, bucket)],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {"name": "credentials", "secret": {"secretName": bucket.credentials_secret}},
        ],
    }
    if corpus.settings.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in corpus.settings.pull_secrets]
    spec = {
        "activeDeadlineSeconds": corpus.settings.cleanup_seconds,
        "backoffLimit": ATTEMPTS,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    rendered = manifest(corpus, "batch/v1", "Job", name=names.cleanup_name(corpus.name), spec=spec)
    rendered["metadata"]["labels"] = labels
    return seal(rendered)


def _container(corpus: Corpus, bucket: Bucket) -> Manifest:
    variables = {
        "GROUNDPLANE_CORPUS_KEY": corpus.spec.corpus_key,
        "GROUNDPLANE_INCARNATION": corpus.uid,
        **store_environment(bucket.url),
        "GROUNDPLANE_WORK_DIRECTORY": f"{WORK_MOUNT}/cleanup",
        "TMPDIR": WORK_MOUNT,
    }
    return {
        "name": names.CLEANUP_COMPONENT,
        "image": corpus.settings.shard_image,
        "imagePullPolicy": corpus.settings.shard_image_pull_policy,
        "command": [*TOOL, "erase"],
        "env": environment_list(variables, corpus.spec.pod_template.env),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "work", "mountPath": WORK_MOUNT},
            {"name": "credentials", "mountPath": CREDENTIALS_MOUNT, "readOnly": True},
        ],
    }
