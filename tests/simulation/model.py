"""What must be true of the log at every moment, checked from outside the protocol.

The model sees every object at the instant it is stored, every record a process applies and every answer a caller gets.
`truth` is the log: the first object stored under each sequence. It knows no more of the protocol than the invariants
I1 to I8, so it can be wrong only together with them.
"""

from typing import Any

from groundplane_shard.log import Layout, Manifest, Position, Record
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log.record import Encoded, Kind, decode_unchained


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number."""


def require(holds: bool, claim: str, *values: Any) -> None:
    """Raise Violation unless the claim holds."""
    if not holds:
        raise Violation(f"{claim}: {', '.join(map(repr, values))}")


class Model:
    """The log as it is, what callers were told, and what MANIFEST said last."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.truth: list[Encoded] = []
        self.payloads: list[bytes] = []  # of the batches in `truth`, in order
        self.payloads_until: list[int] = [0]  # by sequence: how many batches there are up to it
        self.manifest: Manifest | None = None
        self.attempted: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.acknowledged: dict[bytes, int] = {}
        self.highest_acknowledged = 0

    # -- what the store sees

    def created(self, key: str, data: bytes) -> bool:
        """A log object was stored under a key that was free; return whether it became part of the log."""
        found = decode_unchained(data, key=key)
        record = found.record
        if record.sequence <= len(self.truth):
            return False  # a late request put something where a record was collected; whoever believes in it is caught
        require(record.sequence == len(self.truth) + 1, "I3 the log has no gaps", record.sequence, len(self.truth))
        before = self.truth[-1].position if self.truth else Position()
        require(record.epoch >= before.epoch, "I5 epochs never fall along the log", record.epoch, before.epoch)
        require(record.previous == before.digest, "I3 records follow each other", record.sequence)
        self.truth.append(found)
        if record.kind is Kind.BATCH:
            require(record.payload in self.attempted, "I1 nothing is invented", record.payload)
            require(
                record.payload not in self.failed,
                "I4 a write that was reported as failed is not stored",
                record.payload,
            )
            require(record.payload not in self.payloads, "I2 a write is logged once", record.payload)
            self.payloads.append(record.payload)
        self.payloads_until.append(len(self.payloads))
        return True

    def manifest_changed(self, data: bytes, objects: dict[str, bytes]) -> None:
        """MANIFEST has a new version."""
        new, old = manifest_codec.decode(data, key="MANIFEST"), self.manifest
        if old is not None:
            require(
                new.counter == old.counter + 1, "I7 every version is based on the one before", old.counter, new.counter
            )
            require(new.epoch >= old.epoch, "I5 the epoch in MANIFEST never falls", old.epoch, new.epoch)
            require(new.log_floor >= old.log_floor, "I6 the floor never falls", old.log_floor, new.log_floor)
        known = {snapshot.upload_id for snapshot in old.snapshots} if old else set()
        for snapshot in new.snapshots:
            if snapshot.upload_id not in known:
                contents = [objects.get(self.layout.object(file.key)) for file in snapshot.files]
                require(None not in contents, "I8 a listed file is stored", snapshot.upload_id)
                self.check_state(
                    snapshot.position,
                    unpack([content or b"" for content in contents]),
                    "I8 a snapshot holds what its label says",
                )
        self.manifest = new

    def deleted(self, key: str, objects: dict[str, bytes]) -> None:
        """An object is about to be deleted."""
        if self.manifest is None or key not in objects:
            return
        oldest = self.manifest.snapshots[0].sequence if self.manifest.snapshots else 0
        sequence = self.layout.sequence_of(key)
        if sequence is not None:
            require(sequence <= oldest, "I6 records above the oldest kept snapshot stay", sequence, oldest)
        else:
            name = key.removeprefix(self.layout.prefix)
            require(name not in self.manifest.listed_names(), "I8 a listed file is not deleted", name)

    # -- what a process does

    def applied(self, record: Record, state_sequence: int) -> None:
        """A process whose state holds `state_sequence` applies a record."""
        require(record.sequence == state_sequence + 1, "I3 records apply in order", record.sequence, state_sequence)
        require(
            record.sequence <= len(self.truth), "I1 nothing becomes visible that is not in the log", record.sequence
        )
        if record.kind is Kind.BATCH:
            true = self.truth[record.sequence - 1].record
            require(record.payload == true.payload, "I2 replay gives what the first run gave", record.sequence)

    def check_state(self, position: Position, payloads: list[bytes], claim: str) -> None:
        """A state that claims to hold the log up to `position` holds exactly that."""
        require(0 <= position.sequence <= len(self.truth), claim, position.sequence, len(self.truth))
        if position.sequence:
            require(position.digest == self.truth[position.sequence - 1].position.digest, claim, position.sequence)
        require(payloads == self.payloads[: self.payloads_until[position.sequence]], claim, position.sequence, payloads)

    # -- what a caller is told

    def invoked(self, payload: bytes) -> int:
        """A caller asks for a write; returns what `acknowledge` needs to check the order."""
        self.attempted.add(payload)
        return self.highest_acknowledged

    def fail(self, payload: bytes) -> None:
        """The caller is told that the write certainly did not happen."""
        require(payload not in self.payloads, "I4 a stored write is not reported as failed", payload)
        self.failed.add(payload)

    def acknowledge(self, payload: bytes, sequence: int, visible: bytes | None, acknowledged_before: int) -> None:
        """The caller is told that the write is durable. `visible` is the last payload in the acknowledging state."""
        require(sequence <= len(self.truth), "I1 an acknowledged write is in the log", payload, sequence)
        require(
            self.truth[sequence - 1].record.payload == payload,
            "I2 an acknowledged write is in the log",
            payload,
            sequence,
        )
        require(visible == payload, "I1 an acknowledged write is applied", payload, visible)
        require(
            sequence > acknowledged_before,
            "I3 writes keep the order in which they were acknowledged",
            sequence,
            acknowledged_before,
        )
        self.acknowledged[payload] = sequence
        self.highest_acknowledged = max(self.highest_acknowledged, sequence)

    def check_end(self, position: Position, payloads: list[bytes]) -> None:
        """A fresh process that read everything holds the whole log, and with it every acknowledged write once."""
        require(
            position.sequence == len(self.truth),
            "I2 a fresh process reads the whole log",
            position.sequence,
            len(self.truth),
        )
        self.check_state(position, payloads, "I2 a fresh process holds the whole log")
        for payload in self.acknowledged:
            require(payloads.count(payload) == 1, "I2 no acknowledged write is lost", payload)


PART_PAYLOADS = 6
PART_BYTES = 96


def pack(payloads: list[bytes]) -> list[bytes]:
    """Return the files of a state: parts of equal size, of which only the last changes from snapshot to snapshot."""
    starts = range(0, max(len(payloads), 1), PART_PAYLOADS)
    return [b" ".join(payloads[start : start + PART_PAYLOADS]).ljust(PART_BYTES, b"\n") for start in starts]


def unpack(files: list[bytes]) -> list[bytes]:
    """Return the state that lies in the files, given in the order of their paths."""
    return [payload for file in files for payload in file.split()]
