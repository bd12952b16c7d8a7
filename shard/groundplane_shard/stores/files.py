"""Files that are durable, private and never half there: the calls to the operating system that `local` is made of.

All functions block. Modes are set explicitly, so the umask does not matter: directories 0700, files 0600 (I24).
"""

import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600
CHUNK_BYTES = 1 << 20


@contextmanager
def temporary_file(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Give a new private file, to be linked or renamed to its real name; what is left under its own name is removed.

    A lock held as long as the file is in use tells `sweep` which files belong to processes that died.
    """
    path = directory / secrets.token_hex(16)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.fchmod(descriptor, PRIVATE_FILE)
            yield file, path
        finally:
            path.unlink(missing_ok=True)


def sweep(directory: Path) -> None:
    """Remove the temporary files of processes that died."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError), path.open("rb") as file:  # its process may just have finished with it
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # in use
            path.unlink(missing_ok=True)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock on `path`, against other threads and processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_directories(directory: Path, root: Path) -> None:
    """Make `directory` and what is missing between it and `root`, private and durable."""
    if directory != root and not directory.is_dir():
        make_directories(directory.parent, root)
        try:
            directory.mkdir(mode=PRIVATE_DIRECTORY)
        except FileExistsError:
            return  # another process was faster
        directory.chmod(PRIVATE_DIRECTORY)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_empty_directories(directory: Path, root: Path) -> None:
    """Remove `directory` and those above it, below `root`, as far as they are empty."""
    while directory != root:
        try:
            directory.rmdir()
        except OSError:
            return  # not empty, or removed by another process
        directory = directory.parent


def repair_modes(root: Path) -> None:
    """Give everything below and including `root` its private mode; links are left alone.

    Other processes may use the directory meanwhile: what vanishes during the walk needs no mode.
    """
    _repair_mode(root)
    for directory, subdirectories, files in os.walk(root):
        for name in (*subdirectories, *files):
            with suppress(FileNotFoundError):
                _repair_mode(Path(directory, name))


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file for reading; None if there is none. Links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def copy_hashed(source: BinaryIO, target: BinaryIO | None) -> tuple[int, str]:
    """Read `source` to its end, writing it to `target` if given; return its size in bytes and SHA-256 in hex."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        if target is not None:
            target.write(chunk)
    return size, digest.hexdigest()


def _repair_mode(path: Path) -> None:
    found = path.lstat().st_mode
    wanted = PRIVATE_DIRECTORY if stat.S_ISDIR(found) else PRIVATE_FILE
    if not stat.S_ISLNK(found) and stat.S_IMODE(found) != wanted:
        path.chmod(wanted)
