"""What is sent with a PUT: its size and SHA-256 are known, and signed, before the first byte leaves."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from groundplane.errors import Unavailable
from groundplane_shard.log.operations import LocalFile

CHUNK_BYTES = 256 * 1024


class Body(Protocol):
    """The bytes of one object; they can be given out again for another try."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def sha256(self) -> str:
        """Hex."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order."""


class BytesBody:
    """A body in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.sha256 = hashlib.sha256(data).hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order."""
        for start in range(0, self.size, CHUNK_BYTES):
            yield self._data[start : start + CHUNK_BYTES]


class FileBody:
    """A file of the local table. What was announced is what is sent, or the request is never completed."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self.size = file.size
        self.sha256 = file.sha256

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order; the last chunk is held back until the digest of the whole is known to be right.

        Raises Unavailable with code `local_file_changed` if the file is not what was announced.
        """
        digest, size, held_back = hashlib.sha256(), 0, b""
        try:
            with Path(self._file.source).open("rb") as source:
                for chunk in _read(source):
                    digest.update(chunk)
                    size += len(chunk)
                    if held_back:
                        yield held_back
                    held_back = chunk
        except OSError as error:
            raise _changed(self._file, error.strerror or "an error") from error
        if (size, digest.hexdigest()) != (self.size, self.sha256):
            raise _changed(self._file, f"{size} bytes, sha256 {digest.hexdigest()}")
        if held_back:
            yield held_back


def _read(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _changed(file: LocalFile, found: str) -> Unavailable:
    return Unavailable(
        f"local file {file.path} has {found}: expected {file.size} bytes, sha256 {file.sha256}; make the snapshot again",
        code="local_file_changed",
    )
