"""How buildah is called: apart from the machine's own containers, and with nothing left behind."""

from pathlib import Path

import pytest

from e2e.cluster.images import buildah as module
from e2e.cluster.images.archive import ImageArchive
from e2e.cluster.images.buildah import Buildah, storage_driver
from e2e.cluster.steps import Command

BASE = ImageArchive(reference="localhost/base:1", path=Path("/cache/base.tar"))


@pytest.fixture
def commands(monkeypatch):
    """Run nothing, and give what would have been run."""
    ran: list[Command] = []
    monkeypatch.setattr(module, "run", ran.append)
    return ran


@pytest.fixture
def buildah(tmp_path):
    """Give a buildah whose commands are not run."""
    return Buildah(storage=tmp_path / "layers", driver="overlay", scratch=tmp_path / "scratch")


def test_every_command_is_contained_and_uses_our_folders(buildah, commands, tmp_path):
    """A user's own images and mounts are never touched, and a killed build leaves nothing elsewhere."""
    buildah.build(Path("/context"), base=BASE, reference="localhost/web:1", options=[], usual_seconds=1)
    buildah.export(ImageArchive(reference="localhost/web:1", path=Path("/cache/web.tar")))

    for command in commands:
        before, _, after = " ".join(command.arguments).partition(" buildah ")
        assert "--pdeathsig" in before
        assert "--mount" in before
        store = f"--root={tmp_path}/layers --runroot={tmp_path}/scratch/run --storage-driver=overlay "
        assert after.startswith(store)
        assert command.environment["TMPDIR"] == f"{tmp_path}/scratch/tmp"


@pytest.mark.parametrize(("is_there", "pulls"), [(True, 0), (False, 1)], ids=["known", "unknown"])
def test_the_base_is_read_once(buildah, commands, monkeypatch, is_there, pulls):
    """Reading it takes seconds of each build otherwise."""
    monkeypatch.setattr(module, "succeeds", lambda command: is_there)

    buildah.ensure(BASE)

    assert ["pull" in command.arguments for command in commands] == [True] * pulls


@pytest.mark.parametrize(
    ("kind", "driver"), [("ext4", "overlay"), ("xfs", "overlay"), ("overlay", "vfs")], ids=["ext4", "xfs", "overlay"]
)
def test_layers_are_copied_where_no_overlay_can_lie(kind, driver):
    """In a container, as CI systems use them, the file system is an overlay already."""
    assert storage_driver(f"disk / {kind} rw 0 0\n", Path("/cache/layers")) == driver
