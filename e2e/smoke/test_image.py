"""The product's image: what is in it, what is not, and that a change of code costs one small layer.

What every pod sees of it is asked in a pod; what the layers hold is read from the archive that the build wrote.
"""

import json
import os
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from e2e.cluster.environment import Environment
from e2e.cluster.images.archive import archive_of
from e2e.cluster.steps import StepFailed
from e2e.cluster.toolchain import cache_directory
from e2e.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAX_IMAGE_BYTES = 1_000_000_000  # uncompressed; 945 MB were measured, of which lancedb 185, pyarrow 178, kubernetes 126
MAX_CODE_BYTES = 10_000_000
PACKAGES = """
import importlib.metadata, json
print(json.dumps({package.name: package.version for package in importlib.metadata.distributions()}))
"""


@pytest.fixture(scope="module")
def archive(environment: Environment) -> Iterator[tarfile.TarFile]:
    """Give the image's archive; skips where the image came from elsewhere."""
    path = archive_of(cache_directory(os.environ), environment.image).path
    if environment.kind == "given" and not path.exists():
        pytest.skip(f"{environment.image} was not built on this machine")
    with tarfile.open(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    """Give the manifest: the names of the configuration and of the layers, the lowest first."""
    (manifest,) = _json(archive, "manifest.json")
    assert isinstance(manifest, dict)
    return manifest


@pytest.fixture(scope="module")
def layers(archive: tarfile.TarFile, manifest: dict[str, Any]) -> list[list[tarfile.TarInfo]]:
    """Give the files of each layer, the lowest first."""
    found = []
    for name in manifest["Layers"]:
        with tarfile.open(fileobj=archive.extractfile(name)) as layer:
            found.append(layer.getmembers())
    return found


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None
    return json.load(file)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


@pytest.mark.parametrize("program", sorted(PROJECT["scripts"]))
def test_every_program_starts_and_says_what_it_lacks(kubectl: Kubectl, friend: str, program: str) -> None:
    """All programs are in the one image, and none of them misses a package or writes where it may not."""
    answer = kubectl.execute(friend, "sh", "-c", f"{program} --help 2>&1; echo ended with $?")

    assert answer.endswith(("ended with 0\n", "ended with 2\n")), answer
    assert "Traceback" not in answer


def test_the_packages_are_the_locked_ones_and_no_others(kubectl: Kubectl, friend: str) -> None:
    """What runs is what was reviewed; tools of developers and of the build stay outside."""
    lock = (ROOT / "requirements-image.lock").read_text()
    pins = [Requirement(line.rstrip(" \\")) for line in lock.splitlines() if line[0] not in " #"]
    locked = {_normal(pin.name): str(pin.specifier) for pin in pins if pin.marker is None or pin.marker.evaluate()}

    installed = json.loads(kubectl.python(friend, PACKAGES))

    found = {_normal(name): f"=={version}" for name, version in installed.items()}
    assert found == {**locked, "groundplane": f"=={PROJECT['version']}"}


@pytest.mark.parametrize("tool", ["cc", "gcc", "g++", "ld", "make", "git", "curl", "wget"])
def test_no_tool_that_only_a_build_or_an_intruder_needs_is_there(kubectl: Kubectl, friend: str, tool: str) -> None:
    """Whoever gets into a pod finds no compiler and nothing to fetch one with."""
    with pytest.raises(StepFailed):
        kubectl.execute(friend, "sh", "-c", f"command -v {tool}")


def test_the_image_does_not_name_the_machine_that_built_it(archive: tarfile.TarFile, manifest: dict[str, Any]) -> None:
    """A package index of one's own, its proxy and its credentials must not be published with the image."""
    text = json.dumps(_json(archive, manifest["Config"]))

    assert "://" not in text
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


def test_no_secret_of_the_build_is_left_in_a_layer(layers: list[list[tarfile.TarInfo]]) -> None:
    """A file that a later layer removes can still be read in the earlier one."""
    files = [member for layer in layers for member in layer if member.isfile()]
    telling = ("pip.conf", "ca.pem", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/apt/sources.list")

    assert [file.name for file in files if file.name.endswith(telling) and file.size] == []


def test_nothing_in_the_image_can_be_changed_by_its_user(layers: list[list[tarfile.TarInfo]]) -> None:
    """Also where the root file system is not read-only, a shard that was broken into cannot change its own code."""
    files = [member for layer in layers for member in layer if not member.issym() and not member.mode & 0o1000]

    assert [file.name for file in files if file.uid != 0 or file.mode & 0o002] == []


def test_a_change_of_code_makes_one_small_layer_anew(layers: list[list[tarfile.TarInfo]]) -> None:
    """What has to be built, pushed and pulled after every commit are the project's own files."""
    code = [member for member in layers[-1] if member.isfile()]

    assert [file.name for file in code if "groundplane" not in file.name.removeprefix("opt/groundplane/")] == []
    assert sum(file.size for file in code) < MAX_CODE_BYTES


def test_the_image_is_not_larger_than_it_was(layers: list[list[tarfile.TarInfo]]) -> None:
    """Every node that runs a shard pulls it; a dependency that doubles it should be noticed here."""
    assert sum(member.size for layer in layers for member in layer) < MAX_IMAGE_BYTES


def test_the_labels_say_what_the_project_says(archive: tarfile.TarFile, manifest: dict[str, Any]) -> None:
    """The version stands in the Dockerfile and in pyproject.toml; the number of the user is what Kubernetes checks."""
    config = _json(archive, manifest["Config"])["config"]

    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == (
        PROJECT["name"],
        PROJECT["version"],
        PROJECT["license"],
    )
    assert config["User"] == "65532:65532"
