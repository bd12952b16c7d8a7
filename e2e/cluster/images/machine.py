"""What a build needs of this machine to reach its package index: handed over as secrets, so that no image names it.

pip inside the build knows nothing of the machine's pip: neither the index, nor a proxy, nor a CA of one's own. A secret is a
file that exists while one step runs; it is in no layer, no label and no history.
"""

import ast
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.steps import Command, run

# Settings that say how an index is reached; others, such as folders of this machine, mean nothing inside a build.
REACHING = ("extra-index-url", "index-url", "proxy", "timeout", "trusted-host")
RANKS = {"global": 0, "install": 1, ":env:": 2}  # sections of a listing; the last that has a setting wins, as in pip
CA_INSIDE = "/run/secrets/ca.pem"  # where a step of the Dockerfile finds it


def write_secrets(directory: Path) -> list[str]:
    """Write the secrets into `directory` and return the options of `buildah bud` that hand them over."""
    settings = pip_settings(run(Command(arguments=(sys.executable, "-m", "pip", "config", "list"))))
    authorities = authorities_file(settings, os.environ)
    (directory / "pip.conf").write_text(build_pip_conf(settings, has_authorities=authorities is not None))
    (directory / "ca.pem").write_bytes(authorities.read_bytes() if authorities else b"")
    return [f"--secret=id={name},src={directory / name}" for name in ("pip.conf", "ca.pem")]


def pip_settings(listing: str) -> dict[str, str]:
    """Return pip's settings for an installation from what `pip config list` prints.

    A line is `global.index-url='...'`, or `:env:.index-url='...'` for a variable; the value is a Python literal.
    """
    names_and_values = [line.partition("=")[::2] for line in listing.splitlines()]
    found = [(*name.rpartition(".")[::2], value) for name, value in names_and_values]
    known = [entry for entry in found if entry[0] in RANKS]
    return {name: ast.literal_eval(value) for _, name, value in sorted(known, key=lambda entry: RANKS[entry[0]])}


def authorities_file(settings: Mapping[str, str], environment: Mapping[str, str]) -> Path | None:
    """Return the file with the CAs that this machine's pip trusts, or that the machine does; None if there is none."""
    named = (settings.get("cert"), environment.get("REQUESTS_CA_BUNDLE"), ssl.get_default_verify_paths().cafile)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def build_pip_conf(settings: Mapping[str, str], *, has_authorities: bool) -> str:
    """Return the pip.conf of the build: how the index is reached, with the CAs where the build has them."""
    certificates = [f"cert = {CA_INSIDE}"] if has_authorities else []
    reaching = [f"{key} = {settings[key]}" for key in REACHING if key in settings]
    return "\n".join(("[global]", *certificates, *reaching)) + "\n"
