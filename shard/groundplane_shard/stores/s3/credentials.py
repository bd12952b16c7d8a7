"""The keys of a bucket: fixed ones from the environment, a mounted Secret that is read again when it changes, or a role's.

Keys appear in no text: the structs have no values in their `repr`, and errors name files only.
"""

import re
import threading
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from groundplane.errors import InvalidInput, Unavailable
from groundplane_shard.stores.s3.settings import S3Settings

_MAX_FILE_BYTES = 16 * 1024  # session tokens have a few kilobytes
_READ_TRIES = 5
_KEY = re.compile(r"[!-~]*")  # what fits into a header
_FILES = ("access-key", "secret-key", "session-token")

Version: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class Credentials(msgspec.Struct, frozen=True):
    """One set of keys. `session_token` is "" for permanent ones."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "Credentials(not shown)"


class CredentialSource(Protocol):
    """Gives the keys for the next request. Called from several threads."""

    def current(self) -> Credentials:
        """Return the keys that are valid now. Raises Unavailable with code `store_denied` if there are none."""

    def at_hand(self) -> Credentials | None:
        """Return the keys that are valid now if that takes no time; None: ask `current` in a thread."""

    def reload(self, refused: Credentials) -> bool:
        """Say whether there are other keys than those that the store has just refused."""


class FixedCredentials:
    """Keys that stay the same as long as the process lives."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def current(self) -> Credentials:
        """Return the keys."""
        return self._credentials

    def at_hand(self) -> Credentials | None:
        """Return the keys."""
        return self._credentials

    def reload(self, refused: Credentials) -> bool:
        """Say that there are no others."""
        return refused != self._credentials


class MountedCredentials:
    """Keys in the files of a directory, such as a mounted Secret, which Kubernetes replaces when it is rotated."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._version: Version | None = None
        self._credentials: Credentials | None = None

    def current(self) -> Credentials:
        """Return the keys as they are in the files now; three stat calls if nothing changed."""
        with self._lock:
            version = self._present_version()
            if self._credentials is None or version != self._version:
                self._credentials, self._version = self._read()
            return self._credentials

    def at_hand(self) -> Credentials | None:
        """Return the keys if the files have not changed since they were read."""
        return self._credentials if self._version == self._present_version() else None

    def reload(self, refused: Credentials) -> bool:
        """Read the files again whatever their dates say."""
        with self._lock:
            self._credentials, self._version = self._read()
            return self._credentials != refused

    def _read(self) -> tuple[Credentials, Version]:
        """Return keys of one rotation: the files did not change while they were read."""
        for _ in range(_READ_TRIES):
            before = self._present_version()
            access_key, secret_key, session_token = (self._content(name) for name in _FILES)
            if self._present_version() == before:
                if not access_key or not secret_key:
                    break
                return Credentials(access_key, secret_key, session_token), before
        raise Unavailable(
            f"credentials in {self._directory}: files {_FILES[0]} and {_FILES[1]} are missing, empty or changing: "
            "expected both; repair the mounted Secret",
            code="store_denied",
        )

    def _present_version(self) -> Version:
        return tuple(_file_version(self._directory / name) for name in _FILES)

    def _content(self, name: str) -> str:
        try:
            with (self._directory / name).open("rb") as file:
                content = file.read(_MAX_FILE_BYTES).decode("ascii", errors="replace").strip()
        except OSError:
            return ""
        return content if _KEY.fullmatch(content) else ""


def credential_source(settings: S3Settings) -> CredentialSource:
    """Return the source that `settings` name. Raises InvalidInput if they name none, half of one or two."""
    has_keys = bool(settings.access_key or settings.secret_key or settings.session_token)
    if has_keys and settings.credentials_directory:
        raise InvalidInput(
            "GROUNDPLANE_S3_CREDENTIALS_DIRECTORY is set beside GROUNDPLANE_S3_ACCESS_KEY: keep one of them",
            code="invalid_settings",
        )
    if settings.identity:
        if has_keys or settings.credentials_directory:
            raise InvalidInput(
                "GROUNDPLANE_S3_IDENTITY=cloud is set beside keys of the bucket: keep one of them",
                code="invalid_settings",
            )
        from groundplane_shard.stores.s3.cloud_credentials import CloudCredentials  # it imports this module

        return CloudCredentials(settings.identity_endpoint)
    if settings.credentials_directory:
        return MountedCredentials(Path(settings.credentials_directory))
    if not settings.access_key or not settings.secret_key:
        raise InvalidInput(
            "the object store needs credentials: set GROUNDPLANE_S3_ACCESS_KEY and GROUNDPLANE_S3_SECRET_KEY, "
            "or GROUNDPLANE_S3_CREDENTIALS_DIRECTORY, or GROUNDPLANE_S3_IDENTITY=cloud",
            code="invalid_settings",
        )
    if not all(map(_KEY.fullmatch, (settings.access_key, settings.secret_key, settings.session_token))):
        raise InvalidInput(
            "GROUNDPLANE_S3_ACCESS_KEY, _SECRET_KEY or _SESSION_TOKEN: expected printable ASCII without spaces",
            code="invalid_settings",
        )
    return FixedCredentials(Credentials(settings.access_key, settings.secret_key, settings.session_token))


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when the file does; links are followed, since a mounted Secret is swapped by its link."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
