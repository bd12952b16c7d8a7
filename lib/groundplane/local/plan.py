"""What `groundplane up` starts, decided from manifests, incarnations and ports without touching anything."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from groundplane.api.v1alpha1 import TenantCorpus
from groundplane.local.layout import DataDirectory
from groundplane.local.ports import LOOPBACK
from groundplane.local.storage import Storage
from groundplane.wire.directory import CorpusEntry, Directory
from groundplane.wire.names import CorpusKey, Incarnation

SUSPENDED = "corpus_suspended"
READY = "ready"

SHARD_MODULE = "groundplane_shard.main"

_NOT_INHERITED = frozenset({"GROUNDPLANE_URL", "GROUNDPLANE_TOKEN", "GROUNDPLANE_TOKEN_FILE", "GROUNDPLANE_DATA"})
_STORE_CLIENT = "GROUNDPLANE_S3_"  # settings of the bucket's client, its keys among them: for shards alone


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One process: `python -m <module>` with `environment` on top of the inherited one, up when `probe_url` answers 200."""

    name: str
    module: str
    url: str
    environment: Mapping[str, str]
    probe_path: str = "/readyz"

    @property
    def probe_url(self) -> str:
        """Return what is asked whether the process is up."""
        return self.url + self.probe_path


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus with its incarnation and the port of its shard; None for one that is suspended."""

    corpus: TenantCorpus
    incarnation: Incarnation
    port: int | None

    @property
    def key(self) -> CorpusKey:
        """Return the corpus key."""
        return self.corpus.spec.corpus_key

    @property
    def endpoint(self) -> str | None:
        """Return where the shard answers."""
        return None if self.port is None else f"http://{LOOPBACK}:{self.port}"


def place_corpora(
    corpora: Iterable[TenantCorpus], incarnations: Mapping[CorpusKey, Incarnation], ports: Sequence[int]
) -> list[Placement]:
    """Return each corpus with its incarnation and the next of `ports`; the suspended ones take none."""
    remaining = iter(ports)
    return [
        Placement(
            corpus=corpus,
            incarnation=incarnations[corpus.spec.corpus_key],
            port=None if corpus.spec.suspended else next(remaining),
        )
        for corpus in corpora
    ]


def plan_directory(placements: Iterable[Placement]) -> Directory:
    """Return the router's directory."""
    return Directory(corpora=tuple(_entry(placement) for placement in placements))


def plan_shard(placement: Placement, data: DataDirectory, storage: Storage = Storage()) -> Program:  # noqa: B008 - frozen
    """Return the process of a corpus that is not suspended."""
    snapshots = placement.corpus.spec.snapshots
    accepted = storage.accepted_losses.get(placement.key)
    environment = {
        "GROUNDPLANE_CORPUS_KEY": placement.key,
        "GROUNDPLANE_INCARNATION": placement.incarnation,
        **storage.environment(data),
        "GROUNDPLANE_WITNESS_FILE": str(data.witness_of(placement.key, placement.incarnation)),
        "GROUNDPLANE_WITNESS_WRITE": "true",
        "GROUNDPLANE_ACCEPT_DATA_LOSS": "" if accepted is None else str(accepted),
        "GROUNDPLANE_WORK_DIRECTORY": str(data.work / placement.key),
        "GROUNDPLANE_KEYS_DIRECTORY": str(data.public_keys),
        "GROUNDPLANE_SNAPSHOT_SECONDS": f"{snapshots.every_seconds:g}",
        "GROUNDPLANE_SNAPSHOTS_KEEP": str(snapshots.keep_count),
        "GROUNDPLANE_HOST": LOOPBACK,
        "GROUNDPLANE_PORT": str(placement.port),
    }
    return Program(
        name=f"shard-{placement.key}",
        module=SHARD_MODULE,
        url=str(placement.endpoint),
        environment=environment,
    )


def plan_router(data: DataDirectory, port: int, *, name: str = "router", **settings: str) -> Program:
    """Return a router of this data directory; `settings` are environment variables on top of the usual ones."""
    environment = {
        "GROUNDPLANE_DIRECTORY_FILE": str(data.directory),
        "GROUNDPLANE_CALLER_KEY_FILE": str(data.caller_public_key),
        "GROUNDPLANE_SIGNING_KEY_FILE": str(data.router_key),
        "GROUNDPLANE_HOST": LOOPBACK,
        "GROUNDPLANE_PORT": str(port),
        **settings,
    }
    return Program(
        name=name, module="groundplane_router.main", url=f"http://{LOOPBACK}:{port}", environment=environment
    )


def child_environment(program: Program, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of `program`: what the user set for it comes through, what is the user's own does not."""
    is_shard = program.module == SHARD_MODULE
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in _NOT_INHERITED and (is_shard or not name.startswith(_STORE_CLIENT))
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **program.environment}


def notes_of(corpora: Iterable[TenantCorpus], *, has_bucket: bool = False) -> list[str]:
    """Return what the manifests ask for and one machine does otherwise."""
    notes = []
    for corpus in corpora:
        spec = corpus.spec
        if spec.suspended:
            notes.append(f"{corpus.full_name} is suspended: its shard is not started, its data stays")
        if spec.object_store is not None or spec.storage is not None:
            place = "the bucket of --object-store" if has_bucket else "the data directory"
            notes.append(f"{corpus.full_name}: on one machine log and snapshots are kept in {place}")
        if spec.restore_from is not None:
            notes.append(f"{corpus.full_name}: spec.restoreFrom has no effect on one machine")
        if not spec.subjects:
            notes.append(f"{corpus.full_name} has no subjects: nobody can use it")
    return notes


def _entry(placement: Placement) -> CorpusEntry:
    spec = placement.corpus.spec
    return CorpusEntry(
        key=placement.key,
        name=placement.corpus.full_name,
        tenant=spec.tenant_id,
        incarnation=placement.incarnation,
        endpoint=placement.endpoint,
        state=READY if placement.port is not None else SUSPENDED,
        grants=tuple(subject.grant for subject in spec.subjects),
    )
