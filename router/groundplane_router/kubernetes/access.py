"""Where the API server is and what the router shows it, as Kubernetes puts both into every pod.

The kubelet replaces the mounted token long before it ends, and the CA when the cluster's changes, so both are read again.
"""

import ssl
from pathlib import Path
from typing import Final

import msgspec

from groundplane.errors import Unavailable
from groundplane.process.clock import Clock
from groundplane_router.kubernetes.failures import NOT_READABLE

TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file
CA_FILE: Final = "ca.crt"
TOKEN_SECONDS: Final = 30.0
"""For so long a token that was read is used; the kubelet replaces one when 80 % of its life are over."""

MAX_TOKEN_BYTES: Final = 64 * 1024


class ApiAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's address and the directory of the pod's ServiceAccount (`token`, `ca.crt`)."""

    host: str
    port: int
    directory: Path

    @property
    def url(self) -> str:
        """Return the base of every call, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


class Credentials:
    """What proves the router to the API server, and the server to the router."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._header: str | None = None
        self._read_at = 0.0
        self._tls: ssl.SSLContext | None = None
        self._ca_stamp: tuple[int, int] | None = None

    def authorization(self) -> str:
        """Return the `Authorization` value. Raises Unavailable if there is no token to read."""
        now = self._clock.monotonic()
        if self._header is None or now - self._read_at >= TOKEN_SECONDS:
            self._header = f"Bearer {self._read_token()}"
            self._read_at = now
        return self._header

    def forget_token(self) -> None:
        """Read the token again at its next use: the server did not take this one."""
        self._header = None

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts the cluster's CA and nobody else. Raises Unavailable if there is none to read."""
        path = self._directory / CA_FILE
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if self._tls is None or stamp != self._ca_stamp:
                self._tls = ssl.create_default_context(cafile=str(path))
                self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CAs of many clusters lack a key identifier
                self._ca_stamp = stamp
        except (OSError, ssl.SSLError) as error:
            raise _unreadable(path) from error
        return self._tls

    def _read_token(self) -> str:
        path = self._directory / TOKEN_FILE
        try:
            with path.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(path) from error
        if not token.isprintable() or not token:
            raise _unreadable(path)
        return token


def _unreadable(path: Path) -> Unavailable:
    message = f"file {path} of the pod's ServiceAccount cannot be used: expected one that Kubernetes mounted"
    return Unavailable(message, detail=NOT_READABLE)
