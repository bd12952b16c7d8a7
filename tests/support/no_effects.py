"""The effects of a protocol run that has none: reading what a store holds."""

from collections.abc import Sequence

from groundplane_shard.log import Position, Record, Snapshot
from groundplane_shard.log.operations import Damaged, Restored


class NoEffects:
    """Fails if anything is to be restored or applied."""

    async def restore(self, snapshot: Snapshot | None) -> Restored | Damaged:
        raise TypeError(f"nothing was to be restored: {snapshot}")

    async def apply(self, record: Record, position: Position) -> None:
        raise TypeError(f"nothing was to be applied: {record.sequence} at {position}")

    async def foresee(self, records: Sequence[Record]) -> None:
        raise TypeError(f"nothing was to be applied: {len(records)} records")
