"""The object store behind an S3 endpoint: the seven verbs as signed requests, in this store's own threads.

Conditional writes of small objects, which is what a write of a document waits for, need no thread (see `direct`).

Writes carry their SHA-256 as metadata, so that a read can be checked. One PUT writes an object of up to 5 GiB, which no
file of a snapshot reaches; multi-part uploads are not used, since their conditions differ between stores.

Two things happen twice. A request that was refused for its credentials, and so did nothing, is sent again if there are
other credentials by now. An object whose bytes are not the expected ones is read again, since what went wrong may have
been the transfer; only then it is called damaged.
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

from groundplane.errors import CorruptData, GroundplaneError, InvalidInput, OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores.files import PRIVATE_DIRECTORY, PRIVATE_FILE
from groundplane_shard.stores.protocol import checked_key
from groundplane_shard.stores.s3 import answers
from groundplane_shard.stores.s3.bodies import Body, BytesBody, FileBody
from groundplane_shard.stores.s3.credentials import CredentialSource
from groundplane_shard.stores.s3.direct import MAX_BODY_BYTES as MAX_DIRECT_BYTES
from groundplane_shard.stores.s3.direct import DirectConnections
from groundplane_shard.stores.s3.requests import Answer, Endpoint, Request, Sink
from groundplane_shard.stores.s3.settings import S3Settings, StoreLocation

PAGE_KEYS = 1000
MAX_OBJECT_BYTES = 5 * 1024**3  # of one PUT
MAX_KEY_BYTES = 1024
_CALL_THREADS = 16
_FILE_THREADS = 8  # apart, so that a restore or snapshot never keeps the log waiting
# A snapshot's large files go one at a time: eight at once were no sooner stored, and kept log records waiting for up to 4 s
# where one at a time kept them waiting for 0.7 s (SeaweedFS, everything on one busy disk).
LARGE_FILE_BYTES = 1024 * 1024
_READS = 2

Value = TypeVar("Value")


class S3Store:
    """An `ObjectStore` in a bucket. `close` it at the end."""

    def __init__(self, location: StoreLocation, settings: S3Settings, credentials: CredentialSource) -> None:
        """Make no call yet. Raises InvalidInput if the CA file cannot be used."""
        self._location = location
        self._settings = settings
        self._credentials = credentials
        self._endpoint = Endpoint(location, ca_file=settings.ca_file, connections=_CALL_THREADS + _FILE_THREADS)
        self._direct = DirectConnections(self._endpoint, ca_file=settings.ca_file)
        self._calls = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="store")
        self._files = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="store-file")
        self._large_files = ThreadPoolExecutor(1, thread_name_prefix="store-large-file")

    def close(self) -> None:
        """Wait for the calls under way, end the threads and close the connections."""
        self._calls.shutdown()
        self._files.shutdown()
        self._large_files.shutdown()
        self._direct.close()
        self._endpoint.close()

    async def get(self, key: str) -> Found | Absent:
        """Return the object's bytes and etag."""
        return await _in_thread(self._calls, lambda: self._get(checked_key(key)))

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed | Conflict:
        """Store the object only if the key does not exist."""
        return await self._put_bytes(key, data, ("if-none-match", "*"))

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed | Conflict:
        """Store the object only over the version with this etag."""
        return await self._put_bytes(key, data, ("if-match", f'"{etag}"'))

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed | Conflict:
        """Store a local file as `create` does; its bytes are checked on the way, before the last of them is sent."""
        threads = self._threads_of(file.size)
        return await _in_thread(threads, lambda: self._put(key, FileBody(file), ("if-none-match", "*")))

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        """Write the object to the new file `target`, making directories; not fsynced, the local disk is a cache."""
        return await _in_thread(self._files, lambda: self._download(checked_key(key), target, size, sha256))

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        """Say whether the stored bytes are these: they are all read."""
        threads = self._threads_of(size)
        return await _in_thread(threads, lambda: self._copy_verified(checked_key(key), None, size, sha256))

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        """Return one page of keys in code point order."""
        return await _in_thread(self._calls, lambda: self._list_page(prefix, start_after))

    async def delete(self, key: str) -> None:
        """Remove the object; in a bucket with versions the store keeps the old one."""
        request = self._request("DELETE", checked_key(key))
        await _in_thread(self._calls, lambda: answers.check_deleted(self._send(request), f"delete of {key}"))

    async def _put_bytes(
        self, key: str, data: bytes, condition: tuple[str, str]
    ) -> Stored | PreconditionFailed | Conflict:
        """Write under a condition: small objects in the event loop, others in a thread, and there with other credentials."""
        keys = self._credentials.at_hand() if len(data) <= MAX_DIRECT_BYTES else None
        if keys is not None:
            answer = await self._direct.send(self._conditional(key, BytesBody(data), condition), keys)
            is_final = not answers.is_denied(answer) or not await _in_thread(
                self._calls, lambda: self._credentials.reload(keys)
            )
            if is_final:
                return answers.parse_written(answer, f"object {key}")
        return await _in_thread(self._calls, lambda: self._put(key, BytesBody(data), condition))

    def _threads_of(self, size_bytes: int) -> ThreadPoolExecutor:
        """Return the threads for a file of a snapshot that is being published."""
        return self._large_files if size_bytes > LARGE_FILE_BYTES else self._files

    # -- what runs in the threads

    def _put(self, key: str, body: Body, condition: tuple[str, str]) -> Stored | PreconditionFailed | Conflict:
        return answers.parse_written(self._send(self._conditional(key, body, condition)), f"object {key}")

    def _conditional(self, key: str, body: Body, condition: tuple[str, str]) -> Request:
        """Return a write under a condition: the one place where it is made."""
        if body.size > MAX_OBJECT_BYTES:
            raise InvalidInput(f"object {key} has {body.size} bytes: expected at most {MAX_OBJECT_BYTES}")
        is_file = isinstance(body, FileBody)
        return Request(
            method="PUT",
            key=self._bucket_key(checked_key(key)),
            headers=(condition, (answers.SHA256_HEADER, body.sha256)),
            body=body,
            wait_seconds=self._settings.file_answer_seconds if is_file else self._settings.answer_seconds,
        )

    def _get(self, key: str) -> Found | Absent:
        request, what = self._request("GET", key), f"object {key}"
        for _ in range(_READS):
            found = answers.try_parse_found(self._read(request), what)
            if found is not None:
                return found
        raise CorruptData(f"{what} is not what was stored, by its sha256; restore the corpus from before it")

    def _download(self, key: str, target: Path, size: int, sha256: str) -> Verified | Damaged:
        with _new_file(target) as file:
            answer = self._copy_verified(key, file, size, sha256)
        if isinstance(answer, Damaged):
            target.unlink()
        return answer

    def _copy_verified(self, key: str, target: BinaryIO | None, size: int, sha256: str) -> Verified | Damaged:
        request = self._request("GET", key, wait_seconds=self._settings.file_answer_seconds)
        found = ""
        for _ in range(_READS):
            copy = _Copy(target, size)
            answer = self._read(request, copy.take)
            if answers.is_absence(answer):
                return Damaged(f"object {key} is missing: expected {size} bytes")
            answers.checked_etag(answer, f"object {key}")
            if (copy.size, copy.sha256) == (size, sha256):
                return Verified()
            found = f"{copy.size} bytes, sha256 {copy.sha256}"
        return Damaged(f"object {key} has {found}: expected {size}, {sha256}")

    def _list_page(self, prefix: str, start_after: str) -> Listed:
        root = self._location.object_key("")
        query = (
            ("list-type", "2"),
            ("max-keys", str(PAGE_KEYS)),
            ("prefix", root + prefix),
            *((("start-after", root + start_after),) if start_after else ()),
        )
        request = Request(method="GET", query=query, wait_seconds=self._settings.answer_seconds)
        page = answers.parse_listed(self._read(request), root + prefix, root + start_after if start_after else "")
        return Listed(tuple(key.removeprefix(root) for key in page.keys), page.more)

    def _read(self, request: Request, sink: Sink | None = None) -> Answer:
        """Send a request that changes nothing: without an answer it is not `OutcomeUnknown`, there is nothing to know."""
        try:
            return self._send(request, sink)
        except OutcomeUnknown as error:
            raise Unavailable(error.message, code="store_io") from error

    def _send(self, request: Request, sink: Sink | None = None) -> Answer:
        credentials = self._credentials.current()
        answer = self._endpoint.send(request, credentials, sink)
        if answers.is_denied(answer) and self._credentials.reload(credentials):
            answer = self._endpoint.send(request, self._credentials.current(), sink)
        return answer

    def _request(self, method: str, key: str, wait_seconds: float | None = None) -> Request:
        return Request(
            method=method,
            key=self._bucket_key(key),
            wait_seconds=self._settings.answer_seconds if wait_seconds is None else wait_seconds,
        )

    def _bucket_key(self, key: str) -> str:
        full = self._location.object_key(key)
        if len(full) > MAX_KEY_BYTES:
            raise InvalidInput(f"object key {full[:64]}… has {len(full)} bytes: expected at most {MAX_KEY_BYTES}")
        return full


class _Copy:
    """Counts, hashes and writes what comes in; what is more than expected is not written."""

    def __init__(self, target: BinaryIO | None, expected_bytes: int) -> None:
        self._target = target
        self._expected_bytes = expected_bytes
        self._digest = hashlib.sha256()
        self.size = 0
        if target is not None:
            target.seek(0)
            target.truncate()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def take(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self.size += len(chunk)
        if self._target is not None and self.size <= self._expected_bytes:
            with _disk_faults():
                self._target.write(chunk)


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """Give the new private file `target`, making directories; it is removed again if the block raises."""
    with _disk_faults():
        target.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        file = target.open("xb")
    try:
        with _disk_faults(), file:
            os.fchmod(file.fileno(), PRIVATE_FILE)
            yield file
    except GroundplaneError:
        target.unlink(missing_ok=True)
        raise


@contextmanager
def _disk_faults() -> Iterator[None]:
    """Tell faults of the working directory from those of the store."""
    try:
        yield
    except OSError as error:
        code = "disk_full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "disk_io"
        raise Unavailable(
            f"writing a copy of an object failed: {error.strerror}; free or repair the working directory", code=code
        ) from error


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[[], Value]) -> Value:
    return await asyncio.get_running_loop().run_in_executor(threads, work)
