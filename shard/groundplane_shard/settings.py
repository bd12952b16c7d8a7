"""Settings of the shard process, read once from its environment."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from groundplane.analysis import Analyser
from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane.tokens import VerifyingKeys
from groundplane.wire.names import parse_corpus_key, parse_incarnation
from groundplane_shard.store_settings import StoreSettings, store_faults

MIB = 1024 * 1024


def _load_keys(directory: str) -> VerifyingKeys:
    return VerifyingKeys.load(Path(directory))


class ShardSettings(StoreSettings, frozen=True, kw_only=True):
    """Which corpus this process serves, where its bytes lie, and its limits."""

    corpus_key: Annotated[
        str,
        setting(
            "GROUNDPLANE_CORPUS_KEY",
            "storage name of the corpus, as the operator or `up` sets it",
            check=parse_corpus_key,
        ),
    ]
    incarnation: Annotated[
        str,
        setting("GROUNDPLANE_INCARNATION", "uid of the TenantCorpus, a lowercase UUID", check=parse_incarnation),
    ]
    work_directory: Annotated[
        str, setting("GROUNDPLANE_WORK_DIRECTORY", "cache of this process, emptied at every start", min_length=1)
    ]
    keys_directory: Annotated[
        str,
        setting(
            "GROUNDPLANE_KEYS_DIRECTORY",
            "directory of the public keys whose capabilities are accepted",
            check=_load_keys,
        ),
    ]
    host: Annotated[str, setting("GROUNDPLANE_HOST", "address to listen on; 0.0.0.0 in a pod")] = "127.0.0.1"
    port: Annotated[int, setting("GROUNDPLANE_PORT", "TCP port to listen on", ge=1, le=65_535)] = 8081
    language: Annotated[
        str,
        setting(
            "GROUNDPLANE_LANGUAGE", "Snowball language of the analyser, the same in router and shards", check=Analyser
        ),
    ] = "english"
    exact_mib: Annotated[
        int,
        setting(
            "GROUNDPLANE_EXACT_MIB", "MiB of vectors up to which search is exact in memory; 0: always indexed", ge=0
        ),
    ] = 48
    snapshot_records: Annotated[
        int, setting("GROUNDPLANE_SNAPSHOT_RECORDS", "log records after which a snapshot is due", ge=1)
    ] = 1_000
    snapshot_mib: Annotated[
        int, setting("GROUNDPLANE_SNAPSHOT_MIB", "MiB of log after which a snapshot is due", ge=1)
    ] = 64
    snapshot_seconds: Annotated[
        float, setting("GROUNDPLANE_SNAPSHOT_SECONDS", "seconds after which a changed corpus is due a snapshot", gt=0)
    ] = 600.0
    snapshots_keep: Annotated[
        int,
        setting(
            "GROUNDPLANE_SNAPSHOTS_KEEP", "snapshots kept; the log is kept from the oldest of them on", ge=1, le=100
        ),
    ] = 3
    flush_mib: Annotated[
        int, setting("GROUNDPLANE_FLUSH_MIB", "MiB of recent writes in memory that start a flush", ge=1)
    ] = 64
    memtable_mib: Annotated[
        int, setting("GROUNDPLANE_MEMTABLE_MIB", "MiB of recent writes above which writes are refused with 503", ge=2)
    ] = 256
    max_searches: Annotated[
        int, setting("GROUNDPLANE_MAX_SEARCHES", "searches under way or waiting; more are refused with 503", ge=1)
    ] = 64
    max_queued_writes: Annotated[
        int, setting("GROUNDPLANE_MAX_QUEUED_WRITES", "write requests that wait; more are refused with 503", ge=1)
    ] = 256
    bodies_mib: Annotated[
        int,
        setting(
            "GROUNDPLANE_BODIES_MIB",
            "MiB of request bodies read at once, all together, before one more gets 503; at least 64",
            ge=64,
        ),
    ] = 128
    max_connections: Annotated[
        int, setting("GROUNDPLANE_MAX_CONNECTIONS", "open connections; more are refused with 503", ge=1)
    ] = 1_024
    witness_file: Annotated[
        str,
        setting(
            "GROUNDPLANE_WITNESS_FILE",
            "JSON file outside the store with the highest durable epoch and sequence; a store that holds less is refused",
        ),
    ] = ""
    witness_write: Annotated[
        bool,
        setting(
            "GROUNDPLANE_WITNESS_WRITE",
            "whether this process keeps that file up to date; false where the operator does",
        ),
    ] = False
    accept_data_loss: Annotated[
        int | None,
        setting(
            "GROUNDPLANE_ACCEPT_DATA_LOSS",
            "sequence at which the log ends although the witness saw more: go on after it, all later writes are lost; "
            "for one start",
            ge=0,
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("GROUNDPLANE_LOG_LEVEL", "least severe level that is logged"),
    ] = "info"


def read_shard_settings(environment: Mapping[str, str]) -> ShardSettings:
    """Return the settings of `environment`. Raises InvalidInput that lists every fault, one a line."""
    try:
        settings = read_settings(ShardSettings, environment)
    except InvalidInput as error:
        faults = [error.message, *store_faults(read_settings(StoreSettings, environment), environment)]
        raise InvalidInput("\n".join(faults), code=error.code) from error
    faults = [*store_faults(settings, environment), *_faults(settings)]
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_settings")
    return settings


def _faults(settings: ShardSettings) -> Iterator[str]:
    """Yield what is wrong about settings that are right one by one."""
    work = Path(settings.work_directory).resolve()
    kept = {
        "GROUNDPLANE_STORE_DIRECTORY": settings.store_directory,
        "GROUNDPLANE_KEYS_DIRECTORY": settings.keys_directory,
        "GROUNDPLANE_WITNESS_FILE": settings.witness_file,
    }
    for variable, directory in kept.items():
        if directory and Path(directory).resolve().is_relative_to(work):
            yield (
                f"GROUNDPLANE_WORK_DIRECTORY={work} holds {variable}={directory}: expected a directory of its own, "
                "since it is emptied at every start"
            )
    yield from _witness_faults(settings)
    if settings.memtable_mib <= settings.flush_mib:
        yield (
            f"GROUNDPLANE_MEMTABLE_MIB={settings.memtable_mib}: expected more than GROUNDPLANE_FLUSH_MIB="
            f"{settings.flush_mib}, or writes are refused before a flush begins"
        )


def _witness_faults(settings: ShardSettings) -> Iterator[str]:
    if settings.witness_write and not settings.witness_file:
        yield "GROUNDPLANE_WITNESS_WRITE=true: expected GROUNDPLANE_WITNESS_FILE, the file to write, to be set too"
    if settings.witness_file and settings.store_directory:
        store = Path(settings.store_directory).resolve()
        if Path(settings.witness_file).resolve().is_relative_to(store):
            yield (
                f"GROUNDPLANE_WITNESS_FILE={settings.witness_file} lies in the store: expected a file outside of "
                f"GROUNDPLANE_STORE_DIRECTORY={settings.store_directory}, or both would be lost together"
            )
