"""What the Dockerfile reads: taken from the work tree as it is, equal for equal files on every checkout."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

RECIPE = (".dockerignore", "Dockerfile", "requirements-build.lock", "requirements-image.lock")
CODE = ("LICENSE", "README.md", "lib", "operator", "pyproject.toml", "router", "shard")
LEFT_OUT = ("__pycache__", ".*")  # what tools leave inside the folders; .dockerignore says the same
FIXED_TIME = 1_580_601_600  # 2020-02-02, the time that hatchling gives to the files of a wheel


def context_digest(root: Path, names: Sequence[str] = (*RECIPE, *CODE)) -> str:
    """Return a digest of the files and folders `names` below `root`: paths and contents, nothing else."""
    digest = hashlib.sha256()
    for path in sorted(path for name in names for path in _files(root / name)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def copy_context(root: Path, target: Path) -> Path:
    """Copy the context to the new folder `target` and return it; times and modes become those of any checkout."""
    target.mkdir()
    for name in (*RECIPE, *CODE):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copyfile(source, target / name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (FIXED_TIME, FIXED_TIME))
    return target


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    found: list[Path] = []
    for folder, folders, files in os.walk(path):
        ignored = left_out(folder, [*folders, *files])
        folders[:] = [name for name in folders if name not in ignored]
        found += [Path(folder, name) for name in files if name not in ignored]
    return found
