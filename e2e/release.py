"""A release of our chart in a real cluster, as a user installs it."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from e2e.cluster.environment import Environment
from e2e.cluster.steps import Command, run, succeeds
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import render_namespace

CHART = Path(__file__).parents[1] / "helm/groundplane"
NAME = "groundplane"
CRD = "customresourcedefinition/tenantcorpora.groundplane.dev"
CREDENTIALS = "bucket-keys"
BUCKET = "groundplane-e2e"  # one for all releases: the S3 server of our own cluster holds seven
INSTALL_SECONDS = 180.0


class Release(msgspec.Struct, frozen=True):
    """Operator and router in a namespace. Every method raises StepFailed with Helm's words."""

    namespace: str
    values: Mapping[str, Any]

    @property
    def kubectl(self) -> Kubectl:
        """Return kubectl in the release's namespace."""
        return Kubectl(self.namespace)

    @property
    def url(self) -> str:
        """Return where agents find the router."""
        return f"http://groundplane-router.{self.namespace}.svc"

    def apply(self, **values: Any) -> None:
        """Install the chart, or upgrade to it; `values` go over the release's own. Returns when all pods are ready."""
        told = json.dumps({**self.values, **values}).encode()  # JSON is YAML
        self._helm("upgrade", "--install", NAME, str(CHART), "--values=-", "--wait", standard_input=told)
        for component in ("operator", "router"):
            self.kubectl.await_rollout(f"deployment/groundplane-{component}")

    def test(self) -> str:
        """Return what `helm test` says."""
        return self._helm("test", NAME)

    def uninstall(self) -> None:
        """Uninstall it and return when its pods are gone."""
        self._helm("uninstall", NAME, "--wait")

    def _helm(self, *arguments: str, standard_input: bytes = b"") -> str:
        command = (
            "helm",
            f"--namespace={self.namespace}",
            *arguments,
            *((f"--timeout={INSTALL_SECONDS:.0f}s",) if "--wait" in arguments or "test" in arguments else ()),
        )
        return run(Command(arguments=command, standard_input=standard_input, limit_seconds=INSTALL_SECONDS + 30))


@contextmanager
def released(environment: Environment, values: Mapping[str, Any]) -> Iterator[Release]:
    """Give the chart installed in a namespace that enforces the restricted standard; all of it is removed afterwards.

    Corpora without a place of their own lie in BUCKET where an S3 server is known; the caller has to make it. The CRD goes
    too, unless it was there before.
    """
    name = f"install-{uuid.uuid4().hex[:8]}"
    had_crd = succeeds(Command(arguments=("kubectl", "get", CRD)))
    release = Release(name, {**chart_values(environment, name), "crds": {"enabled": not had_crd}, **values})
    release.kubectl.apply(render_namespace(name))
    try:
        release.apply()
        yield release
    finally:
        if not had_crd:
            run(
                Command(arguments=("kubectl", "delete", CRD, "--ignore-not-found", "--timeout=120s"), limit_seconds=130)
            )
        run(Command(arguments=("kubectl", "delete", "namespace", name, "--wait=false")))
        succeeds(Command(arguments=("helm", f"--namespace={name}", "uninstall", NAME)))


def chart_values(environment: Environment, prefix: str) -> dict[str, Any]:
    """Return the values for this cluster: our image as it is on the node, and a prefix in the bucket where there is one."""
    repository, _, tag = environment.image.rpartition(":")
    pull_policy = "IfNotPresent" if environment.kind == "given" else "Never"
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": pull_policy},
        "operator": {"pollSeconds": 5},
    }
    if environment.object_store is not None:
        url = f"s3://{BUCKET}/{prefix}?endpoint={environment.object_store.endpoint}"
        values["objectStore"] = {"url": url, "credentialsSecret": CREDENTIALS}
    return values
