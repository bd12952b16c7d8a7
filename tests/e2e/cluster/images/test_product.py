"""The product's image: built from a copy of the work tree, by buildah or docker, once for each state of it."""

from pathlib import Path

import pytest

from e2e.cluster.images import product
from e2e.cluster.images.archive import ImageArchive
from e2e.cluster.images.context import CODE, RECIPE, copy_context
from e2e.cluster.images.product import product_image, product_image_by_docker
from e2e.cluster.steps import Command, StepFailed

SECRET = "--secret=id=pip.conf,src=pip.conf"
BASE = ImageArchive(reference="localhost/groundplane-base:1", path=Path("/cache/base.tar"))


class Builders:
    """buildah and docker that build nothing, and what they were asked."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []

    def run(self, command: Command) -> str:
        """Note the command, and write the archive that it should write."""
        self.commands.append(command.arguments)
        for argument in command.arguments:
            if argument.startswith(("docker-archive:", "--output=")):
                Path(argument.removeprefix("--output=").removeprefix("docker-archive:").split(":")[0]).touch()
        return ""

    def asked(self, word: str) -> list[tuple[str, ...]]:
        """Return the commands with this argument."""
        return [command for command in self.commands if word in command]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Give a work tree to build."""
    root = tmp_path / "tree"
    for name in (*RECIPE, *CODE):
        path = root / name / "module.py" if "." not in name and name.islower() else root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(product, "ROOT", root)
    return root


@pytest.fixture
def builders(root, monkeypatch):
    """Give what stands for buildah and docker."""
    builders = Builders()
    for module in ("product", "buildah"):
        monkeypatch.setattr(f"e2e.cluster.images.{module}.run", builders.run)
    monkeypatch.setattr("e2e.cluster.images.buildah.succeeds", lambda command: True)
    monkeypatch.setattr("e2e.cluster.images.archive.FREE_BYTES", 0)
    monkeypatch.setattr(product, "base_image", lambda cache: BASE)
    monkeypatch.setattr(product, "require_programs", lambda packages: None)
    monkeypatch.setattr(product, "write_secrets", lambda directory: [SECRET])
    return builders


@pytest.mark.parametrize(
    ("build", "word"), [(product_image, "bud"), (product_image_by_docker, "docker")], ids=["buildah", "docker"]
)
def test_an_image_is_built_once_for_each_state_of_the_work_tree(build, word, builders, root, tmp_path):
    """Unchanged code starts at once, and changed code is never tested as it was before."""
    first, again = build(tmp_path), build(tmp_path)
    (root / "lib" / "module.py").write_text("changed")
    changed = build(tmp_path)

    assert first == again
    assert changed.reference != first.reference
    assert [word in command for command in builders.asked(SECRET)] == [True, True]


def test_buildah_and_docker_never_pass_for_each_other(builders, tmp_path):
    """Their bases differ, so an image of the one must not be found as that of the other."""
    assert product_image(tmp_path).reference != product_image_by_docker(tmp_path).reference


def test_a_work_tree_that_changes_under_the_build_is_not_built(builders, root, tmp_path, monkeypatch):
    """An image must never bear the name of other code than is in it."""

    def copy_and_change(source: Path, target: Path) -> Path:
        copied = copy_context(source, target)
        (copied / "lib" / "module.py").write_text("changed")
        return copied

    monkeypatch.setattr(product, "copy_context", copy_and_change)

    with pytest.raises(StepFailed, match="changed while they were copied: run this again"):
        product_image(tmp_path)
    assert builders.commands == []


def test_layers_of_other_dependencies_are_removed(builders, root, tmp_path):
    """Each folder holds two gigabytes; those of a lock file that is gone are of no use."""
    product_image(tmp_path)
    (kept,) = {part for command in builders.asked("bud") for part in command if part.startswith("--root=")}
    old = Path(kept.removeprefix("--root="))
    old.mkdir(parents=True)
    (root / "requirements-image.lock").write_text("changed")

    product_image(tmp_path)

    assert not old.exists()
