"""The base image: where it comes from, and what it must not carry."""

import tarfile
from pathlib import Path

import pytest

from e2e.cluster.images import base
from e2e.cluster.images.base import LEFT_OUT, base_image
from e2e.cluster.steps import Command, StepFailed
from e2e.cluster.steps import run as really_run

MIRRORS = "bookworm-security https://mirror.example/security/\nbookworm https://mirror.example/debian/\n"


class Bootstraps:
    """Small root file systems instead of Debians, and the commands that would have made them."""

    def __init__(self) -> None:
        self.mirrors: str | None = MIRRORS  # None: no apt here
        self.commands: list[Command] = []

    def run(self, command: Command) -> str:
        """Do what the command does, or something small instead."""
        if command.arguments[0] == "apt-get":
            if self.mirrors is None:
                raise StepFailed("cannot start apt-get")
            return self.mirrors
        if "debootstrap" in command.arguments:
            self.commands.append(command)
            _make_root(Path(next(argument for argument in command.arguments if argument.endswith("/root"))))
            return ""
        return really_run(command)


@pytest.fixture
def bootstraps(monkeypatch):
    """Give what stands for debootstrap and apt."""
    bootstraps = Bootstraps()
    monkeypatch.setattr(base, "run", bootstraps.run)
    monkeypatch.setattr(base, "require_programs", lambda packages: None)
    monkeypatch.setattr("e2e.cluster.images.archive.FREE_BYTES", 0)
    return bootstraps


def _make_root(root: Path) -> None:
    for pattern in (*LEFT_OUT, "./usr/bin/python3", "./usr/share/doc-base/kept"):
        path = root / pattern.replace("*", "something")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")


def test_the_mirror_of_this_machine_is_used(tmp_path, bootstraps):
    """A machine that reaches its own mirror only would otherwise wait for one that it cannot reach."""
    base_image(tmp_path)

    assert bootstraps.commands[0].arguments[-1] == "https://mirror.example/debian/"


def test_without_apt_debootstrap_chooses_the_mirror(tmp_path, bootstraps):
    """debootstrap exists on other distributions too."""
    bootstraps.mirrors = None
    base_image(tmp_path)

    assert bootstraps.commands[0].arguments[-1].endswith("/root")


def test_nothing_that_tells_of_the_machine_or_that_nobody_reads_is_packed(tmp_path, bootstraps):
    """The base would otherwise be twice as large, and hold the machine's name and mirror."""
    archive = base_image(tmp_path)

    with tarfile.open(archive.path) as tar:
        (layer,) = [name for name in tar.getnames() if name.endswith(".tar")]
        with tarfile.open(fileobj=tar.extractfile(layer)) as files:
            packed = {member.name for member in files.getmembers() if member.isfile()}
    assert packed == {"./usr/bin/python3", "./usr/share/doc-base/kept"}


def test_a_killed_bootstrap_keeps_no_mount(tmp_path, bootstraps):
    """debootstrap mounts /proc below the new root; removing that folder later must not remove through the mount."""
    base_image(tmp_path)

    assert bootstraps.commands[0].arguments[:3] == ("setpriv", "--pdeathsig=KILL", "unshare")
