"""The context of the image: what the Dockerfile reads, equal for equal files."""

import os
import re
import tomllib
from pathlib import Path

import pytest

from e2e.cluster.images.context import CODE, LEFT_OUT, RECIPE, context_digest, copy_context

ROOT = Path(__file__).parents[4]


@pytest.fixture
def tree(tmp_path):
    """Give a small work tree."""
    root = tmp_path / "tree"
    for name in (*RECIPE, *CODE):
        path = root / name
        if (ROOT / name).is_dir():
            path.mkdir(parents=True)
            path = path / "module.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def described(root: Path) -> list[tuple[str, int, float]]:
    """Return every path with its mode and time."""
    paths = sorted(root.rglob("*"))
    return [(str(path.relative_to(root)), path.stat().st_mode, path.stat().st_mtime) for path in paths]


def test_times_and_modes_of_a_checkout_do_not_matter(tree, tmp_path):
    """A fresh clone, or another umask, must not build the dependencies again."""
    first = described(copy_context(tree, tmp_path / "first"))
    os.utime(tree / "lib" / "module.py", (1, 1))
    (tree / "lib" / "module.py").chmod(0o600)

    second = described(copy_context(tree, tmp_path / "second"))

    assert first == second


def test_a_copy_has_the_digest_of_its_original(tree, tmp_path):
    """That is how a change between digest and copy is noticed."""
    assert context_digest(copy_context(tree, tmp_path / "copy")) == context_digest(tree)


@pytest.mark.parametrize("name", [*RECIPE, *CODE])
def test_everything_that_the_build_reads_changes_the_digest(tree, name):
    """An image that is found in the cache is the image of these files."""
    before = context_digest(tree)
    path = tree / name
    path = path / "module.py" if path.is_dir() else path
    path.write_text("changed")

    assert context_digest(tree) != before


def test_a_new_name_changes_the_digest(tree):
    """A module that is moved is another program, although no byte of it changed."""
    before = context_digest(tree)
    (tree / "lib" / "module.py").rename(tree / "lib" / "other.py")

    assert context_digest(tree) != before


def test_what_tools_leave_in_the_folders_is_not_in_the_image(tree, tmp_path):
    """Caches differ from machine to machine, may be large, and hold paths of the machine."""
    before = context_digest(tree)
    for name in ("lib/__pycache__/module.pyc", "shard/.mypy_cache/3.11/cache.db", "router/.env"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("left")

    copied = {path.name for path in copy_context(tree, tmp_path / "copy").rglob("*")}

    assert context_digest(tree) == before
    assert copied.isdisjoint({"module.pyc", "cache.db", ".env"})


def test_dockerignore_lets_in_exactly_what_is_copied_here():
    """docker and buildah must build the same image, and nothing private may get into docker's context."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    assert lines[0] == "*"
    assert sorted(line.removeprefix("!") for line in lines if line.startswith("!")) == sorted(
        {*RECIPE, *CODE} - {"Dockerfile", ".dockerignore"}
    )
    assert [line for line in lines[1:] if not line.startswith("!")] == [f"**/{pattern}" for pattern in LEFT_OUT]


def test_dependencies_are_installed_before_the_code_is_there():
    """A change of code must not install the dependencies again."""
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert copies == ["requirements-image.lock", "requirements-build.lock", "."]


def test_the_dockerfile_has_the_version_of_the_project():
    """The label would otherwise name an older version than the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"\nARG VERSION={project['version']}\n" in (ROOT / "Dockerfile").read_text()
