"""Erasing: everything of one incarnation is removed for good, because its resource was deleted with that wish.

    epoch        raised in MANIFEST by compare-and-set, so that no writer publishes any more (MANIFEST says whose it all is)
    fence        a barrier of that epoch, created at the first free sequence: an older writer's next append meets it
    objects      all others are deleted, listed again and deleted, until a listing shows nothing but these two
    the two      fence, then MANIFEST, the last: cut off anywhere before, the next run still finds whose objects they are

Repeat at any time: what is gone is as good as deleted, an empty prefix is done. Objects without a MANIFEST, such as one that
an older writer stored after the end, lie under a name that only this incarnation has, so they are removed too.
Errors: `CorruptData` (MANIFEST is damaged or another owner's: nothing is removed), `Unavailable`, `OutcomeUnknown`.
"""

from typing import Final
from uuid import UUID

import msgspec

from groundplane.errors import Unavailable
from groundplane_shard.log import record as codec
from groundplane_shard.log import steps
from groundplane_shard.log.cell import Identity, ManifestCell
from groundplane_shard.log.layout import Epoch, Layout, Seq
from groundplane_shard.log.manifest import Manifest
from groundplane_shard.log.operations import Absent, Steps
from groundplane_shard.log.record import Kind, Record

_NO_DIGEST: Final = bytes(32)  # the fence follows no record: nobody reads this log any more
MAX_ROUNDS: Final = 32


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, and from where."""

    prefix: str
    objects: int


def erase(identity: Identity) -> Steps[Erased]:
    """Remove every object of the incarnation and return how many there were; a listing has shown that none is left."""
    layout = identity.layout
    if isinstance((yield from steps.get(layout.manifest)), Absent):
        return Erased(prefix=layout.prefix, objects=(yield from _delete_all_but(layout, frozenset())))
    manifest = yield from ManifestCell(identity).change(_with_raised_epoch)
    fence = yield from _fence(layout, manifest)
    removed = yield from _delete_all_but(layout, frozenset({fence, layout.manifest}))
    for key in (fence, layout.manifest):
        yield from steps.delete(key)
    late = yield from _delete_all_but(layout, frozenset())
    return Erased(prefix=layout.prefix, objects=removed + 1 + late)


def _with_raised_epoch(base: Manifest) -> Manifest:
    return msgspec.structs.replace(base, epoch=Epoch(base.epoch + 1))


def _fence(layout: Layout, manifest: Manifest) -> Steps[str]:
    """Create the fence at the first free sequence and return its key. Records below the snapshots may be gone."""
    keys = yield from steps.list_all(layout.log)
    sequence = max(manifest.newest_sequence, *(layout.sequence_of(key) or 0 for key in keys), 0)
    for free in range(sequence + 1, sequence + 1 + MAX_ROUNDS):
        barrier = Record(
            kind=Kind.BARRIER,
            epoch=manifest.epoch,
            sequence=Seq(free),
            incarnation=UUID(layout.incarnation).bytes,
            previous=_NO_DIGEST,
        )
        if (yield from steps.create(layout.record(free), codec.encode(barrier).data)) is None:
            return layout.record(free)
    raise _still_written(layout)


def _delete_all_but(layout: Layout, kept: frozenset[str]) -> Steps[int]:
    """Delete until a listing shows nothing but `kept`; return how many objects were deleted."""
    removed = 0
    for _ in range(MAX_ROUNDS):
        doomed = [key for key in (yield from steps.list_all(layout.prefix)) if key not in kept]
        if not doomed:
            return removed
        yield from steps.together(steps.delete(key) for key in doomed)
        removed += len(doomed)
    raise _still_written(layout)


def _still_written(layout: Layout) -> Unavailable:
    return Unavailable(
        f"{layout.prefix} is still written to: expected no process of this incarnation; stop it, and erase again",
        code="still_written",
    )
