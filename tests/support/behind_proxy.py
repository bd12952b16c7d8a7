"""A shard whose bucket is behind a fault proxy, and the answers by which a store lies."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.fault_proxy import FaultProxy
from tests.support.processes import ShardProcess
from tests.support.seaweedfs import S3Server
from tests.support.writes import DIMENSION

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>m</Message></Error>"
INTERNAL_ERROR = b"<Error><Code>InternalError</Code><Message>m</Message></Error>"
ACCESS_DENIED = b"<Error><Code>AccessDenied</Code><Message>m</Message></Error>"


def proxy_before(server: S3Server, *, seed: int) -> FaultProxy:
    """Return a proxy before the store."""
    endpoint = urlsplit(server.location().endpoint)
    return FaultProxy(endpoint.hostname or "", endpoint.port or 80, seed=seed)


def keys(server: S3Server) -> dict[str, str]:
    """Return the variables that hold the bucket's keys."""
    settings = server.settings
    return {"GROUNDPLANE_S3_ACCESS_KEY": settings.access_key, "GROUNDPLANE_S3_SECRET_KEY": settings.secret_key}


def store_url(server: S3Server, proxy: FaultProxy) -> str:
    """Return the URL of a prefix that nobody else uses, behind the proxy."""
    location = server.location()
    return f"s3://{location.bucket}/{location.prefix}?endpoint={proxy.url}"


def shard_behind(root: Path, server: S3Server, proxy: FaultProxy, settings: Mapping[str, str]) -> ShardProcess:
    """Return a shard of a corpus of its own in the bucket behind the proxy."""
    bucket = {"GROUNDPLANE_STORE_DIRECTORY": "", "GROUNDPLANE_OBJECT_STORE": store_url(server, proxy), **keys(server)}
    return ShardProcess(root, dimension=DIMENSION, settings={**bucket, **settings})
