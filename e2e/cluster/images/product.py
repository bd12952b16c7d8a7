"""The product's image, built from the Dockerfile as everybody builds it, only that buildah does it on our base image.

The context is copied first, for it may be edited meanwhile. buildah's layers stay in one folder for all that changes rarely
(the base, the Dockerfile, the locked dependencies); when that changes, the folder is made anew, so that it cannot grow
for ever.
"""

import hashlib
import os
import shutil
from pathlib import Path

from e2e.cluster.debian import require_programs
from e2e.cluster.images.archive import ImageArchive, cached_archive, image_directory
from e2e.cluster.images.base import base_image
from e2e.cluster.images.buildah import BUILD_LIMIT_SECONDS, COPY_LIMIT_SECONDS, Buildah, storage_driver
from e2e.cluster.images.context import RECIPE, context_digest, copy_context
from e2e.cluster.images.machine import write_secrets
from e2e.cluster.steps import Command, StepFailed, run

ROOT = Path(__file__).parents[3]
NAME = "groundplane"
COLD_SECONDS = 120.0
WARM_SECONDS = 15.0


def product_image(cache: Path) -> ImageArchive:
    """Return the image of the work tree as it is now, built if the cache lacks it. Raises StepFailed."""
    base = base_image(cache)
    digest = context_digest(ROOT)

    def make(archive: ImageArchive) -> None:
        require_programs({"buildah": "buildah", "setpriv": "util-linux"})
        scratch = archive.path.parent
        context = _copied(scratch / "context", digest)
        storage = _storage(cache, base)
        usual_seconds = WARM_SECONDS if storage.exists() else COLD_SECONDS
        driver = storage_driver(Path("/proc/mounts").read_text(), storage)
        buildah = Buildah(storage=storage, driver=driver, scratch=scratch)
        buildah.ensure(base)
        secrets = write_secrets(scratch)
        buildah.build(context, base=base, reference=archive.reference, options=secrets, usual_seconds=usual_seconds)
        buildah.export(archive)

    return cached_archive(cache, NAME, f"{base.reference} {digest}", make)


def product_image_by_docker(cache: Path) -> ImageArchive:
    """Return the same image on the Dockerfile's own base, built by docker, which needs no root. Raises StepFailed."""
    digest = context_digest(ROOT)

    def make(archive: ImageArchive) -> None:
        scratch = archive.path.parent
        context = _copied(scratch / "context", digest)
        build = ("docker", "build", f"--tag={archive.reference}", *write_secrets(scratch), str(context))
        save = ("docker", "save", f"--output={archive.path}", archive.reference)
        what = f"build {archive.reference} with docker"
        run(
            Command(
                arguments=build,
                what=what,
                usual_seconds=COLD_SECONDS,
                limit_seconds=BUILD_LIMIT_SECONDS,
                environment={**os.environ, "DOCKER_BUILDKIT": "1"},  # older dockers know no secrets without it
            )
        )
        run(Command(arguments=save, what=f"write {archive.path.name}", limit_seconds=COPY_LIMIT_SECONDS))

    return cached_archive(cache, NAME, f"docker {digest}", make)


def _copied(target: Path, digest: str) -> Path:
    context = copy_context(ROOT, target)
    if context_digest(context) != digest:
        raise StepFailed(f"files of {ROOT} changed while they were copied: run this again")
    return context


def _storage(cache: Path, base: ImageArchive) -> Path:
    """Return buildah's folder for this base and these dependencies, and remove those for others."""
    directory = image_directory(cache)
    digest = hashlib.sha256(f"{base.reference} {context_digest(ROOT, RECIPE)}".encode()).hexdigest()
    storage = directory / f"layers-{digest[:16]}"
    for other in directory.glob("layers-*"):
        if other != storage:
            shutil.rmtree(other)
    return storage
