"""Where a corpus keeps log and snapshots: in a bucket or on a volume. The spec decides, then the operator's default."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from groundplane.api.v1alpha1 import ObjectStore, TenantCorpusSpec
from groundplane.errors import InvalidInput

NO_STORE_CODE: Final = "no_object_store"
MAX_PREFIX_SEGMENTS: Final = 8
_AWS_HOST = re.compile(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket as the shard is told of it. `port` is where its server listens."""

    url: str
    port: int
    credentials_secret: str


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of its own; `size` is the quantity of the spec."""

    size: str
    size_bytes: int
    class_name: str | None


StoreLocation = Bucket | Volume


def resolve_store(spec: TenantCorpusSpec, default: Bucket | None) -> StoreLocation:
    """Return where the corpus of `spec` lies.

    Raises InvalidInput: the code is NO_STORE_CODE where nothing says it, else the spec is at fault.
    """
    if spec.storage is not None:
        storage = spec.storage
        return Volume(size=str(storage.size), size_bytes=storage.size_bytes, class_name=storage.class_name)
    if spec.object_store is not None:
        return _bucket(spec.object_store)
    if default is None:
        raise InvalidInput(
            "spec has neither objectStore nor storage, and this installation has no default bucket: set one of them",
            code=NO_STORE_CODE,
            field="spec",
        )
    return default


def default_bucket(url: str, credentials_secret: str) -> Bucket | None:
    """Return the installation's bucket of `s3://BUCKET[/PREFIX][?endpoint=URL…]`, None for "". Raises InvalidInput."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or "@" in url:
        raise InvalidInput("expected s3://BUCKET[/PREFIX][?endpoint=URL], without keys")
    endpoint = dict(parse_qsl(parts.query)).get("endpoint")
    return Bucket(url=url, port=_port(endpoint), credentials_secret=credentials_secret)


def _bucket(store: ObjectStore) -> Bucket:
    if store.credentials_secret is None:
        raise InvalidInput(
            "spec.objectStore.credentialsSecret is missing: name a Secret with the keys access-key and secret-key; shards "
            "cannot use a cloud identity yet",
            field="spec.objectStore.credentialsSecret",
        )
    segments = (store.prefix or "").count("/") + 1
    if segments > MAX_PREFIX_SEGMENTS:
        raise InvalidInput(
            f"spec.objectStore.prefix has {segments} segments: expected at most {MAX_PREFIX_SEGMENTS}",
            field="spec.objectStore.prefix",
        )
    path = f"/{store.prefix}" if store.prefix else ""
    return Bucket(
        url=f"s3://{store.bucket}{path}{_query(store.endpoint)}",
        port=_port(store.endpoint),
        credentials_secret=store.credentials_secret.name,
    )


def _query(endpoint: str | None) -> str:
    if endpoint is None:
        return ""
    parts = urlsplit(endpoint)
    if parts.path.strip("/"):
        raise InvalidInput(
            f"spec.objectStore.endpoint has the path {parts.path[:64]}: expected scheme, host and perhaps a port",
            field="spec.objectStore.endpoint",
        )
    matched = _AWS_HOST.fullmatch(parts.hostname or "")
    region = f"&region={matched[1]}" if matched else ""
    return f"?endpoint={quote(endpoint.rstrip('/'), safe=':/[]')}{region}"


def _port(endpoint: str | None) -> int:
    parts = urlsplit(endpoint or "https://")
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidInput(
            f"spec.objectStore.endpoint {(endpoint or '')[:64]}: expected a port from 1 to 65535",
            field="spec.objectStore.endpoint",
        ) from error
    return port or _DEFAULT_PORTS.get(parts.scheme, 443)
