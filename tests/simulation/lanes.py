"""What processes do: generators that run the protocol and report to the model what callers would be told."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from groundplane.errors import CorruptData, InvalidInput, OutcomeUnknown, Superseded, Unavailable
from groundplane_shard.log import LocalFile, Position, Replica, Restoration, Seq, SnapshotFile, Witness, Writer, restore
from groundplane_shard.log import operations as ops
from tests.simulation.dialogue import Lane
from tests.simulation.model import require
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


def log_lane(world: "World", process: Process) -> Lane:
    """Follow for a while, take over, append until superseded."""
    replica = Replica(process.identity(), keep_snapshots=world.rates.keep)
    try:
        yield from until_available(replica.open)
        while world.rng.random() > world.rates.take_over:
            yield ops.Pause(1)
            yield from until_available(replica.follow)
        while True:
            writer = yield from take_over(world, process, replica)
            yield from _append_until_unknown(world, process, writer)
            process.writer = None
            yield from _find_out(world, process, replica)
    except Superseded as error:
        world.note(process, "superseded", error.message)
    except CorruptData as error:
        process.writer = None
        world.refused(process, error)


def _find_out(world: "World", process: Process, replica: Replica) -> Lane:
    """After an unknown outcome: go on from the state that is there, or build it afresh."""
    if world.rng.random() < 0.5:
        yield from until_available(lambda: replica.resume(process.position))
    else:
        yield from until_available(replica.open)


def take_over(world: "World", process: Process, replica: Replica) -> ops.Steps[Writer]:
    """Become the writer; where the store lost records and that may be accepted, accept it."""
    model = process.corpus.model
    process.is_taking_over = True
    while True:
        witness = model.witness
        try:
            writer: Writer = yield from replica.take_over(witness)
            break
        except Unavailable:
            yield ops.Pause(1)
        except CorruptData as error:
            if error.code != "behind_witness":
                raise
            world.note(process, "behind the witness", error.message)
            if not process.corpus.is_accepting_loss:
                raise
            writer = yield from _accept_loss(world, process, replica, witness)
            break
    process.is_taking_over = False
    model.taken_over(writer.position, writer.epoch, witness, process.contents)
    world.note(process, "take-over", f"writer of epoch {writer.epoch}")
    world.writers.add(process.name)
    process.writer = writer
    return writer


def _accept_loss(world: "World", process: Process, replica: Replica, witness: Witness) -> ops.Steps[Writer]:
    end = replica.position.sequence
    try:
        writer: Writer = yield from replica.take_over(witness, accept_data_loss=Seq(end + 1))
    except CorruptData as error:
        if error.code != "behind_witness":
            raise
    except Unavailable:
        pass
    else:
        grew = writer.position.sequence > end + 1  # another process accepted the same loss before
        require(grew, "I12 a loss is accepted by its sequence only", end + 1, end)
        return writer
    writer = yield from until_available(lambda: replica.take_over(witness, accept_data_loss=end))
    world.note(process, "loss accepted", f"after {end}")
    return writer


def _append_until_unknown(world: "World", process: Process, writer: Writer) -> Lane:
    model = process.corpus.model
    while True:
        payload = world.fresh_payload()
        before = model.invoked(payload)
        try:
            done = yield from writer.append(payload)
        except OutcomeUnknown:
            world.note(process, "outcome unknown", payload)
            if writer.stopped is not None:
                return
        except Unavailable:
            world.note(process, "write failed", payload)
            model.fail(payload)
        else:
            world.note(process, "acknowledged", payload, done.sequence)
            model.acknowledge(payload, done.sequence, process.contents, before)


def manifest_lane(world: "World", process: Process) -> Lane:
    """While this process is the writer: register identities, publish snapshots and collect, beside the appends."""
    while True:
        yield ops.Pause(1)
        writer = process.writer
        if (
            writer is None
            or writer.stopped is not None
            or process.position.sequence <= writer.manifest.newest_sequence + world.rates.records_per_snapshot
        ):
            continue
        try:
            if writer.manifest.analyser_id is None:
                yield from writer.register_analyser("words")
            yield from _confirm(world, process, writer)
            yield from _publish(world, process, writer)
            if world.rng.random() < 0.8:
                deleted = yield from writer.collect()
                world.count("collected objects", deleted)
        except Superseded:
            if process.writer is writer:
                world.count("superseded")
                return
        except (Unavailable, InvalidInput) as error:
            world.note(process, "not published", error.message)
        except CorruptData as error:
            if not _is_damaged_upload(world, process, error):
                world.refused(process, error)
                return


def _is_damaged_upload(world: "World", process: Process, error: CorruptData) -> bool:
    """Whether this is what this world may do to an upload, and was found out."""
    if error.code != "upload_damaged" or not world.rates.chances["upload damaged"]:
        return False
    world.note(process, "upload found damaged", error.message)
    return True


def _confirm(world: "World", process: Process, writer: Writer) -> Lane:
    """Now and then make sure of being the writer, as before an answer that must be the newest."""
    if world.rng.random() < 0.8 or world.rates.is_misleading:
        return
    manifest = process.corpus.model.manifest
    yield from writer.confirm()
    is_newest = manifest is None or manifest.epoch <= writer.epoch or process.corpus.model.is_disturbed
    require(is_newest, "I5 a superseded writer is not confirmed", process.name, writer.epoch)
    world.count("confirmed")


def _publish(world: "World", process: Process, writer: Writer) -> Lane:
    position = process.position
    files = _freeze_files(world, process, position)
    yield ops.Pause(1)  # the flush takes its time, writes go on
    process.is_publishing = True
    try:
        yield from writer.publish_snapshot(files, position, token=world.fresh_token())
    finally:
        process.is_publishing = False
    world.note(process, "snapshot", position.sequence)


def _freeze_files(world: "World", process: Process, position: Position) -> tuple[LocalFile, ...]:
    files = []
    for number, content in enumerate(process.contents.pack()):
        source = f"{process.name}/{position.sequence}/{number}"
        world.local_files[source] = content
        files.append(world.store.local_file(f"part-{number}", source, content))
    return tuple(files)


def restore_lane(world: "World", process: Process, until: int | None) -> Lane:
    """Copy the log of another incarnation into this one; what is refused or cut off is not tried again."""
    source = process.source or process.corpus
    known_before: int = source.model.witness.sequence
    if not source.model.is_disturbed and not world.rates.is_misleading:
        known_before = max(known_before, source.model.highest_acknowledged)
    wanted = Restoration(
        source=msgspec.structs.replace(process.identity(), layout=source.layout, owner=source.owner),
        target=process.identity(),
        until=None if until is None else Seq(until),
        witness=source.model.witness,
        token=world.fresh_token(),
        local_path=lambda file: staged_path(process, file),
    )
    try:
        manifest = yield from restore(wanted)
    except InvalidInput as error:
        world.note(process, f"restore refused: {error.code}", error.message)
        return
    except Unavailable as error:
        world.note(process, f"restore ended: {error.code}", error.message)
        return
    except CorruptData as error:
        if not _is_damaged_upload(world, process, error):
            world.refused(process, error)
        return
    end = manifest.restored_from.sequence if manifest.restored_from else None
    require(process.may_change, "I9 a prefix in use is not restored into", process.name)
    if until is None:
        require((end or 0) >= known_before, "I12 a restore holds what was known before it began", end, known_before)
    else:
        require(end == until, "I9 a restore ends at the sequence that was named", end, until)
    world.note(process, "restored into a new incarnation", end)


def staged_path(process: Process, file: SnapshotFile) -> str:
    """Return where a restoring process keeps a file of the snapshot that it restored last."""
    return f"{process.name}/staged/{file.path}"


def until_available(start: Callable[[], ops.Steps[Any]]) -> ops.Steps[Any]:
    """Start the dialogue again until the store answers, as a process at its start does."""
    while True:
        try:
            return (yield from start())
        except Unavailable:
            yield ops.Pause(1)
