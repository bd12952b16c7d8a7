"""Bringing one installation up: files first, then shards, then the router."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec

from groundplane.api.v1alpha1 import TenantCorpus
from groundplane.local.identity import prepare_incarnations, prepare_keys
from groundplane.local.layout import DataDirectory, Running, write_private
from groundplane.local.lock import hold_lock
from groundplane.local.plan import Program, place_corpora, plan_directory, plan_router, plan_shard
from groundplane.local.ports import claim_port, free_ports
from groundplane.local.storage import Storage


class System(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on one data directory."""

    shards: tuple[Program, ...]
    router: Program


@contextmanager
def hold_data_directory(root: DataDirectory) -> Iterator[None]:
    """Make the data directory and hold it for this process. Raises InvalidInput if another one does."""
    root.prepare()
    with hold_lock(root.lock):
        try:
            yield
        finally:
            with suppress(OSError):  # a disk that failed meanwhile must not hide what ended us
                root.running.unlink()


def prepare_system(
    data: DataDirectory,
    corpora: Sequence[TenantCorpus],
    port: int,
    settings: Mapping[str, str],
    storage: Storage = Storage(),  # noqa: B008 - frozen
) -> System:
    """Write keys, incarnations and directory, and return the processes to start. The data directory must be held.

    `settings` are the router's environment variables beyond its addresses and keys. Raises InvalidInput.
    """
    keys = [corpus.spec.corpus_key for corpus in corpora]
    with data.named_faults():
        prepare_keys(data)
        incarnations = prepare_incarnations(data, keys)
    router_port = claim_port(port)
    active = sum(not corpus.spec.suspended for corpus in corpora)
    placements = place_corpora(corpora, incarnations, free_ports(active))
    with data.named_faults():
        write_private(data.directory, msgspec.json.encode(plan_directory(placements)))
    return System(
        shards=tuple(plan_shard(placement, data, storage) for placement in placements if placement.port is not None),
        router=plan_router(data, router_port, **settings),
    )


def announce(data: DataDirectory, running: Running) -> None:
    """Write where the router answers, for the other commands. Raises InvalidInput."""
    with data.named_faults():
        write_private(data.running, msgspec.json.encode(running))
