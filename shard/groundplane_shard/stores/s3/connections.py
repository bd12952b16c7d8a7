"""Connections to an endpoint that are made soon or not at all, so that "not connected" is known to mean "not done"."""

import ssl
from collections.abc import Callable
from urllib.parse import SplitResult

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from groundplane.errors import InvalidInput
from groundplane_shard.stores.s3.bodies import CHUNK_BYTES

CONNECT_SECONDS = 1.5  # a shard refuses writes within 2 s when its store is away


class NotConnected(HTTPError):
    """There is no connection, so nothing was sent. Not one of the errors that urllib3 wraps into another."""

    def __init__(self, cause: Exception) -> None:
        self.reason = innermost(cause)
        super().__init__(self.reason)


def open_pool(base: SplitResult, ca_file: str, connections: int) -> urllib3.HTTPConnectionPool:
    """Return the pool that keeps up to `connections` to the endpoint. Raises InvalidInput if the CA file is not usable."""
    host = base.hostname or ""
    if base.scheme == "http":
        return _PlainPool(host, base.port, maxsize=connections, blocksize=CHUNK_BYTES)
    return _TlsPool(host, base.port, maxsize=connections, blocksize=CHUNK_BYTES, ssl_context=tls_context(ca_file))


class _PlainConnection(HTTPConnection):
    def connect(self) -> None:
        _connect_soon(self, super().connect)


class _TlsConnection(HTTPSConnection):
    def connect(self) -> None:
        _connect_soon(self, super().connect)


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _connect_soon(connection: HTTPConnection, connect: Callable[[], None]) -> None:
    """Connect within the short time that is right for it, then wait for bytes as long as the request says."""
    patience, connection.timeout = connection.timeout, CONNECT_SECONDS
    try:
        connect()
    except (HTTPError, OSError) as error:
        raise NotConnected(error) from error
    connection.timeout = patience
    connection.sock.settimeout(patience)


def innermost(error: BaseException) -> str:
    """Return what really went wrong, for people."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return f"{type(error).__name__}: {error}"[:256]


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return how certificates are checked. Raises InvalidInput if the CA file is not usable."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInput(
            f"GROUNDPLANE_S3_CA_FILE={ca_file}: {error.strerror or 'no certificates'}: expected a PEM file of CAs",
            code="invalid_settings",
        ) from error
