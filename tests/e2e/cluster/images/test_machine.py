"""What a build learns of this machine's package index, and that nothing else of the machine gets there."""

import configparser
from pathlib import Path

import pytest

from e2e.cluster.images import machine
from e2e.cluster.images.machine import CA_INSIDE, authorities_file, build_pip_conf, pip_settings, write_secrets

ROOT = Path(__file__).parents[4]
LISTING = """\
:env:.cert='/etc/own-ca.pem'
:env:.find-links='/opt/wheels'
freeze.timeout='1'
global.index-url='https://packages.example/simple'
global.timeout='30'
install.timeout='60'
"""


def parsed(text: str) -> dict[str, str]:
    """Return the section that pip reads."""
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return dict(parser["global"])


def test_settings_are_read_as_pip_ranks_them():
    """A setting that pip would not follow on this machine would send the build elsewhere."""
    settings = pip_settings(LISTING)

    assert settings == {
        "cert": "/etc/own-ca.pem",
        "find-links": "/opt/wheels",
        "index-url": "https://packages.example/simple",
        "timeout": "60",
    }


def test_a_variable_outranks_every_file():
    """pip reads PIP_INDEX_URL last, and lists its settings in another order."""
    listing = ":env:.index-url='https://variable.example'\nglobal.index-url='https://file.example'\n"

    assert pip_settings(listing) == {"index-url": "https://variable.example"}


def test_the_build_is_told_how_the_index_is_reached_and_nothing_else():
    """A folder of this machine means nothing inside the build, and pip fails on a CA file that is not there."""
    conf = parsed(build_pip_conf(pip_settings(LISTING), has_authorities=True))

    assert conf == {"cert": CA_INSIDE, "index-url": "https://packages.example/simple", "timeout": "60"}


def test_a_machine_without_cas_names_none():
    """pip's own CAs hold then."""
    assert parsed(build_pip_conf({}, has_authorities=False)) == {}


def test_the_ca_of_pip_goes_before_that_of_the_machine(tmp_path):
    """Whoever told pip of a CA has a reason."""
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    own.touch()
    other.touch()

    assert authorities_file({"cert": str(own)}, {"REQUESTS_CA_BUNDLE": str(other)}) == own
    assert authorities_file({"cert": str(tmp_path / "absent")}, {"REQUESTS_CA_BUNDLE": str(other)}) == other


def test_secrets_are_files_and_the_options_that_name_them(tmp_path, monkeypatch):
    """An option with the content itself would stand in the process list, and in the image's history."""
    monkeypatch.setattr(machine, "run", lambda command: LISTING)

    options = write_secrets(tmp_path)

    assert options == [
        f"--secret=id=pip.conf,src={tmp_path}/pip.conf",
        f"--secret=id=ca.pem,src={tmp_path}/ca.pem",
    ]
    assert parsed((tmp_path / "pip.conf").read_text())["index-url"] == "https://packages.example/simple"


@pytest.mark.parametrize("secret", ["pip.conf", "ca.pem"])
def test_the_dockerfile_mounts_every_secret_where_pip_runs_with_an_index(secret):
    """A secret that no step mounts is one that a step will miss."""
    steps = (ROOT / "Dockerfile").read_text().split("\nRUN ")

    reaching = [step for step in steps if "--require-hashes" in step]

    assert len(reaching) == 2
    assert all(f"--mount=type=secret,id={secret}" in step for step in reaching)
    assert CA_INSIDE == "/run/secrets/ca.pem"
