"""A follower of one incarnation's log, and the way it becomes the writer.

Following: restore the newest snapshot that verifies, else the one before, else (only while the whole log exists) the
empty state; then apply record after record, several of which are read at once. A missing or unfitting record is judged only after MANIFEST was read again:
if the place where we stand was collected meanwhile, everything starts again from the newest snapshot; if not, an absent
record is the end of the log and an unfitting one is `CorruptData`. Records are never skipped (I3, I11).

Take-over (I5): follow to the end -> raise the epoch in MANIFEST by compare-and-set -> follow the rest -> create a
barrier at the first free sequence, applying whatever took it -> read MANIFEST again and stop unless the epoch is still
ours and the barrier lies above the newest snapshot. From then on an older writer's next create meets a key that exists
for ever. A loser of this race, or a process whose epoch somebody raised, is `Superseded` and does not contend again.

Witness (I12): what the store holds must reach the epoch and sequence recorded outside it, else the take-over ends before
it writes anything. It goes on only if the caller names the very sequence at which the log ends; then the barrier is an
`override` record, so that the loss stands in the log (see `override`).

No rule here looks at a clock (I6).
"""

from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

import msgspec

from groundplane.errors import CorruptData, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import override as override_codec
from groundplane_shard.log import record as codec
from groundplane_shard.log import steps
from groundplane_shard.log.cell import Identity, ManifestCell
from groundplane_shard.log.layout import Epoch, Seq
from groundplane_shard.log.manifest import Manifest, Snapshot
from groundplane_shard.log.operations import Absent, Apply, Damaged, Foresee, Found, Restore, Restored, Steps
from groundplane_shard.log.override import Override, Witness, required_override
from groundplane_shard.log.publishing import Standing
from groundplane_shard.log.record import Encoded, Kind, Position, Record
from groundplane_shard.log.writer import Writer

_MAX_RESTARTS = 8
_SINGLE_READS = 16  # before more are read at once: a follower is mostly at the end, or just behind it
_MIN_READ_AHEAD, _MAX_READ_AHEAD = 4, 128  # records
_READ_AHEAD_BYTES = 8 * 1024 * 1024  # of one turn, above which the next is not larger


class Replica:
    """One process's view of a log. `open` first; then `follow` as often as wanted; `take_over` makes the writer.

    After OutcomeUnknown or a cut-off append, `open` and `take_over` again on the same object: it remembers that it was
    the writer, so it stops if another process took over meanwhile.
    """

    def __init__(self, identity: Identity, *, keep_snapshots: int = 3) -> None:
        self.cell = ManifestCell(identity)
        self.position = Position()
        self._layout = identity.layout
        self._incarnation = UUID(identity.layout.incarnation).bytes
        self._keep_snapshots = keep_snapshots
        self._barriers: set[Seq] = set()  # read since the restore; those before it are in MANIFEST
        self._damaged: set[str] = set()  # upload ids of snapshots that did not verify
        self._ahead: dict[str, Found] = {}  # by key: read, not applied yet
        self._ahead_records = _MIN_READ_AHEAD
        self._contended: Epoch | None = None  # the epoch above which this process raised it, or may have

    @property
    def manifest(self) -> Manifest:
        """MANIFEST as last read or written."""
        return self.cell.manifest

    def open(self) -> Steps[None]:
        """Build the state from the store: snapshot, then the log to its present end. Makes MANIFEST in an empty prefix."""
        manifest = yield from self.cell.open()
        if manifest.is_unfinished:
            raise Unavailable(
                f"{self._layout.prefix} is being restored: expected the copy to be complete; wait for it, or restore into "
                "another incarnation if it was cut off",
                code="restore_unfinished",
            )
        yield from self.restore_newest()
        yield from self.follow()

    def resume(self, position: Position) -> Steps[None]:
        """Go on from a state that is at `position`, as a writer left it whose last outcome is unknown, to the log's end.

        Restores like `open` only if that place was collected meanwhile.
        """
        self.position, self._ahead = position, {}
        yield from self.cell.refresh()
        yield from self.follow()

    def follow(self) -> Steps[int]:
        """Apply what the log holds beyond `position`; return how many records that were."""
        applied = 0
        while (found := (yield from self.next_record())) is not None:
            yield from self._apply(found)
            applied += 1
            if applied >= _SINGLE_READS and not self._ahead:
                yield from self._read_ahead()
        return applied

    def take_over(self, witness: Witness | None = None, *, accept_data_loss: Seq | None = None) -> Steps[Writer]:
        """Become the writer. Raises Superseded if another process is or becomes the writer instead.

        Raises CorruptData if the log has a hole (code `log_gap`) or the store holds less than `witness` (`behind_witness`),
        unless `accept_data_loss` names the sequence at which the log ends. Where nothing is missing it changes nothing.
        """
        yield from self._follow_to_end()
        override = self._check_witness(witness, accept_data_loss)
        epoch = yield from self._raise_epoch(override)
        yield from self._follow_to_end()
        barrier = yield from self._place_barrier(epoch, override)
        yield from self._confirm(epoch, barrier)
        yield from self._apply(barrier)
        standing = Standing(epoch, frozenset(self._barriers), frozenset(self._damaged), self._keep_snapshots)
        return Writer(self.cell, standing, self.position)

    # -- following

    def restore_newest(self, until: Seq | None = None) -> Steps[Snapshot | None]:
        """Restore the newest snapshot that verifies, at most at `until`; return it, or None for the empty state.

        Raises CorruptData if none does, InvalidInput if the log up to `until` is not kept any more.
        """
        for _ in range(_MAX_RESTARTS):
            manifest = self.manifest
            for snapshot in self._candidates(manifest, until):
                if (yield from self._restore_one(snapshot)):
                    self._barriers = set()
                    return snapshot
            if (yield from self.cell.refresh()).counter == manifest.counter:
                break
        raise _nothing_to_restore(self.manifest, until, self._layout.manifest)

    def _candidates(self, manifest: Manifest, until: Seq | None) -> list[Snapshot | None]:
        newest_first: list[Snapshot | None] = [
            snapshot for snapshot in reversed(manifest.snapshots) if until is None or snapshot.sequence <= until
        ]
        return newest_first if manifest.log_floor else [*newest_first, None]

    def _restore_one(self, snapshot: Snapshot | None) -> Steps[bool]:
        operation = Restore(snapshot)
        match (yield operation):
            case Restored():
                self._ahead = {}
                self.position = snapshot.position if snapshot else Position()
                return True
            case Damaged():
                if snapshot:
                    self._damaged.add(snapshot.upload_id)
                return False
            case other:
                raise steps.unexpected(operation, other)

    def next_record(self) -> Steps[Encoded | None]:
        """Return the record after `position`, starting again from a snapshot where that is necessary; None at the end."""
        for _ in range(_MAX_RESTARTS):
            found = yield from self._read_record()
            if isinstance(found, Encoded) and found.record.epoch <= self.manifest.epoch:
                return found
            yield from self.cell.refresh()
            if self._is_off_log():
                yield from self.restore_newest()
            elif isinstance(found, Encoded):
                return self._checked_epoch(found)
            elif found is None:
                return None
            else:
                raise found
        raise CorruptData(f"{self._layout.log} is collected faster than it can be read: expected to reach its end")

    def _read_record(self) -> Steps[Encoded | CorruptData | None]:
        key = self._layout.record(self.position.next_sequence)
        fault: CorruptData | None = None
        for _ in range(steps.MAX_READS):
            found = self._ahead.pop(key, None) or (yield from steps.get(key))
            if isinstance(found, Absent):
                return None
            try:
                return self._decode(found.data, key)
            except CorruptData as error:
                fault = error
        return fault

    def _read_ahead(self) -> Steps[None]:
        """Read several records at once, the more the more there were last time, and announce those that fit.

        What is read is only kept until its turn; whatever is wrong with it is found, and read again, then.
        """
        first = self.position.next_sequence
        keys = [self._layout.record(first + number) for number in range(self._ahead_records)]
        answers = yield from steps.together(map(steps.get, keys))
        found: list[Found] = []
        for answer in answers:
            if not isinstance(answer, Found):
                break
            found.append(answer)
        self._ahead = dict(zip(keys, found, strict=False))
        is_small = sum(len(answer.data) for answer in found) < _READ_AHEAD_BYTES
        grows = len(found) == len(keys) and is_small
        self._ahead_records = min(2 * len(keys), _MAX_READ_AHEAD) if grows else _MIN_READ_AHEAD
        records = self._fitting(self._ahead)
        if records:
            yield Foresee(records)

    def _fitting(self, ahead: Mapping[str, Found]) -> tuple[Record, ...]:
        """Return the records of `ahead` up to the first that does not follow the one before it."""
        records: tuple[Record, ...] = ()
        here = self.position
        with suppress(CorruptData):
            for key, found in ahead.items():
                decoded = codec.decode(found.data, key=key, incarnation=self._incarnation, after=here)
                records += (decoded.record,)
                here = decoded.position
        return records

    def _decode(self, data: bytes, key: str) -> Encoded:
        return codec.decode(data, key=key, incarnation=self._incarnation, after=self.position)

    def _is_off_log(self) -> bool:
        """Whether the place where we stand was collected: what we read there may be a superseded writer's leftover."""
        manifest, here = self.manifest, self.position
        return manifest.log_floor > here.sequence or any(
            snapshot.sequence == here.sequence and snapshot.position.digest != here.digest
            for snapshot in manifest.snapshots
        )

    def _checked_epoch(self, found: Encoded) -> Encoded:
        if found.record.epoch > self.manifest.epoch:
            raise CorruptData(
                f"{self._layout.manifest} has epoch {self.manifest.epoch} but log record {found.record.sequence} has epoch "
                f"{found.record.epoch}: expected MANIFEST to be at least as new; an old one was put back, restore the newest",
                code="went_back",
            )
        return found

    def _apply(self, found: Encoded) -> Steps[None]:
        yield Apply(found.record, found.position)
        self.position = found.position
        if found.record.kind.is_barrier:
            self._barriers.add(found.record.sequence)

    # -- take-over

    def check_end(self) -> Steps[bool]:
        """Return whether the log ends at `position`; False: it grew, or was collected. Raises CorruptData for a hole."""
        first_free = self._layout.record(self.position.next_sequence)
        page = yield from steps.list_page(self._layout.log, self._layout.record(self.position.sequence))
        if not page.keys:
            self._check_reaches_snapshot()
            return True
        if page.keys[0] != first_free and not (yield from self._was_collected_or_filled(first_free)):
            raise CorruptData(
                f"log record {first_free} is missing although {page.keys[0]} exists: expected no gap; restore it from a "
                f"backup, or the corpus up to {self.position.sequence} into a new incarnation",
                code="log_gap",
            )
        return False

    def _follow_to_end(self) -> Steps[None]:
        """Follow until nothing lies behind the last record, or as near to that as a writer at work lets us come.

        Each round has met the end of the log as it was then. What a busy writer adds meanwhile the barrier finds in its
        place, and applies. Raises CorruptData for a hole in the log.
        """
        for _ in range(_MAX_RESTARTS):
            yield from self.follow()
            if (yield from self.check_end()):
                return

    def _was_collected_or_filled(self, key: str) -> Steps[bool]:
        found = yield from steps.get(key)
        yield from self.cell.refresh()
        return not isinstance(found, Absent) or self._is_off_log()

    def _check_reaches_snapshot(self) -> None:
        newest = self.manifest.newest_sequence
        if self.position.sequence < newest:
            raise CorruptData(
                f"the log ends at {self.position.sequence}: expected it to reach the newest snapshot at {newest}; restore the "
                "missing log records or the snapshot's files from a backup",
                code="log_gap",
            )

    def _check_witness(self, witness: Witness | None, accepted: Seq | None) -> Override | None:
        if witness is None:
            return None
        found = Witness(self.manifest.epoch, self.position.sequence)
        return required_override(self._layout.prefix, found, witness, accepted)

    def _raise_epoch(self, override: Override | None) -> Steps[Epoch]:
        lost_epoch = override.witness_epoch if override else 0
        seen, own = self.manifest, self.cell.identity.writer_id
        if self._contended not in (None, seen.epoch) and seen.writer_id != own:
            raise _lost_race(seen.epoch, seen.epoch - 1)

        def decide(base: Manifest) -> Manifest:
            if base.epoch != seen.epoch and base.writer_id != own:  # an own try may arrive late
                raise _lost_race(base.epoch, seen.epoch)
            return msgspec.structs.replace(base, epoch=Epoch(max(base.epoch, lost_epoch) + 1))

        before, self._contended = self._contended, seen.epoch
        try:
            return (yield from self.cell.change(decide)).epoch
        except OutcomeUnknown:
            raise
        except Unavailable:
            self._contended = before  # certainly not raised
            raise

    def _place_barrier(self, epoch: Epoch, override: Override | None) -> Steps[Encoded]:
        """Create the barrier at the first free sequence, applying the records of the old writer that came first."""
        while True:
            if self.position.epoch > epoch:
                raise _lost_race(self.position.epoch, epoch)
            if override is not None and override.accepted_sequence != self.position.sequence:
                raise Superseded(
                    f"{self._layout.log} grew to {self.position.sequence}: expected it to end at {override.accepted_sequence}, "
                    "the loss after which was accepted; another process is active, stop it first"
                )
            barrier = codec.encode(
                Record(
                    kind=Kind.OVERRIDE if override else Kind.BARRIER,
                    epoch=epoch,
                    sequence=self.position.next_sequence,
                    incarnation=self._incarnation,
                    previous=self.position.digest,
                    payload=override_codec.encode(override) if override else b"",
                )
            )
            key = self._layout.record(barrier.record.sequence)
            foreign = yield from steps.create(key, barrier.data)
            if foreign is None:
                return barrier
            yield from self._apply((yield from self._judge_foreign(foreign, key, epoch)))

    def _judge_foreign(self, data: bytes, key: str, epoch: Epoch) -> Steps[Encoded]:
        """Return the record that took the barrier's place; one that does not fit is damage only if the epoch is still ours."""
        try:
            found = self._decode(data, key)
        except CorruptData:
            yield from self._check_still_ours(epoch)
            raise
        return found

    def _confirm(self, epoch: Epoch, barrier: Encoded) -> Steps[None]:
        """Make sure that no newer writer was at work, and collected behind us, while we placed the barrier."""
        manifest = yield from self._check_still_ours(epoch)
        if barrier.record.sequence <= manifest.newest_sequence:
            raise Superseded(
                f"barrier {barrier.record.sequence} lies below the newest snapshot at {manifest.newest_sequence}: expected "
                "it above; another writer is active, leave the corpus to that one"
            )

    def _check_still_ours(self, epoch: Epoch) -> Steps[Manifest]:
        manifest = yield from self.cell.refresh()
        if (manifest.epoch, manifest.writer_id) != (epoch, self.cell.identity.writer_id):
            raise _lost_race(manifest.epoch, epoch)
        return manifest


def _nothing_to_restore(manifest: Manifest, until: Seq | None, key: str) -> InvalidInput | CorruptData:
    if until is not None and until < manifest.log_floor:
        return InvalidInput(
            f"sequence {until}: expected {manifest.log_floor} or more, the oldest that {key} keeps; name a later one",
            code="sequence_collected",
            field="until",
        )
    return CorruptData(
        f"none of the {len(manifest.snapshots)} snapshots in {key} verifies: expected at least one; restore the snapshot "
        "files from a backup",
        code="no_snapshot",
    )


def _lost_race(found: int, expected: int) -> Superseded:
    return Superseded(
        f"the corpus has epoch {found}: expected {expected}, another process took over; leave it to that one"
    )
