"""Helm for tests: the chart rendered as a user's Helm renders it. Built once from its Go module by `e2e.cluster.builds`."""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from e2e.cluster import builds
from e2e.cluster.steps import Command, run
from e2e.cluster.toolchain import cache_directory

PROGRAM = "helm"
ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/groundplane"
RELEASE = "groundplane"
NAMESPACE = "groundplane-system"

Manifest = dict[str, Any]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where the library was built with it


class Helm(msgspec.Struct, frozen=True):
    """The program. Every method raises StepFailed with its words."""

    program: Path
    chart: Path = CHART

    def lint(self, values: Mapping[str, Any]) -> str:
        """Return what `helm lint --strict` has to say of the chart with `values`."""
        return self._run("lint", str(self.chart), "--strict", *_kubernetes(), values=values)

    def template(self, values: Mapping[str, Any], *arguments: str) -> str:
        """Return the manifests with `values`, as text."""
        return self._run("template", RELEASE, str(self.chart), *_kubernetes(), *arguments, values=values)

    def manifests(self, values: Mapping[str, Any], *arguments: str) -> list[Manifest]:
        """Return the manifests with `values`."""
        return [each for each in yaml.load_all(self.template(values, *arguments), _LOADER) if each is not None]

    def notes(self, values: Mapping[str, Any]) -> str:
        """Return what is printed after an install with `values`. Only an object can be rendered without a cluster."""
        shown = 'kind: Notes\ntext: {{ include "groundplane.notes" . | toJson }}'
        (notes,) = (each for each in self.manifests({**values, "extraObjects": [shown]}) if each["kind"] == "Notes")
        return str(notes["text"])

    def _run(self, *arguments: str, values: Mapping[str, Any]) -> str:
        command = (str(self.program), f"--namespace={NAMESPACE}", *arguments, "--values=-")
        standard_input = json.dumps(values).encode()  # JSON is YAML
        return run(Command(arguments=command, standard_input=standard_input))


def _kubernetes() -> tuple[str, ...]:
    """Return the version to render for: a Helm that was built without its usual flags takes 1.20 for granted."""
    return (f"--kube-version={builds.KUBERNETES_VERSION}",)


def is_ready() -> bool:
    """Whether nothing has to be built."""
    return not builds.plan_builds(cache_directory(os.environ), (PROGRAM,))


def build() -> Path:
    """Return the program, built if the cache lacks it. Raises `e2e.cluster.steps.StepFailed`."""
    builds.build(cache_directory(os.environ), (PROGRAM,))
    return builds.binary(cache_directory(os.environ), PROGRAM)


def previous_chart(directory: Path) -> Path | None:
    """Return the chart as it was before the last commit that changed it, in `directory`; None where no history tells."""
    place = str(CHART.relative_to(ROOT))
    try:
        commits = _git("log", "-2", "--format=%H", "--", place).decode().split()
    except (OSError, subprocess.CalledProcessError):
        return None
    if len(commits) < 2:
        return None
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commits[1], place))) as archive:
        archive.extractall(directory, filter="data")
    return directory / place


def _git(*arguments: str) -> bytes:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True).stdout
