"""The part of an image that a node lacks: what a registry would send of it.

A node that ran the image before the last change of code has all layers but one. The part is an archive in the layout of the
OCI image specification v1.1, whose manifest names every layer, while only the missing ones are in it.
"""

import hashlib
import json
import tarfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from e2e.cluster.images.archive import add_file
from e2e.cluster.steps import StepFailed

NAME_ANNOTATION = "io.containerd.image.name"  # the whole name; the specification's own annotation has only a tag
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def write_part(archive: Path, target: Path, *, known: Set[str]) -> bool:
    """Write to `target` what a node lacks that has the blobs `known` ("sha256:..."); False, and nothing, if that is all.

    archive: a docker-archive. False too for one of several images, or whose layers are not named by their digests, as
    buildah names them.
    """
    with tarfile.open(archive) as source:
        images = json.loads(_read(source, "manifest.json"))
        config = _read(source, images[0]["Config"])
        layers = {f"sha256:{Path(name).stem}": source.getmember(name) for name in images[0]["Layers"]}
        if len(images) > 1 or list(layers) != json.loads(config)["rootfs"]["diff_ids"] or known.isdisjoint(layers):
            return False
        manifest = _manifest(config, {digest: member.size for digest, member in layers.items()})
        with tarfile.open(target, "w") as part:
            for content in (config, manifest):
                add_file(part, _blob(_digest(content)), content)
            for digest in [digest for digest in layers if digest not in known]:
                member = tarfile.TarInfo(_blob(digest))
                member.size = layers[digest].size
                part.addfile(member, source.extractfile(layers[digest]))
            add_file(part, "index.json", _index(manifest, images[0]["RepoTags"][0]))
            add_file(part, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return True


def _manifest(config: bytes, layers: dict[str, int]) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in layers.items()],
        }
    )


def _index(manifest: bytes, reference: str) -> bytes:
    entry = {"mediaType": MANIFEST, "digest": _digest(manifest), "size": len(manifest)}
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [entry | {"annotations": {NAME_ANNOTATION: reference}}],
        }
    )


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise StepFailed(f"image archive: {name} in it is no file; make it anew")
    return file.read()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
