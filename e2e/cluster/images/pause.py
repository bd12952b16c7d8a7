"""The pause image: one static program that holds a pod's namespaces."""

import tarfile
from pathlib import Path

from e2e.cluster.builds import PROGRAMS, binary, build
from e2e.cluster.images.archive import ImageArchive, cached_archive, write_archive


def pause_image(cache: Path) -> ImageArchive:
    """Return the image for pods' sandboxes, built if the cache lacks it: seconds. Raises StepFailed."""

    def make(archive: ImageArchive) -> None:
        build(cache, ["pause"])
        layer = archive.path.with_name("layer.tar")
        with tarfile.open(layer, "w") as tar:
            tar.add(binary(cache, "pause"), "pause", filter=_owned_by_root)
        write_archive(archive, layer, command="/pause", made_by="go build")

    return cached_archive(cache, "pause", PROGRAMS["pause"].digest, make)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755
    return member
