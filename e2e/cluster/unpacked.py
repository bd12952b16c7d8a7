"""Programs that are only taken out of their Debian packages: installed, they would start a service on this machine."""

import os
import shutil
from pathlib import Path

from e2e.cluster.debian import APT, SEARCH_PATH
from e2e.cluster.locks import lock
from e2e.cluster.steps import Command, StepFailed, run

UNPACK_SECONDS = 600.0


def unpacked_program(cache: Path, name: str) -> Path:
    """Return a program: this machine's if it has one, else that of the Debian package of the same name in the cache.

    The package is fetched if it is not there. Raises StepFailed where it cannot be.
    """
    found = shutil.which(name, path=SEARCH_PATH)
    if found:
        return Path(found)
    directory = cache / "debian" / name
    with lock(directory.with_name(f"{name}.lock"), what=f"another fetch of {name} ends", limit_seconds=UNPACK_SECONDS):
        if not directory.exists():
            _unpack(name, directory)
    return directory / "usr" / "bin" / name


def _unpack(package: str, directory: Path) -> None:
    if not shutil.which("apt-get"):
        raise StepFailed(f"missing on this machine: {package}; install it from your distribution, its service stopped")
    new = directory.with_name(f"{package}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    if os.geteuid() == 0:
        run(Command(arguments=(*APT, "update"), what="read Debian's package lists", limit_seconds=UNPACK_SECONDS))
    fetch = Command(
        arguments=(*APT, "--option", "APT::Sandbox::User=root", "download", package),  # user _apt cannot write here
        what=f"fetch Debian's {package}, to use its program without installing its service",
        usual_seconds=10,
        limit_seconds=UNPACK_SECONDS,
        directory=new,
    )
    run(fetch)
    archive = next(new.glob("*.deb"))
    run(Command(arguments=("dpkg-deb", "--extract", str(archive), str(new))))
    archive.unlink()
    new.rename(directory)
