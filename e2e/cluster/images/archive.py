"""Images as docker-archives: a tar that `docker load`, buildah and containerd read.

`<cache>/images/<name>-<digest>.tar`; the digest covers everything that the image is made of, and is its tag too. An
archive gets its name when it is complete, so that one that exists can be used. Of each image the newest few are kept.

Format: a tar with `manifest.json`, the image's configuration and one tar for each layer. Source: the section
"Combined Image JSON + Filesystem Changeset Format" of Docker's image specification v1.2.
"""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from e2e.cluster.builds import require_free_space
from e2e.cluster.locks import lock

REPOSITORY = "localhost"  # a registry that nobody can pull from by mistake
FORMAT = 1  # raised when equal ingredients give another archive
CREATED = "1970-01-01T00:00:00Z"  # equal ingredients, equal image
DIGEST_DIGITS = 16
KEPT = 3  # archives of one image: a cluster may still be loading the one before
FREE_BYTES = 4 << 30  # the largest image, with its layers in buildah's storage
LIMIT_SECONDS = 1800.0
CHUNK_BYTES = 1 << 20


class ImageArchive(msgspec.Struct, frozen=True, kw_only=True):
    """One image in the cache."""

    reference: str  # what pods call it: localhost/<name>:<digest>
    path: Path  # of its docker-archive


def image_directory(cache: Path) -> Path:
    """Return the folder of all that has to do with images."""
    return cache / "images"


def archive_of(cache: Path, reference: str) -> ImageArchive:
    """Return where the archive of an image lies if it was built here; whether it was, the file's existence tells."""
    name, _, digest = reference.removeprefix(f"{REPOSITORY}/").partition(":")
    return ImageArchive(reference=reference, path=image_directory(cache) / f"{name}-{digest}.tar")


def cached_archive(cache: Path, name: str, ingredients: str, make: Callable[[ImageArchive], None]) -> ImageArchive:
    """Return the archive of the image `name` with these ingredients, made by `make` if the cache lacks it.

    `make` writes to the path that it is given and may use the folder around it, which is removed afterwards, and before,
    should an earlier run have been killed. Others who want the same image wait for it. Raises StepFailed.
    """
    digest = hashlib.sha256(f"{FORMAT} {ingredients}".encode()).hexdigest()[:DIGEST_DIGITS]
    archive = archive_of(cache, f"{REPOSITORY}/{name}:{digest}")
    if archive.path.exists():
        return archive
    directory = archive.path.parent
    require_free_space(directory, FREE_BYTES)
    with lock(directory / f"{name}.lock", what=f"another build of {name} ends", limit_seconds=LIMIT_SECONDS):
        if not archive.path.exists():
            with _scratch(directory / f"{name}.unfinished") as scratch:
                unfinished = scratch / archive.path.name
                make(msgspec.structs.replace(archive, path=unfinished))
                unfinished.rename(archive.path)
            _remove_old(directory, name)
    return archive


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def write_archive(archive: ImageArchive, layer: Path, *, command: str, made_by: str) -> None:
    """Write an image of one layer, a tar at `layer`, that runs `command`; its history says what it was `made_by`."""
    layer_id = _sha256(layer)
    config = _json(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "created": CREATED,
            "config": {"Cmd": [command]},
            "history": [{"created": CREATED, "created_by": made_by}],  # one for each layer, or buildah refuses it
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_id}"]},
        }
    )
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [archive.reference], "Layers": [f"{layer_id}.tar"]}]
    with tarfile.open(archive.path, "w") as tar:
        add_file(tar, "manifest.json", _json(manifest))
        add_file(tar, config_name, config)
        tar.add(layer, f"{layer_id}.tar")


def _remove_old(directory: Path, name: str) -> None:
    archives = sorted(
        directory.glob(f"{name}-{'?' * DIGEST_DIGITS}.tar"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in archives[KEPT:]:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _json(value: Mapping[str, Any] | list[Any]) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file with this content to an archive, without anything of this machine."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
