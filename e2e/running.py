"""Runs the end-to-end tests: a cluster, the product's image in it, pytest in its network, and the cluster removed.

`KEEP=1` keeps the cluster for the next run, which then starts in a second.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from e2e.cluster.environment import VARIABLE, Environment, bring_up, choose_kind, load_images, take_down
from e2e.cluster.images.product import product_image, product_image_by_docker
from e2e.cluster.steps import StepFailed, end_tidily_when_asked, say
from e2e.cluster.toolchain import cache_directory

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, or 1 where no cluster can be had; it is said why on standard error."""
    end_tidily_when_asked()
    try:
        return run_tests(arguments, os.environ)
    except (StepFailed, OSError) as failure:
        print(f"groundplane: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell says it


def run_tests(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return pytest's exit code for `arguments`. Raises StepFailed where there is no cluster for the tests."""
    kind = choose_kind(environment)
    try:
        there = with_image(bring_up(kind, environment), environment)
        pytest = (*there.enter, sys.executable, "-m", "pytest", *with_tests(arguments))
        return subprocess.run(pytest, check=False, cwd=ROOT, env=variables(there, environment)).returncode
    finally:
        if environment.get("KEEP"):
            say("KEEP is set: the cluster stays; `make cluster-down` removes it")
        else:
            take_down(kind, environment)


def with_tests(arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments with all end-to-end tests added if they name none; pytest alone would run the others."""
    names_tests = any((ROOT / argument.split("::")[0]).exists() for argument in arguments)
    return [*arguments] if names_tests else [str(ROOT / "e2e"), *arguments]


def with_image(there: Environment, environment: Mapping[str, str]) -> Environment:
    """Return the environment with the product's image in it: built and loaded, or the one that is named."""
    named = environment.get("GROUNDPLANE_E2E_IMAGE")
    if named:
        return msgspec.structs.replace(there, image=named)
    if there.kind == "given":
        raise StepFailed(
            f"KUBECONFIG={there.kubeconfig}: push the product's image where that cluster finds it "
            "(`docker build .`), and name it in GROUNDPLANE_E2E_IMAGE"
        )
    build = product_image_by_docker if there.kind == "kind" else product_image
    image = build(cache_directory(environment))
    load_images(there, [image], environment)
    return msgspec.structs.replace(there, image=image.reference)


def variables(there: Environment, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the tests."""
    path = os.pathsep.join([*there.programs, environment.get("PATH", os.defpath)])
    return {**environment, "KUBECONFIG": there.kubeconfig, "PATH": path, VARIABLE: msgspec.json.encode(there).decode()}
