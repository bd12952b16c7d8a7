"""The lock files of the image: the runtime's part of requirements.lock, and no more."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[4]
PIN = re.compile(r"^([\w.-]+==\S+(?: ; .+?)?) \\\n((?:    --hash=\S+(?: \\\n|\n|$))+)", re.MULTILINE)


def locked(name: str) -> dict[str, str]:
    """Return the pins of a lock file, with their markers, each with its hashes."""
    return dict(PIN.findall((ROOT / name).read_text()))


def hashes_of(text: str) -> list[str]:
    """Return the hashes of one pin."""
    return re.findall(r"--hash=(\S+)", text)


def names(name: str) -> set[str]:
    """Return the packages of a lock file that are installed on this kind of machine."""
    pins = [Requirement(pin) for pin in locked(name)]
    return {canonicalize_name(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate()}


def closure(requirements: list[Requirement]) -> set[str]:
    """Return the names of packages and of all that they need here, as their metadata says."""
    found: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in found:
                found.add((name, wanted))
                waiting += [(Requirement(line), wanted) for line in requires(name) or []]
    return {name for name, _ in found}


@pytest.mark.parametrize("name", ["requirements-image.lock", "requirements-build.lock"])
def test_a_part_pins_what_the_whole_pins(name):
    """Tests run with the very packages that the image gets."""
    part, whole = locked(name), locked("requirements.lock")

    assert part, f"{name} pins nothing"
    assert part.keys() <= whole.keys()
    assert {pin: hashes_of(text) for pin, text in part.items()} == {pin: hashes_of(whole[pin]) for pin in part}


def test_the_image_gets_what_the_programs_need_and_nothing_else():
    """No tool of the developers' is in reach of whoever gets into a pod."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime = [*project["dependencies"], *(line for name in sorted({*extras} - {"dev"}) for line in extras[name])]

    assert names("requirements-image.lock") == closure([Requirement(line) for line in runtime])


def test_the_build_gets_the_build_backend_and_nothing_else():
    """What builds the image can change it."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]

    assert names("requirements-build.lock") == closure([Requirement(line) for line in system["requires"]])
