"""What of Debian is installed, and what is said where it cannot be."""

import os
import shutil
from pathlib import Path

import pytest

from e2e.cluster import debian
from e2e.cluster.debian import missing_programs, require_programs
from e2e.cluster.steps import Command, StepFailed

ABSENT = {"groundplane-no-such-program": "no-such-package"}


@pytest.fixture
def commands(monkeypatch):
    """Run nothing, and give what would have been run."""
    ran: list[Command] = []
    monkeypatch.setattr(debian, "run", ran.append)
    return ran


def test_programs_that_exist_are_not_missing():
    """A machine that has everything must not wait for package lists."""
    assert missing_programs({"sh": "dash", "/bin/sh": "dash"}) == []


def test_programs_are_found_beside_an_ordinary_search_path(monkeypatch):
    """Debian keeps iptables and debootstrap in /usr/sbin, which is on no ordinary user's PATH."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert missing_programs({"useradd": "passwd"}) == []


def test_nothing_is_run_where_nothing_is_missing(commands):
    """A second `up` must not depend on Debian's servers."""
    require_programs({"sh": "dash"})

    assert commands == []


def test_what_is_still_missing_after_its_installation_is_an_error(commands, monkeypatch):
    """A package that does not hold the program is our mistake, and is named here, not three steps later."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name if Path(name).name == "apt-get" else None)

    with pytest.raises(StepFailed, match=r"no-such-package were installed and groundplane-no-such-program are still"):
        require_programs(ABSENT)
    assert [command.arguments[-1] for command in commands] == ["update", "no-such-package"]


def test_who_is_not_root_is_told_the_command(commands, monkeypatch):
    """A person can act on the text without reading the source."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(StepFailed, match=r"apt-get update && apt-get .*install .*no-such-package"):
        require_programs(ABSENT)
    assert commands == []
