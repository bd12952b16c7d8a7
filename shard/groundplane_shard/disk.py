"""Failures of the local disk as one kind of error: nothing on it is the only copy, so the work is simply tried again."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundplane.errors import Unavailable


@contextmanager
def local_disk() -> Iterator[None]:
    """Raise Unavailable (`local_disk`) in place of what the file system raised inside."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"work directory cannot be used: {error.strerror or type(error).__name__}; free or repair it, this is tried again",
            code="local_disk",
        ) from error


def empty(directory: Path) -> None:
    """Make `directory` exist, empty and private; it stays the same directory, since it may be a mount point."""
    with local_disk():
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        for child in directory.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
