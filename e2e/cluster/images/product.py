"""The product's image, built from the Dockerfile as everybody builds it, only that buildah does it on our base image.

The context is copied first, for it may be edited meanwhile, and with fixed times and modes, so that equal files give
equal layers on every checkout. buildah's layers stay in one folder for all that changes rarely (the base, the Dockerfile,
the locked dependencies); when that changes, the folder is made anew, so that it cannot grow for ever.
"""

import os
import shutil
from pathlib import Path

from e2e.cluster.debian import require_programs
from e2e.cluster.images.archive import ImageArchive, cached_archive, files_digest, image_directory
from e2e.cluster.images.base import base_image
from e2e.cluster.images.buildah import Buildah
from e2e.cluster.images.machine import write_secrets
from e2e.cluster.steps import StepFailed

ROOT = Path(__file__).parents[3]
NAME = "groundplane"
RECIPE = (".dockerignore", "Dockerfile", "requirements-build.lock", "requirements-image.lock")
CODE = ("LICENSE", "README.md", "lib", "operator", "pyproject.toml", "router", "shard")
CONTEXT_TIME = 1_580_601_600  # 2020-02-02, the time that hatchling gives to the files of a wheel
COLD_SECONDS = 120.0
WARM_SECONDS = 15.0


def product_image(cache: Path) -> ImageArchive:
    """Return the image of the work tree as it is now, built if the cache lacks it. Raises StepFailed."""
    base = base_image(cache)
    digest = _digest(ROOT, base)

    def make(archive: ImageArchive) -> None:
        require_programs({"buildah": "buildah", "setpriv": "util-linux"})
        scratch = archive.path.parent
        context = copy_context(ROOT, scratch / "context")
        if _digest(context, base) != digest:
            raise StepFailed(f"files of {ROOT} changed while they were copied: run this again")
        storage = _storage(cache, base)
        usual_seconds = WARM_SECONDS if storage.exists() else COLD_SECONDS
        buildah = Buildah(storage=storage, scratch=scratch)
        buildah.ensure(base)
        buildah.build(
            context,
            reference=archive.reference,
            base=base.reference,
            options=write_secrets(scratch),
            usual_seconds=usual_seconds,
        )
        buildah.export(archive)

    return cached_archive(cache, NAME, digest, make)


def copy_context(root: Path, target: Path) -> Path:
    """Copy what the Dockerfile reads, without the times and modes of this checkout; returns `target`."""
    target.mkdir()
    for name in (*RECIPE, *CODE):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target / name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (CONTEXT_TIME, CONTEXT_TIME))
    return target


def _digest(root: Path, base: ImageArchive) -> str:
    return files_digest(root, [*RECIPE, *CODE], salt=base.reference)


def _storage(cache: Path, base: ImageArchive) -> Path:
    """Return buildah's folder for this base and these dependencies, and remove those for others."""
    directory = image_directory(cache)
    storage = directory / f"layers-{files_digest(ROOT, [*RECIPE], salt=base.reference)}"
    for other in directory.glob("layers-*"):
        if other != storage:
            shutil.rmtree(other)
    return storage
