"""Collecting: deleting log records and snapshot files that no kept snapshot needs (I6, I8).

What is deleted, judged by a MANIFEST that this process stored or read as the writer:

- log records up to the floor, except barriers. A barrier is what an older writer's next create must meet for ever.
- snapshot files that this MANIFEST does not list, of uploads that can never be listed again: those of lower epochs (a
  writer of a lower epoch cannot change MANIFEST any more) and those this writer published itself. Uploads of the own
  epoch that were never published are left to the next writer: their MANIFEST change may still be on its way.

Every key judged here stays unneeded whatever happens later: the floor never falls, a file that a MANIFEST stopped
listing is never reused, names are never used twice. So deletes that arrive late, even those of a superseded writer, are
harmless. Names that no writer makes are left alone. Errors: `Unavailable`; repeat at any time.
"""

import msgspec

from groundplane_shard.log import steps
from groundplane_shard.log.layout import Epoch, Layout, upload_epoch
from groundplane_shard.log.manifest import Manifest
from groundplane_shard.log.operations import Steps


class Judgement(msgspec.Struct, frozen=True):
    """What one collection is judged by, all taken at the same moment."""

    layout: Layout
    manifest: Manifest
    epoch: Epoch
    published: frozenset[str]


def collect(judged: Judgement) -> Steps[int]:
    """Delete what is not needed; return how many objects."""
    doomed = (yield from _unneeded_records(judged)) + (yield from _unneeded_files(judged))
    yield from steps.together(steps.delete(key) for key in doomed)
    return len(doomed)


def is_unneeded_record(key: str, judged: Judgement) -> bool:
    """Return whether a listed log key is below the floor and no barrier."""
    sequence = judged.layout.sequence_of(key)
    return sequence is not None and sequence <= judged.manifest.log_floor and sequence not in judged.manifest.barriers


def is_unneeded_file(key: str, judged: Judgement) -> bool:
    """Return whether a listed snapshot key is unlisted in MANIFEST and of an upload that can never be listed again."""
    upload = judged.layout.upload_of(key)
    epoch = upload_epoch(upload)
    if epoch is None or key.removeprefix(judged.layout.prefix) in judged.manifest.listed_names():
        return False
    return epoch < judged.epoch or upload in judged.published


def _unneeded_records(judged: Judgement) -> Steps[list[str]]:
    last = judged.layout.record(judged.manifest.log_floor)
    found: list[str] = []
    start_after, more = "", judged.manifest.log_floor > 0
    while more:
        page = yield from steps.list_page(judged.layout.log, start_after)
        found += [key for key in page.keys if is_unneeded_record(key, judged)]
        start_after = page.keys[-1] if page.keys else last
        more = page.more and start_after < last
    return found


def _unneeded_files(judged: Judgement) -> Steps[list[str]]:
    keys = yield from steps.list_all(judged.layout.snapshots)
    return [key for key in keys if is_unneeded_file(key, judged)]
