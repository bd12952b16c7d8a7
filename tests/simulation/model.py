"""What must be true of one incarnation's log at every moment, checked from outside the protocol.

The model sees every object at the instant it is stored, every record a process applies and every answer a caller gets.
The truth is the log: the first object stored under each sequence. It knows no more of the protocol than the invariants
I1 to I12, so it can be wrong only together with them.
"""

from typing import Any

from groundplane_shard.log import Layout, Manifest, Position, Record, Seq, Witness
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import override as override_codec
from groundplane_shard.log.record import Encoded, Kind, decode_unchained
from tests.simulation.contents import Contents, History, unpack
from tests.simulation.store import SimulatedStore


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number."""


def require(holds: bool, claim: str, *values: Any) -> None:
    """Raise Violation unless the claim holds."""
    if not holds:
        raise Violation(f"{claim}: {', '.join(map(repr, values))}")


class Model:
    """The log as it is, what callers were told, and what MANIFEST said last."""

    def __init__(self, layout: Layout, store: SimulatedStore, origin: "Model | None" = None) -> None:
        self.layout = layout
        self.origin = origin  # of a restored incarnation; its records are checked when the copy is complete
        self.store = store
        self.positions = [Position()]  # by sequence
        self.payloads: list[bytes | None] = [None]  # by sequence; None: a barrier
        self.history = History()
        self.barriers: set[int] = set()
        self.logged: dict[bytes, int] = {}  # sequence of every batch
        self.manifest: Manifest | None = None
        self.versions: dict[bytes, int] = {}  # every MANIFEST that ever was, with its counter
        self.attempted: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.acknowledged: dict[bytes, int] = {}
        self.highest_acknowledged = 0
        self.checked_acknowledgements = 0
        self.is_disturbed = False  # the store lost objects; ends when the loss is accepted
        self.witness = Witness(0, 0)  # type: ignore[arg-type]  # plain numbers, as everywhere in the simulation
        self._raisers: set[str] = set()  # every process that ever raised the epoch
        self._copied: list[Encoded] = []

    @property
    def end(self) -> int:
        """Sequence of the last record."""
        return len(self.positions) - 1

    # -- what the store sees

    def created(self, key: str, data: bytes) -> bool:
        """A log object was stored under a key that was free; return whether it became part of the log."""
        found = decode_unchained(data, key=key)
        record = found.record
        if self.origin is not None and (self.manifest is None or self.manifest.is_unfinished):
            self._copied.append(found)
            return True
        if record.kind is Kind.OVERRIDE and record.sequence <= self.end:
            self._accept_loss(record)
        elif record.sequence <= self.end:
            return False  # a late request put something where a record was collected; whoever believes in it is caught
        require(record.sequence == self.end + 1, "I3 the log has no gaps", record.sequence, self.end)
        before = self.positions[-1]
        require(record.epoch >= before.epoch, "I5 epochs never fall along the log", record.epoch, before.epoch)
        require(record.previous == before.digest, "I3 records follow each other", record.sequence)
        if record.kind is Kind.BATCH:
            require(record.payload in self.attempted, "I1 nothing is invented", record.payload)
            require(
                record.payload not in self.failed,
                "I4 a write that was reported as failed is not stored",
                record.payload,
            )
            require(record.payload not in self.logged, "I2 a write is logged once", record.payload)
        self._append(found)
        return True

    def _append(self, found: Encoded) -> None:
        record = found.record
        payload = None
        if record.kind is Kind.BATCH:
            payload = record.payload
            self.logged[payload] = record.sequence
        else:
            self.barriers.add(record.sequence)
        self.positions.append(found.position)
        self.payloads.append(payload)
        self.history.append(payload)

    def _accept_loss(self, record: Record) -> None:
        """An override goes on from less than the log was: the rest is lost with somebody's consent."""
        said = override_codec.decode(record.payload, key="override")
        require(self.is_disturbed, "I12 an override is for a loss only", record.sequence)
        require(
            record.epoch > said.witness_epoch,
            "I12 the epoch rises above the lost one",
            record.epoch,
            said.witness_epoch,
        )
        require(
            said.accepted_sequence == record.sequence - 1,
            "I12 the override names where the log goes on",
            said,
            record.sequence,
        )
        self.is_disturbed = False
        self._cut(said.accepted_sequence)

    def _cut(self, sequence: int) -> None:
        del self.positions[sequence + 1 :], self.payloads[sequence + 1 :]
        self.history = self.history.cut(sequence)
        self.barriers = {barrier for barrier in self.barriers if barrier <= sequence}
        self.acknowledged = {payload: at for payload, at in self.acknowledged.items() if at <= sequence}
        self.highest_acknowledged = min(self.highest_acknowledged, sequence)

    def manifest_changed(self, data: bytes, seen_counter: int) -> None:
        """MANIFEST has a new version, made by a process that had seen `seen_counter`."""
        new, old = manifest_codec.decode(data, key="MANIFEST"), self.manifest
        require(
            old is not None or not self.versions, "I25 an existing prefix is never initialised again", new.writer_id
        )
        require(new.counter > seen_counter, "I12 no process goes back to an older MANIFEST", new.counter, seen_counter)
        if old is not None:
            require(
                new.counter == old.counter + 1, "I7 every version is based on the one before", old.counter, new.counter
            )
            require(new.epoch >= old.epoch, "I5 the epoch in MANIFEST never falls", old.epoch, new.epoch)
            require(new.log_floor >= old.log_floor, "I6 the floor never falls", old.log_floor, new.log_floor)
            require(
                new.epoch > old.epoch or new.writer_id == old.writer_id,
                "I5 only the writer of the epoch changes MANIFEST",
                old.writer_id,
                new.writer_id,
            )
            if new.epoch > old.epoch:
                contends_again = new.writer_id in self._raisers and old.writer_id != new.writer_id
                require(not contends_again, "I5 a superseded writer never contends again", new.writer_id)
                self._raisers.add(new.writer_id)
        if not self.is_disturbed:
            require(data not in self.versions, "I7 no two versions have equal bytes", new.counter)
            if old is not None and old.is_unfinished:
                self._complete_restore(new)
            self._check_new_snapshots(new, old)
        self.versions[data] = new.counter
        self.manifest = new

    def _check_new_snapshots(self, new: Manifest, old: Manifest | None) -> None:
        known = {snapshot.upload_id for snapshot in old.snapshots} if old else set()
        listed = old.listed_names() if old else frozenset()
        for snapshot in new.snapshots:
            if snapshot.upload_id in known:
                continue
            own = f"snapshots/{snapshot.upload_id}/"
            reused = [file.key for file in snapshot.files if not file.key.startswith(own)]
            require(listed.issuperset(reused), "I8 only files that the base lists are reused", reused)
            contents = [self.store.bytes_of(self.layout.object(file.key)) for file in snapshot.files]
            require(None not in contents, "I8 a listed file is stored", snapshot.upload_id)
            for content, file in zip(contents, snapshot.files, strict=True):
                require(self.store.digest(content or b"") == file.sha256, "I8 a snapshot is verified before", file.key)
            self.check_state(
                snapshot.position,
                unpack([content or b"" for content in contents]),
                "I8 a snapshot holds what its label says",
            )

    def _complete_restore(self, new: Manifest) -> None:
        """Compare the copy with the log that it was made of."""
        origin = self.origin
        end = new.restored_from.sequence if new.restored_from else None
        if origin is None or end is None:
            raise Violation("I9 a restore says where it came from and where it ends")
        base = new.newest_sequence
        self._copied.sort(key=lambda found: found.record.sequence)
        sequences = [found.record.sequence for found in self._copied]
        require(sequences == list(range(base + 1, end + 1)), "I9 a restore copies the log whole", base, sequences, end)
        self.positions, self.payloads = origin.positions[: base + 1], origin.payloads[: base + 1]
        self.history = origin.history.cut(base)
        self.logged = {payload: at for payload, at in origin.logged.items() if at <= base}
        for found in self._copied:
            same = found.record.payload == (origin.payloads[found.record.sequence] or found.record.payload)
            require(same and found.record.previous == self.positions[-1].digest, "I9 a restore copies records", found)
            self._append(found)
        self.barriers = {at for at in self.barriers if at > base}
        self.acknowledged = {payload: at for payload, at in origin.acknowledged.items() if at <= end}
        self.highest_acknowledged = max(self.acknowledged.values(), default=0)

    def deleted(self, key: str) -> None:
        """An object is about to be deleted."""
        if self.manifest is None or self.is_disturbed or self.store.bytes_of(key) is None:
            return
        oldest = self.manifest.snapshots[0].sequence if self.manifest.snapshots else 0
        sequence = self.layout.sequence_of(key)
        if sequence is not None:
            require(sequence <= oldest, "I6 records above the oldest kept snapshot stay", sequence, oldest)
            require(sequence <= self.manifest.log_floor, "I6 records above the floor stay", sequence)
            require(sequence not in self.barriers, "I6 barriers are never deleted", sequence)
        else:
            name = key.removeprefix(self.layout.prefix)
            require(name not in self.manifest.listed_names(), "I8 a listed file is not deleted", name)

    # -- what a process does

    def applied(self, record: Record, before: Position, contents: Contents) -> None:
        """A process whose state was `before` has applied a record."""
        require(record.sequence == before.sequence + 1, "I3 records apply in order", record.sequence, before.sequence)
        require(
            record.sequence <= self.end, "I1 nothing becomes visible that is not in the log", record.sequence, self.end
        )
        if record.kind is Kind.BATCH:
            true = self.history.at(record.sequence)
            require(
                record.payload == self.payloads[record.sequence],
                "I1 nothing becomes visible that is not in the log",
                record.sequence,
                record.payload,
            )
            require(contents.history == true.history, "I2 replay gives what the first run gave", record.sequence)

    def check_state(self, position: Position, contents: Contents, claim: str) -> None:
        """A state that claims to hold the log up to `position` holds exactly that."""
        require(0 <= position.sequence <= self.end, claim, position.sequence, self.end)
        require(position.digest == self.positions[position.sequence].digest, claim, position.sequence)
        true = self.history.at(position.sequence)
        require(contents.history == true.history, claim, position.sequence)
        require(contents.values == true.values, claim, position.sequence, contents.values, true.values)

    def taken_over(self, position: Position, epoch: int, witness: Witness, contents: Contents) -> None:
        """A process became the writer; `witness` is what it was given."""
        self.check_state(position, contents, "I2 a writer begins with the log's prefix")
        require(
            epoch > witness.epoch and (position.sequence > witness.sequence or position.sequence in self.barriers),
            "I12 a writer begins with all that the witness saw",
            position.sequence,
            witness,
        )

    # -- what a caller is told

    def invoked(self, payload: bytes) -> int:
        """A caller asks for a write; returns what `acknowledge` needs to check the order."""
        self.attempted.add(payload)
        return self.highest_acknowledged

    def fail(self, payload: bytes) -> None:
        """The caller is told that the write certainly did not happen."""
        require(payload not in self.logged, "I4 a stored write is not reported as failed", payload)
        self.failed.add(payload)

    def acknowledge(self, payload: bytes, sequence: Seq | int, contents: Contents, acknowledged_before: int) -> None:
        """The caller is told that the write is durable. `contents` is the acknowledging state."""
        require(sequence <= self.end, "I1 an acknowledged write is in the log", payload, sequence)
        require(self.payloads[sequence] == payload, "I2 an acknowledged write is in the log", payload, sequence)
        require(
            contents.history == self.history.at(sequence).history,
            "I1 an acknowledged write is applied",
            payload,
            sequence,
        )
        require(
            sequence > acknowledged_before,
            "I3 writes keep the order in which they were acknowledged",
            sequence,
            acknowledged_before,
        )
        self.acknowledged[payload] = sequence
        self.highest_acknowledged = max(self.highest_acknowledged, sequence)
        self.checked_acknowledgements += 1

    def saw(self, epoch: int, sequence: int) -> None:
        """Somebody outside the store notes how far the writer is; a higher epoch counts for more than a sequence."""
        seen = (self.witness.epoch, self.witness.sequence)
        if (epoch, sequence) > seen:
            self.witness = Witness(epoch, sequence)  # type: ignore[arg-type]  # plain numbers

    def check_end(self, position: Position, contents: Contents) -> None:
        """A fresh process that read everything holds the whole log, and with it every acknowledged write until deleted."""
        require(position.sequence == self.end, "I2 a fresh process reads the whole log", position.sequence, self.end)
        self.check_state(position, contents, "I2 a fresh process holds the whole log")
        newest: dict[bytes, bytes] = {}
        for payload, sequence in self.acknowledged.items():
            require(self.payloads[sequence] == payload, "I2 no acknowledged write is lost", payload, sequence)
            newest[payload[:2]] = payload
        for key, payload in newest.items():
            later = [other for other, at in self.logged.items() if other[:2] == key and at > self.acknowledged[payload]]
            holds = contents.values.get(key) == (payload if payload.endswith(b"+") else None)
            require(bool(later) or holds, "I2 an acknowledged document is seen until deleted", payload)
