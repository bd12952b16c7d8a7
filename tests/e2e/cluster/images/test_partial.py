"""The part of an image that a node lacks."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster.images.archive import ImageArchive, add_file, write_archive
from e2e.cluster.images.partial import NAME_ANNOTATION, write_part

LAYERS = (b"the base", b"the dependencies", b"the code")


def digest_of(content: bytes) -> str:
    """Return how the OCI specification names these bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


BASE, DEPENDENCIES, CODE = map(digest_of, LAYERS)


def write_image(path: Path, *, images: int = 1) -> None:
    """Write a docker-archive of three layers, as buildah does."""
    config = json.dumps({"rootfs": {"type": "layers", "diff_ids": [BASE, DEPENDENCIES, CODE]}}).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    names = [f"{digest.removeprefix('sha256:')}.tar" for digest in (BASE, DEPENDENCIES, CODE)]
    manifest = [{"Config": config_name, "RepoTags": ["localhost/web:1"], "Layers": names}] * images
    with tarfile.open(path, "w") as tar:
        for name, content in zip(names, LAYERS, strict=True):
            add_file(tar, name, content)
        add_file(tar, config_name, config)
        add_file(tar, "manifest.json", json.dumps(manifest).encode())


@pytest.fixture
def archive(tmp_path):
    """Give the archive of an image."""
    path = tmp_path / "web.tar"
    write_image(path)
    return path


@pytest.fixture
def part(archive, tmp_path):
    """Give the files of the part that a node with the lower two layers lacks."""
    target = tmp_path / "part.tar"
    assert write_part(archive, target, known={BASE, DEPENDENCIES, "sha256:of-another-image"})
    with tarfile.open(target) as tar:
        return {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr] # files all


def blob(part: dict[str, bytes], digest: str) -> bytes:
    """Return a blob of the part, found as containerd finds it."""
    return part[f"blobs/{digest.replace(':', '/')}"]


def test_only_missing_layers_are_sent(part):
    """After a change of code that is 4 MB of 900."""
    contents = list(part.values())

    assert LAYERS[2] in contents
    assert LAYERS[0] not in contents
    assert LAYERS[1] not in contents


def test_the_manifest_names_every_layer_in_order(part):
    """The image is whole on the node, and it runs with the layers that its configuration states."""
    (entry,) = json.loads(part["index.json"])["manifests"]
    manifest = json.loads(blob(part, entry["digest"]))
    config = json.loads(blob(part, manifest["config"]["digest"]))

    assert [layer["digest"] for layer in manifest["layers"]] == config["rootfs"]["diff_ids"]
    assert [layer["size"] for layer in manifest["layers"]] == [len(layer) for layer in LAYERS]


def test_every_blob_has_the_digest_that_names_it(part):
    """containerd refuses any other."""
    blobs = {name: content for name, content in part.items() if name.startswith("blobs/")}

    assert {name: f"blobs/{digest_of(content).replace(':', '/')}" for name, content in blobs.items()} == {
        name: name for name in blobs
    }
    assert len(blobs) == 3


def test_the_image_keeps_its_name(part):
    """Pods ask for it by this name, and nothing else can provide it."""
    (entry,) = json.loads(part["index.json"])["manifests"]

    assert entry["annotations"] == {NAME_ANNOTATION: "localhost/web:1"}


def test_a_node_without_any_layer_gets_the_archive_itself(archive, tmp_path):
    """A copy of a gigabyte would only take time."""
    assert not write_part(archive, tmp_path / "part.tar", known={"sha256:of-another-image"})
    assert not (tmp_path / "part.tar").exists()


def test_an_archive_of_several_images_is_left_as_it_is(tmp_path):
    """`docker save` writes such archives; containerd reads them."""
    write_image(tmp_path / "several.tar", images=2)

    assert not write_part(tmp_path / "several.tar", tmp_path / "part.tar", known={BASE})


def test_an_archive_whose_layers_have_other_names_is_left_as_it_is(tmp_path):
    """Other tools name them otherwise; then their digests cannot be known without reading them."""
    path = tmp_path / "other.tar"
    config = json.dumps({"rootfs": {"diff_ids": [BASE]}}).encode()
    with tarfile.open(path, "w") as tar:
        add_file(tar, "1/layer.tar", LAYERS[0])
        add_file(tar, "config.json", config)
        manifest = [{"Config": "config.json", "RepoTags": ["web:1"], "Layers": ["1/layer.tar"]}]
        add_file(tar, "manifest.json", json.dumps(manifest).encode())

    assert not write_part(path, tmp_path / "part.tar", known={BASE})


def test_our_own_archives_can_be_sent_in_part(tmp_path):
    """The base and the pause image are named by digests too."""
    (tmp_path / "layer.tar").write_bytes(LAYERS[0])
    image = ImageArchive(reference="localhost/pause:1", path=tmp_path / "pause.tar")
    write_archive(image, tmp_path / "layer.tar", command="/pause", made_by="a test")

    assert write_part(image.path, tmp_path / "part.tar", known={BASE})
