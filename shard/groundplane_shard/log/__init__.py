"""The log protocol: everything durable about one incarnation, written without I/O. This module is its public surface.

    replica = Replica(Identity(layout=Layout(corpus_key, incarnation), owner=uid, writer_id=fresh_uuid), keep_snapshots=3)
    await run(replica.open(), store, effects)                  # Restore and Apply effects, up to the log's present end
    await run(replica.follow(), store, effects)                # a follower: as often as wanted
    writer = await run(replica.take_over(witness), store, effects)               # accept_data_loss=80 after a loss
    done = await run(writer.append(payload, embedding_id=e), store, effects)     # Committed(sequence, digest), applied
    await run(writer.publish_snapshot(files, position_of_the_frozen_state, token=fresh_hex), store, effects)
    await run(writer.collect(), store, effects)
    writer.epoch, writer.position, writer.manifest, writer.stopped
    await run(restore(Restoration(...)), store, effects)       # another incarnation's log, copied into a new one

Appends of one writer are run one after the other; a snapshot, a collection or a registration may run beside them.
Whoever runs the generators performs what they yield (see `operations`); `groundplane_shard.stores.run` does it on a real
store. Invariants: `replica`, `writer`, `publishing`, `collecting` and `cell` name those that they keep (I1-I8, I11, I12).
Nothing in this package knows of time, files, sockets or threads.
"""

from groundplane_shard.log.cell import Identity
from groundplane_shard.log.layout import Epoch, Layout, Seq
from groundplane_shard.log.manifest import Manifest, Origin, Snapshot, SnapshotFile
from groundplane_shard.log.operations import Damaged, LocalFile, Operation, Restored, Result, Steps
from groundplane_shard.log.override import Override, Witness
from groundplane_shard.log.record import NO_EMBEDDING, Kind, Position, Record
from groundplane_shard.log.replica import Replica
from groundplane_shard.log.restoring import Restoration, restore
from groundplane_shard.log.writer import Committed, Writer

__all__ = [
    "NO_EMBEDDING",
    "Committed",
    "Damaged",
    "Epoch",
    "Identity",
    "Kind",
    "Layout",
    "LocalFile",
    "Manifest",
    "Operation",
    "Origin",
    "Override",
    "Position",
    "Record",
    "Replica",
    "Restoration",
    "Restored",
    "Result",
    "Seq",
    "Snapshot",
    "SnapshotFile",
    "Steps",
    "Witness",
    "Writer",
    "restore",
]
