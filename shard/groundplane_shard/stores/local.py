"""The object store in a local directory: one file per object, durable when a write returns.

    <root>/<key>        an object, 0600 in 0700 directories
    <root>/.lock        held while an object is replaced, so that of two processes only one wins
    <root>/.temporary/  objects being written; a crash leaves at most one of these, removed at the next opening

An object is written to a temporary file, fsynced, and only then gets its name, by link(2), which fails if the name is
taken, or by rename(2) under the lock; then the directory is fsynced. So a key never holds half an object. The etag is
the SHA-256. Work that blocks runs in this store's own threads.

Errors: what the system reports becomes `Unavailable` with code `disk_full`, `read_only` or `store_io`. After a failed
fsync or an EIO nobody knows what is on the disk: further writes are refused until the process starts again (I13).
"""

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores import files
from groundplane_shard.stores.protocol import checked_key

PAGE_KEYS = 1000
_CALL_THREADS = 4
_FILE_THREADS = 2  # apart, so that a restore or snapshot never keeps the log waiting
_MAKE_DIRECTORY_TRIES = 3  # a directory may be removed, when it becomes empty, between its making and its use
_CODES = {errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full", errno.EROFS: "read_only"}

Value = TypeVar("Value")


class LocalStore:
    """An `ObjectStore` in a directory. Several processes may use one directory. `close` it at the end."""

    def __init__(self, root: Path) -> None:
        """Make the directory, repair modes, remove what dead processes left. Blocks. Raises Unavailable."""
        self._root = root.absolute()
        self._temporary = self._root / ".temporary"
        self._lock = self._root / ".lock"
        self._fault: str | None = None
        with _translated(f"opening the store in {root}"):
            self._root.mkdir(mode=files.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            files.make_directories(self._temporary, self._root)
            files.sweep(self._temporary)
            files.repair_modes(self._root)
        self._calls = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="store")
        self._files = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="store-file")

    def close(self) -> None:
        """Wait for the calls under way and end the threads."""
        self._calls.shutdown()
        self._files.shutdown()

    async def get(self, key: str) -> Found | Absent:
        """Return the object's bytes and etag."""
        return await self._in_thread(lambda: self._get(self._path(key)))

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed:
        """Store the object only if the key does not exist."""
        return await self._in_thread(lambda: self._create(self._path(key), data))

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed:
        """Store the object only over the version with this etag."""
        return await self._in_thread(lambda: self._replace(self._path(key), data, etag))

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed:
        """Store a copy of a local file as `create` does."""
        return await self._in_file_thread(lambda: self._upload(self._path(key), file))

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        """Copy the object to the new file `target`, making directories; not fsynced, the local disk is a cache."""
        return await self._in_file_thread(lambda: self._download(key, target, size, sha256))

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        """Say whether the stored bytes are these."""
        return await self._in_file_thread(lambda: self._copy_verified(key, None, size, sha256))

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        """Return one page of keys in code point order."""
        return await self._in_thread(lambda: self._list_page(prefix, start_after))

    async def delete(self, key: str) -> None:
        """Remove the object, and directories that become empty. Not fsynced: to come back after a crash does no harm."""
        await self._in_thread(lambda: self._delete(self._path(key)))

    # -- what runs in the threads

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._calls, work)

    async def _in_file_thread(self, work: Callable[[], Value]) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _get(self, path: Path) -> Found | Absent:
        with _translated(f"reading {path.name}"):
            file = files.open_regular(path)
            if file is None:
                return Absent()
            with file:
                data = file.read()
        return Found(data, hashlib.sha256(data).hexdigest())

    def _create(self, path: Path, data: bytes) -> Stored | PreconditionFailed:
        with self._writing(path) as (file, temporary):
            file.write(data)
            self._sync(file)
            return self._link(temporary, path, hashlib.sha256(data).hexdigest())

    def _upload(self, path: Path, local: LocalFile) -> Stored | PreconditionFailed:
        with self._writing(path) as (file, temporary), Path(local.source).open("rb") as source:
            size, sha256 = files.copy_hashed(source, file)
            if (size, sha256) != (local.size, local.sha256):
                raise Unavailable(
                    f"local file {local.path} has {size} bytes, sha256 {sha256}: expected {local.size}, {local.sha256}; make the snapshot again",
                    code="local_file_changed",
                )
            self._sync(file)
            return self._link(temporary, path, sha256)

    def _replace(self, path: Path, data: bytes, etag: str) -> Stored | PreconditionFailed:
        with self._writing(path) as (file, temporary), files.exclusive_lock(self._lock):
            current = self._get(path)
            if not isinstance(current, Found) or current.etag != etag:
                return PreconditionFailed()
            file.write(data)
            self._sync(file)
            temporary.replace(path)
            self._sync_name(path)
        return Stored(hashlib.sha256(data).hexdigest())

    def _link(self, temporary: Path, path: Path, etag: str) -> Stored | PreconditionFailed:
        for _ in range(_MAKE_DIRECTORY_TRIES):
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                return PreconditionFailed()
            except FileNotFoundError:
                files.make_directories(path.parent, self._root)
            else:
                self._sync_name(path)
                return Stored(etag)
        raise Unavailable(f"the directory of {path.name} is removed again and again: expected it to stay; try again")

    def _download(self, key: str, target: Path, size: int, sha256: str) -> Verified | Damaged:
        with _translated(f"copying {key}"):
            target.parent.mkdir(mode=files.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with target.open("xb") as file:
                os.fchmod(file.fileno(), files.PRIVATE_FILE)
                answer = self._copy_verified(key, file, size, sha256)
            if isinstance(answer, Damaged):
                target.unlink()
        return answer

    def _copy_verified(self, key: str, target: BinaryIO | None, size: int, sha256: str) -> Verified | Damaged:
        with _translated(f"reading {key}"):
            file = files.open_regular(self._path(key))
            if file is None:
                return Damaged(f"object {key} is missing: expected {size} bytes")
            with file:
                found = files.copy_hashed(file, target)
        if found != (size, sha256):
            return Damaged(f"object {key} has {found[0]} bytes, sha256 {found[1]}: expected {size}, {sha256}")
        return Verified()

    def _list_page(self, prefix: str, start_after: str) -> Listed:
        base = prefix.rpartition("/")[0]
        with _translated(f"listing {base}"):
            keys = sorted(key for key in self._keys_below(base) if key.startswith(prefix) and key > start_after)
        return Listed(tuple(keys[:PAGE_KEYS]), more=len(keys) > PAGE_KEYS)

    def _keys_below(self, base: str) -> Iterator[str]:
        for directory, subdirectories, names in os.walk(self._path(base) if base else self._root):
            relative = Path(directory).relative_to(self._root)
            if not relative.parts:  # the lock and the temporary files are no objects
                subdirectories[:] = [name for name in subdirectories if not name.startswith(".")]
                names = [name for name in names if not name.startswith(".")]
            yield from ((relative / name).as_posix() for name in names)

    def _delete(self, path: Path) -> None:
        with _translated(f"deleting {path.name}"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return
            files.remove_empty_directories(path.parent, self._root)

    # -- faults

    @contextmanager
    def _writing(self, path: Path) -> Iterator[tuple[BinaryIO, Path]]:
        if self._fault is not None:
            raise Unavailable(
                f"the store refuses writes after a fault: {self._fault}; restart the process", code="store_io"
            )
        try:
            with _translated(f"writing {path.name}"), files.temporary_file(self._temporary) as opened:
                yield opened
        except Unavailable as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                self._fault = error.message
            raise

    def _sync(self, file: BinaryIO) -> None:
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError as error:
            self._fault = f"fsync failed: {error.strerror}"
            raise

    def _sync_name(self, path: Path) -> None:
        """Make the object's name durable; if that fails it may or may not be there after a crash."""
        try:
            files.sync_directory(path.parent)
        except OSError as error:
            self._fault = f"fsync of a directory failed: {error.strerror}"
            raise OutcomeUnknown(
                f"{path.name} may not be durable: {self._fault}; repeat the write after a restart"
            ) from error


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        code = _CODES.get(error.errno or 0, "store_io")
        raise Unavailable(f"{what} failed: {error.strerror}; free or repair the volume", code=code) from error
