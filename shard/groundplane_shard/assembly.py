"""The object graph of the shard, built once."""

from pathlib import Path

from starlette.applications import Starlette

from groundplane.analysis import Analyser
from groundplane.process.bodies import Bodies
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.process.metrics import MetricsEndpoint, new_registry
from groundplane.tokens import capability_audience
from groundplane.wire.names import CorpusKey, parse_incarnation
from groundplane_shard.access import Access
from groundplane_shard.app import ShardApi, build_app
from groundplane_shard.committer import WriteLimits
from groundplane_shard.local_state import LocalState
from groundplane_shard.log import Identity, Layout, Replica, Seq
from groundplane_shard.metrics import ShardMetrics
from groundplane_shard.mounted_keys import MountedKeys
from groundplane_shard.problems import ShardProblemHandler
from groundplane_shard.service import Shard
from groundplane_shard.serving import ServingParts
from groundplane_shard.settings import MIB, ShardSettings
from groundplane_shard.snapshots import SnapshotPolicy
from groundplane_shard.stores import ObjectStore
from groundplane_shard.witness import WitnessFile


def assemble(
    settings: ShardSettings, keys: MountedKeys, store: ObjectStore, clock: Clock, *, writer_id: str
) -> Starlette:
    """Return the application of one shard over `store`."""
    layout = Layout(CorpusKey(settings.corpus_key), settings.incarnation)
    work_directory = Path(settings.work_directory)
    state = LocalState(store, layout, work_directory, settings.exact_mib * MIB, clock)
    replica = Replica(
        Identity(layout=layout, owner=settings.incarnation, writer_id=writer_id), keep_snapshots=settings.snapshots_keep
    )
    registry = new_registry()
    parts = ServingParts(
        layout=layout,
        analyser=Analyser(settings.language),
        clock=clock,
        metrics=ShardMetrics(registry),
        write_limits=WriteLimits(settings.max_queued_writes, settings.memtable_mib * MIB),
        snapshot_policy=SnapshotPolicy(
            records=settings.snapshot_records,
            log_bytes=settings.snapshot_mib * MIB,
            seconds=settings.snapshot_seconds,
            flush_bytes=settings.flush_mib * MIB,
        ),
        max_searches=settings.max_searches,
        key_ids=lambda: keys.ids,
        witness=WitnessFile(
            Path(settings.witness_file) if settings.witness_file else None, may_write=settings.witness_write
        ),
        accept_data_loss=None if settings.accept_data_loss is None else Seq(settings.accept_data_loss),
    )
    shard = Shard(parts, replica, store, state, work_directory)
    audience = capability_audience(CorpusKey(settings.corpus_key), parse_incarnation(settings.incarnation))
    access = Access(keys, audience, clock)
    api = ShardApi(shard, access, parts.metrics, Bodies(settings.bodies_mib * MIB))
    return build_app(api, shard, MetricsEndpoint(registry), ShardProblemHandler(Log("shard")))
