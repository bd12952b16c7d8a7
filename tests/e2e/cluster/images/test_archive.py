"""Archives of images: whole or not there, named by what they are made of, and in the format that others read."""

import hashlib
import io
import json
import tarfile

import pytest

from e2e.cluster.images import archive as archives
from e2e.cluster.images.archive import KEPT, ImageArchive, archive_of, cached_archive, write_archive
from e2e.cluster.steps import StepFailed


@pytest.fixture(autouse=True)
def _little_space_is_enough(monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 0)


def write_name(archive: ImageArchive) -> None:
    """Make an archive that holds its own reference."""
    archive.path.write_text(archive.reference)


def test_an_archive_is_made_once(tmp_path):
    """A second `up` starts in seconds because nothing is built again."""
    made: list[str] = []

    def make(archive: ImageArchive) -> None:
        made.append(archive.reference)
        write_name(archive)

    first = cached_archive(tmp_path, "web", "a", make)
    second = cached_archive(tmp_path, "web", "a", make)

    assert first == second
    assert made == [first.reference]
    assert first.path.read_text() == first.reference


def test_other_ingredients_are_another_image(tmp_path):
    """A pod must never run what was built from an earlier state of the code."""
    one, other = (cached_archive(tmp_path, "web", ingredients, write_name) for ingredients in ("a", "b"))

    assert one.reference != other.reference
    assert one.path != other.path


def test_another_format_is_another_image(tmp_path, monkeypatch):
    """A change of how archives are written must reach those who have one already."""
    one = cached_archive(tmp_path, "web", "a", write_name)
    monkeypatch.setattr(archives, "FORMAT", archives.FORMAT + 1)

    assert cached_archive(tmp_path, "web", "a", write_name).reference != one.reference


def test_a_failed_build_leaves_no_archive(tmp_path):
    """Half an archive that is taken for a whole one fails much later, in a cluster, for no visible reason."""

    def fail(archive: ImageArchive) -> None:
        archive.path.write_text("half")
        raise StepFailed("no space")

    with pytest.raises(StepFailed, match="no space"):
        cached_archive(tmp_path, "web", "a", fail)
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["web.lock"]


def test_what_a_killed_build_left_is_removed_before_the_next(tmp_path):
    """A kill runs no clean-up, and a gigabyte of a root file system must not stay for ever."""
    rest = tmp_path / "images" / "web.unfinished" / "root"
    rest.mkdir(parents=True)

    def make(archive: ImageArchive) -> None:
        assert not rest.exists()
        write_name(archive)

    cached_archive(tmp_path, "web", "a", make)

    assert not rest.parent.exists()


def test_the_newest_archives_are_kept_and_other_images_left_alone(tmp_path):
    """Each is as large as the image; a day of changes would fill the disk."""
    neighbour = cached_archive(tmp_path, "web-base", "a", write_name)
    made = [cached_archive(tmp_path, "web", str(number), write_name) for number in range(KEPT + 2)]

    kept = {path for path in (tmp_path / "images").glob("web-*.tar") if path != neighbour.path}
    assert len(kept) == KEPT
    assert made[-1].path in kept
    assert neighbour.path.exists()


def test_an_archive_is_found_by_the_reference_that_pods_use(tmp_path):
    """Tests look into the very image that their pods run."""
    archive = cached_archive(tmp_path, "web", "a", write_name)

    assert archive_of(tmp_path, archive.reference) == archive


def test_a_full_disk_is_said_before_anything_is_made(tmp_path, monkeypatch):
    """debootstrap's own words for a full disk name neither the disk nor the remedy."""
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 60)

    with pytest.raises(StepFailed, match=r"MiB free, \d+ MiB are needed: make room"):
        cached_archive(tmp_path, "web", "a", write_name)


@pytest.fixture
def written(tmp_path):
    """Give the members of an archive of one layer, and the layer's bytes."""
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        member = tarfile.TarInfo("hello")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    target = ImageArchive(reference="localhost/hello:1", path=tmp_path / "hello.tar")
    write_archive(target, layer, command="/hello", made_by="a test")
    with tarfile.open(target.path) as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr] # files all
    return members, layer.read_bytes()


def test_an_archive_names_its_configuration_and_layers_by_their_digests(written):
    """containerd and docker check every digest that the manifest and the configuration state."""
    members, layer = written
    (manifest,) = json.loads(members["manifest.json"])
    config = members[manifest["Config"]]

    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    assert [members[name] for name in manifest["Layers"]] == [layer]
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert manifest["RepoTags"] == ["localhost/hello:1"]


def test_an_archive_has_one_entry_of_history_for_its_layer(written):
    """buildah refuses to build on an image whose history does not match its layers."""
    members, _ = written
    (manifest,) = json.loads(members["manifest.json"])

    history = json.loads(members[manifest["Config"]])["history"]

    assert [entry["created_by"] for entry in history] == ["a test"]


def test_equal_files_give_an_equal_archive(tmp_path):
    """The same base on every machine means that what is built on it can be compared."""
    (tmp_path / "layer.tar").write_bytes(b"layer")
    texts = set()
    for name in ("one", "other"):
        target = ImageArchive(reference="localhost/hello:1", path=tmp_path / f"{name}.tar")
        write_archive(target, tmp_path / "layer.tar", command="/hello", made_by="a test")
        texts.add(target.path.read_bytes())

    assert len(texts) == 1
