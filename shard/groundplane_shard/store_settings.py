"""Where a corpus lies: in a directory of this machine or in a bucket. One choice, made the same way by every program."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane_shard.stores import LocalStore

if TYPE_CHECKING:
    from groundplane_shard.stores.s3 import S3Store


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The store; exactly one of the two is set. A bucket's keys and time limits are `S3Settings`, read where it is opened."""

    store_directory: Annotated[
        str,
        setting(
            "GROUNDPLANE_STORE_DIRECTORY",
            "root of the local store; log and snapshots lie below it. Either this or GROUNDPLANE_OBJECT_STORE is set",
        ),
    ] = ""
    object_store: Annotated[
        str,
        setting(
            "GROUNDPLANE_OBJECT_STORE",
            "bucket instead of the local store: s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&addressing=path or "
            "virtual], without keys",
        ),
    ] = ""


def store_faults(settings: StoreSettings, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong about the store's settings, those of the bucket's client in `environment` included."""
    if bool(settings.store_directory) == bool(settings.object_store):
        found = "both are set" if settings.object_store else "neither is set"
        yield (
            f"GROUNDPLANE_STORE_DIRECTORY and GROUNDPLANE_OBJECT_STORE: {found}: expected exactly one; "
            "set the one that names where the corpus lies"
        )
    elif settings.object_store:
        yield from _bucket_faults(settings.object_store, environment)


def build_store(settings: StoreSettings, environment: Mapping[str, str]) -> "LocalStore | S3Store":
    """Return the store, to be closed at the end. Raises InvalidInput for faulty settings, Unavailable for a bad directory.

    The client of buckets is imported only where one is used: it takes 0.1 s to load.
    """
    faults = list(store_faults(settings, environment))
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_settings")
    if not settings.object_store:
        return LocalStore(Path(settings.store_directory))
    from groundplane_shard.stores.s3 import S3Settings, S3Store, credential_source, parse_store_url

    client = read_settings(S3Settings, environment)
    return S3Store(parse_store_url(settings.object_store), client, credential_source(client))


def _bucket_faults(url: str, environment: Mapping[str, str]) -> Iterator[str]:
    from groundplane_shard.stores.s3 import S3Settings, credential_source, parse_store_url

    try:
        parse_store_url(url)
    except InvalidInput as error:
        yield f"GROUNDPLANE_OBJECT_STORE: {error.message}"
    try:
        credential_source(read_settings(S3Settings, environment))
    except InvalidInput as error:
        yield error.message
