"""The writer of one incarnation: appends, publishes snapshots, records identities in MANIFEST, collects.

Append (I1-I4): one record is in flight at a time; it is created under the next sequence, settled, applied, and only then
`Committed`. What ends an append otherwise:

    Unavailable      certainly nothing was stored; the writer goes on, the same sequence is used again
    OutcomeUnknown   it may have been stored; this writer is finished, `Replica.open` and `take_over` again
    Superseded       the sequence holds another writer's record; the process stops writing for good. To whoever waits
                     for the write this too is an unknown outcome: it may have been stored and collected since
    CorruptData      the sequence holds bytes that are no record

An append that is cut off (cancelled, `Apply` failed) leaves the writer finished as well. MANIFEST may be changed while
an append is under way. Every change requires that the epoch is still ours.
"""

from typing import Any
from uuid import UUID

import msgspec

from groundplane.errors import CorruptData, GroundplaneError, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import collecting, publishing, steps
from groundplane_shard.log import record as codec
from groundplane_shard.log.cell import ManifestCell
from groundplane_shard.log.layout import Epoch, Seq, upload_id
from groundplane_shard.log.manifest import Manifest, Snapshot
from groundplane_shard.log.operations import Apply, LocalFile, Steps
from groundplane_shard.log.publishing import Standing
from groundplane_shard.log.record import NO_EMBEDDING, Encoded, Kind, Position, Record

MAX_EMBEDDINGS = 8


class Committed(msgspec.Struct, frozen=True):
    """A record that is durable in the log and applied."""

    sequence: Seq
    digest: bytes


class Writer:
    """The one process that appends; made by `Replica.take_over`. `position` is the last committed record."""

    def __init__(self, cell: ManifestCell, standing: Standing, position: Position) -> None:
        self.cell = cell
        self.position = position
        self._standing = standing
        self._layout = cell.identity.layout
        self._incarnation = UUID(self._layout.incarnation).bytes
        self._published: frozenset[str] = frozenset()  # upload ids of this writer that a stored MANIFEST listed
        self._in_flight: Seq | None = None
        self._stop: GroundplaneError | None = None
        self._lost: Superseded | None = None  # found out while MANIFEST was changed; stays, whatever an append does

    @property
    def epoch(self) -> Epoch:
        """The epoch of this writer's records."""
        return self._standing.epoch

    @property
    def manifest(self) -> Manifest:
        """MANIFEST as last read or written."""
        return self.cell.manifest

    @property
    def stopped(self) -> GroundplaneError | None:
        """Why this writer appends no more; None while it does."""
        return self._lost or (None if self._in_flight is not None else self._stop)

    def append(
        self, payload: bytes, *, embedding_id: bytes = NO_EMBEDDING, kind: Kind = Kind.BATCH
    ) -> Steps[Committed]:
        """Log one batch or switch, apply it, and return where it stands. See the module for what each error means."""
        self._check_can_append()
        batch = self._next_record(kind, payload, embedding_id)
        self._in_flight = batch.record.sequence
        self._stop = _cut_off(batch)  # what stays if this generator is closed, or fails, before its end
        try:
            yield from self._store(batch)
            yield Apply(batch.record, batch.position)
            self.position = batch.position
            self._stop = None
        finally:
            self._in_flight = None
        return Committed(batch.record.sequence, batch.position.digest)

    def publish_snapshot(
        self, files: tuple[LocalFile, ...], position: Position, *, token: str, taken_at: float | None = None
    ) -> Steps[Snapshot]:
        """Upload the files of a frozen table, verify them all, and list them in MANIFEST.

        `position` is the one that `Apply` or `Restore` gave the state that was frozen, never the log's head at the time
        of the call. `token` is fresh random hex for every call, `taken_at` what the clock says. Raises Superseded, Unavailable (not published),
        InvalidInput (not newer than the newest snapshot), OutcomeUnknown (repeat with a new token), CorruptData (an upload
        does not verify).
        """
        upload = upload_id(self.epoch, token)
        plan = publishing.Plan(self._layout, upload, position, files, self._standing, taken_at)
        snapshot = yield from publishing.publish(self.cell, plan, self._check_ours)
        self._published |= {upload}
        return snapshot

    def register_embedding(self, embedding: dict[str, Any]) -> Steps[Manifest]:
        """Fix the embedding identity, a JSON object with an `id`, by the first write; the same again changes nothing."""
        if not isinstance(embedding.get("id"), str):
            raise InvalidInput("embedding identity has no id: expected a JSON object with a textual id", field="id")

        def decide(base: Manifest) -> Manifest:
            self._check_ours(base)
            if not base.embeddings:
                return msgspec.structs.replace(base, embeddings=(embedding,))
            if any(known.get("id") == embedding["id"] for known in base.embeddings):
                return base
            raise InvalidInput(
                f"embedding {embedding['id']!r}: expected {base.embeddings[-1].get('id')!r}, with which this corpus was written; "
                "reindex the corpus to change it",
                code="embedding_mismatch",
                status=409,
            )

        return self.cell.change(decide)

    def add_embedding(self, embedding: dict[str, Any], *, in_use: frozenset[str]) -> Steps[Manifest]:
        """List a further embedding identity, which switch records will name; one that is listed changes nothing.

        Of more than `MAX_EMBEDDINGS` the oldest goes that is not `in_use`: what only a kept snapshot still needs may be
        restored as long as fewer changes than that came after it.
        """

        def decide(base: Manifest) -> Manifest:
            self._check_ours(base)
            if any(known["id"] == embedding["id"] for known in base.embeddings):
                return base
            listed = [*base.embeddings, embedding]
            idle = [known for known in base.embeddings if known["id"] not in in_use]
            if len(listed) > MAX_EMBEDDINGS and idle:
                listed.remove(idle[0])
            return msgspec.structs.replace(base, embeddings=tuple(listed))

        return self.cell.change(decide)

    def register_analyser(self, analyser_id: str) -> Steps[Manifest]:
        """Fix the analyser's id by the first write; the same again changes nothing. Raises InvalidInput for another."""

        def decide(base: Manifest) -> Manifest:
            self._check_ours(base)
            if base.analyser_id is None:
                return msgspec.structs.replace(base, analyser_id=analyser_id)
            if base.analyser_id == analyser_id:
                return base
            raise InvalidInput(
                f"analyser {analyser_id!r}: expected {base.analyser_id!r}, with which this corpus was written; use that one",
                code="analyser_mismatch",
                status=409,
            )

        return self.cell.change(decide)

    def confirm(self) -> Steps[None]:
        """Return if no other process has taken over up to now. Raises Superseded, Unavailable."""
        self._check_ours((yield from self.cell.refresh()))

    def collect(self) -> Steps[int]:
        """Delete what no kept snapshot needs; return how many objects. May be cut off and repeated at any point."""
        judged = collecting.Judgement(self._layout, self.manifest, self.epoch, self._published)
        return collecting.collect(judged)

    def _check_can_append(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._in_flight is not None:
            raise Unavailable(
                f"log record {self._in_flight} is in flight: expected one at a time; append after it",
                code="append_in_flight",
            )
        if self._stop is not None:
            raise self._stop

    def _next_record(self, kind: Kind, payload: bytes, embedding_id: bytes) -> Encoded:
        return codec.encode(
            Record(
                kind=kind,
                epoch=self.epoch,
                sequence=self.position.next_sequence,
                incarnation=self._incarnation,
                previous=self.position.digest,
                embedding_id=embedding_id,
                payload=payload,
            )
        )

    def _store(self, batch: Encoded) -> Steps[None]:
        key = self._layout.record(batch.record.sequence)
        try:
            foreign = yield from steps.create(key, batch.data)
        except OutcomeUnknown:
            raise
        except Unavailable:
            self._stop = None  # certainly not stored: the sequence is still free
            raise
        if foreign is not None:
            self._stop = _judge_foreign(foreign, key)
            raise self._stop

    def _check_ours(self, base: Manifest) -> None:
        if (base.epoch, base.writer_id) != (self.epoch, self.cell.identity.writer_id):
            self._lost = _superseded(f"epoch {base.epoch} of writer {base.writer_id}", f"epoch {self.epoch}")
            raise self._lost


def _cut_off(batch: Encoded) -> Unavailable:
    return Unavailable(
        f"log record {batch.record.sequence} was cut off: expected it to be stored and applied; open the replica again",
        code="append_unfinished",
    )


def _judge_foreign(data: bytes, key: str) -> GroundplaneError:
    try:
        found = codec.decode_unchained(data, key=key)
    except CorruptData as error:
        return error
    return _superseded(f"log record {found.record.sequence} of epoch {found.record.epoch}", "this writer's own")


def _superseded(found: str, expected: str) -> Superseded:
    return Superseded(f"found {found}: expected {expected}; another process took over, leave the corpus to that one")
