"""The base image where python:3-slim cannot be pulled: a minimal Debian with its Python, by debootstrap."""

from pathlib import Path

from e2e.cluster.debian import require_programs
from e2e.cluster.images.archive import ImageArchive, cached_archive, write_archive
from e2e.cluster.images.contained import contained
from e2e.cluster.steps import Command, StepFailed, run

SUITE = "bookworm"  # its Python is 3.11, as in the Dockerfile's BASE_IMAGE
PACKAGES = "python3,python3-venv,ca-certificates"
# What programs do not read, what would differ from run to run, and what tells of the machine that made it.
LEFT_OUT = (
    "./debootstrap",
    "./dev/*",
    "./etc/apt/sources.list",
    "./etc/hostname",
    "./etc/resolv.conf",
    "./usr/share/doc/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/log/*",
)
PROGRAMS = {"debootstrap": "debootstrap", "setpriv": "util-linux"}
NAME = "groundplane-base"


def base_image(cache: Path) -> ImageArchive:
    """Return the base image, made if the cache lacks it: two minutes, with Debian's packages. Raises StepFailed."""

    def make(archive: ImageArchive) -> None:
        require_programs(PROGRAMS)
        root, layer = archive.path.with_name("root"), archive.path.with_name("layer.tar")
        run(_debootstrap(root))
        run(_pack(root, layer))
        write_archive(archive, layer, command="/bin/sh", made_by=f"debootstrap {SUITE}")

    return cached_archive(cache, NAME, " ".join((SUITE, PACKAGES, *LEFT_OUT)), make)


def _debootstrap(root: Path) -> Command:
    options = ("--variant=minbase", f"--include={PACKAGES}")
    return Command(
        arguments=contained("debootstrap", *options, SUITE, str(root), *_mirror()),
        what=f"make the base image, Debian {SUITE} with Python",
        usual_seconds=100,
        limit_seconds=1200,
    )


def _mirror() -> list[str]:
    """Return the mirror that apt reads this suite from, [] if it reads another: debootstrap knows a default."""
    question = ("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages")
    try:
        answer = run(Command(arguments=question))
    except StepFailed:
        return []
    return [uri for codename, uri in map(str.split, answer.splitlines()) if codename == SUITE][:1]


def _pack(root: Path, layer: Path) -> Command:
    excluded = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    options = ("--numeric-owner", "--anchored", "--sort=name", "--xattrs")
    return Command(
        arguments=("tar", "--create", f"--file={layer}", f"--directory={root}", *options, *excluded, "."),
        what="pack the base image",
        limit_seconds=300,
    )
