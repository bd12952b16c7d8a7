"""The pod of a shard, made from `PodInputs` and nothing else: equal inputs, equal pods.

Whatever may replace a pod is a field of `PodInputs`, so their digest says whether what the user controls has changed. A
new field must have a default that leaves the digest as it was, or an upgrade of the operator alone would replace every
pod; a default that is changed must become a field.
"""

from typing import Final

import msgspec

from groundplane.api.v1alpha1 import EnvironmentVariable, PodTemplate, Resources, RestoreFrom
from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, digest
from groundplane_operator.store_location import Bucket

WORK_MOUNT: Final = "/var/lib/groundplane/work"
STORE_MOUNT: Final = "/var/lib/groundplane/store"
CORPUS_MOUNT: Final = "/etc/groundplane/corpus"
CREDENTIALS_MOUNT: Final = "/etc/groundplane/credentials"
USER_ID: Final = 65532
TOOL: Final = ("python", "-m", "groundplane_shard.tool")


class PodInputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a shard's pod depends on. `bucket` None: log and snapshots lie on the corpus's volume."""

    name: str
    image: str
    pull_policy: str
    corpus_key: str
    incarnation: str
    cache_size: str
    snapshot_seconds: float
    snapshots_keep: int
    language: str
    bucket: str | None = None
    credentials_secret: str | None = None
    cache_medium: str = ""
    pull_secrets: tuple[str, ...] = ()
    resources: Resources = Resources()
    restore_from: RestoreFrom | None = None
    pod_template: PodTemplate = PodTemplate()

    @property
    def digest(self) -> str:
        """Return the digest by which a Deployment remembers its inputs."""
        return digest(self)


def pod_inputs(corpus: Corpus) -> PodInputs:
    """Return what the pod of `corpus` is made from."""
    spec, settings = corpus.spec, corpus.settings
    bucket = corpus.store if isinstance(corpus.store, Bucket) else None
    return PodInputs(
        name=corpus.name,
        image=settings.shard_image,
        pull_policy=settings.shard_image_pull_policy,
        corpus_key=spec.corpus_key,
        incarnation=corpus.uid,
        cache_size=str(spec.cache.size_limit or spec.cache.size_limit_bytes),
        snapshot_seconds=spec.snapshots.every_seconds,
        snapshots_keep=spec.snapshots.keep_count,
        language=settings.shard_language,
        bucket=bucket.url if bucket else None,
        credentials_secret=bucket.credentials_secret if bucket else None,
        cache_medium=spec.cache.medium,
        pull_secrets=settings.pull_secrets,
        resources=spec.resources,
        restore_from=spec.restore_from,
        pod_template=spec.pod_template,
    )


def render_pod_template(inputs: PodInputs) -> Manifest:
    """Return the template of the shard's pod, without fields that the API server would drop."""
    added = inputs.pod_template
    metadata: Manifest = {"labels": {**added.labels, **names.labels(inputs.name)}}
    spec: Manifest = {
        **pod_security(inputs.name),
        "terminationGracePeriodSeconds": 60,  # for the snapshot at the end
        "containers": [_shard(inputs)],
        "volumes": _volumes(inputs),
    }
    optional = {
        "initContainers": [_restore(inputs, inputs.restore_from)] if inputs.restore_from else None,
        "imagePullSecrets": [{"name": name} for name in inputs.pull_secrets],
        "nodeSelector": added.node_selector,
        "tolerations": added.tolerations,
        "affinity": added.affinity,
        "priorityClassName": added.priority_class_name,
    }
    spec.update({name: value for name, value in optional.items() if value})
    if added.annotations:
        metadata["annotations"] = dict(added.annotations)
    return {"metadata": metadata, "spec": spec}


def pod_security(service_account: str) -> Manifest:
    """Return the fields of a pod that the restricted Pod Security Standard asks for, and no API token."""
    return {
        "serviceAccountName": names.child_name(service_account),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def container_security() -> Manifest:
    """Return the same for a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def store_environment(bucket: str | None) -> dict[str, str]:
    """Return where the store is. A volume's directory is one below its mount, so that it can be a private one."""
    if bucket is None:
        return {"GROUNDPLANE_STORE_DIRECTORY": f"{STORE_MOUNT}/corpora"}
    return {"GROUNDPLANE_OBJECT_STORE": bucket, "GROUNDPLANE_S3_CREDENTIALS_DIRECTORY": CREDENTIALS_MOUNT}


def environment_list(variables: dict[str, str], added: list[EnvironmentVariable]) -> list[Manifest]:
    """Return a container's `env`; what is `added` stands in for a variable of ours with the same name."""
    listed: dict[str, Manifest] = {name: {"name": name, "value": value} for name, value in variables.items()}
    for variable in added:
        source = {"value": variable.value} if variable.value is not None else {"valueFrom": variable.value_from}
        listed[variable.name] = {"name": variable.name, **source}
    return list(listed.values())


def _corpus_environment(inputs: PodInputs, work: str) -> dict[str, str]:
    """Return what shard and restore both have to know.

    The work directory is one below its mount: the mount belongs to root, and only an owner can make a directory private.
    """
    return {
        "GROUNDPLANE_CORPUS_KEY": inputs.corpus_key,
        "GROUNDPLANE_INCARNATION": inputs.incarnation,
        **store_environment(inputs.bucket),
        "GROUNDPLANE_WORK_DIRECTORY": f"{WORK_MOUNT}/{work}",
        "TMPDIR": WORK_MOUNT,  # LanceDB builds its indexes there; the root is read-only
    }


def _shard(inputs: PodInputs) -> Manifest:
    variables = {
        **_corpus_environment(inputs, "shard"),
        "GROUNDPLANE_HOST": "0.0.0.0",  # noqa: S104 - a pod's only interface
        "GROUNDPLANE_PORT": str(names.SHARD_PORT),
        "GROUNDPLANE_KEYS_DIRECTORY": CORPUS_MOUNT,
        "GROUNDPLANE_WITNESS_FILE": f"{CORPUS_MOUNT}/{names.WITNESS_FILE}",
        "GROUNDPLANE_WITNESS_WRITE": "false",
        "GROUNDPLANE_SNAPSHOT_SECONDS": f"{inputs.snapshot_seconds:g}",
        "GROUNDPLANE_SNAPSHOTS_KEEP": str(inputs.snapshots_keep),
        "GROUNDPLANE_LANGUAGE": inputs.language,
    }
    return {
        **_container(inputs, names.SHARD_CONTAINER),
        "command": ["groundplane-shard"],
        "env": environment_list(variables, inputs.pod_template.env),
        "ports": [{"name": names.SHARD_PORT_NAME, "containerPort": names.SHARD_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", every_seconds=1, timeout_seconds=2, failures=120),
        "livenessProbe": _probe("/healthz", every_seconds=10, timeout_seconds=5, failures=6),
        "readinessProbe": _probe("/readyz", every_seconds=2, timeout_seconds=2, failures=2),
    }


def _probe(path: str, *, every_seconds: int, timeout_seconds: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": names.SHARD_PORT_NAME},
        "periodSeconds": every_seconds,
        "timeoutSeconds": timeout_seconds,
        "failureThreshold": failures,
    }


def _restore(inputs: PodInputs, source: RestoreFrom) -> Manifest:
    """Return the container that copies an earlier life before the shard starts; a copy that is there it leaves alone."""
    sequence = [] if source.sequence is None else [str(source.sequence)]
    return {
        **_container(inputs, names.RESTORE_CONTAINER),
        "command": [*TOOL, "restore", source.incarnation, *sequence],
        "env": environment_list(_corpus_environment(inputs, "restore"), inputs.pod_template.env),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words go into the status
    }


def _container(inputs: PodInputs, name: str) -> Manifest:
    mounts = [
        {"name": "work", "mountPath": WORK_MOUNT},
        {"name": "corpus", "mountPath": CORPUS_MOUNT, "readOnly": True},
    ]
    if inputs.credentials_secret is None:
        mounts.append({"name": "store", "mountPath": STORE_MOUNT})
    else:
        mounts.append({"name": "credentials", "mountPath": CREDENTIALS_MOUNT, "readOnly": True})
    resources = msgspec.to_builtins(inputs.resources)
    return {
        "name": name,
        "image": inputs.image,
        "imagePullPolicy": inputs.pull_policy,
        "securityContext": container_security(),
        "volumeMounts": mounts,
        **({"resources": resources} if resources else {}),
    }


def _volumes(inputs: PodInputs) -> list[Manifest]:
    medium = {"medium": inputs.cache_medium} if inputs.cache_medium else {}
    child = names.child_name(inputs.name)
    volumes: list[Manifest] = [
        {"name": "work", "emptyDir": {"sizeLimit": inputs.cache_size, **medium}},
        {"name": "corpus", "configMap": {"name": child}},
    ]
    if inputs.credentials_secret is None:
        return [*volumes, {"name": "store", "persistentVolumeClaim": {"claimName": child}}]
    return [*volumes, {"name": "credentials", "secret": {"secretName": inputs.credentials_secret}}]
