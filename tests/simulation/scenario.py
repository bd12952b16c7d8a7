"""One seed from beginning to end: what happens to the corpora in it, and what must be true when all is quiet again."""

from collections.abc import Callable
from typing import Any

from groundplane.errors import CorruptData, Unavailable
from groundplane_shard.log import Replica
from groundplane_shard.log import manifest as manifest_codec
from groundplane_shard.log import operations as ops
from tests.simulation.channel import LATE
from tests.simulation.coverage import Coverage
from tests.simulation.dialogue import Dialogue
from tests.simulation.lanes import log_lane, restore_lane
from tests.simulation.model import Violation, require
from tests.simulation.process import Corpus, Process
from tests.simulation.world import World

STORE_OPERATIONS = 200
WRITERS = 3
FAULT_KINDS = 2
OPERATIONS_BETWEEN_EVENTS = 4
_MOST_STORE_OPERATIONS = 3000


class Scenario:
    """A world, and the one or two large things that happen in it."""

    def __init__(self, seed: int, *, on_trace: Callable[[str], None] | None = None, coverage: Coverage | None = None):
        self.world = World(seed, on_trace=on_trace, coverage=coverage)
        self.rng, self.rates = self.world.rng, self.world.rates
        self.first = self.world.corpora[0]
        self._disaster = self.rates.disaster
        self._second = self.rates.second_corpus
        self._stranger = self.rates.stranger
        self._rot = self.rng.random() < 0.15 and not self._disaster
        self._checkpoint_at = self.rng.randrange(40, 120)
        self._first_event_at = self.rng.randrange(30, 100)
        self._end_at = STORE_OPERATIONS

    def run(self) -> None:
        """Run until enough was asked of the store by enough writers, then check the end. Raises Violation."""
        world = self.world
        for _ in range(self.rates.processes):
            world.start_process(self.first)
        while world.store_operations < self._end_at or not self._has_seen_enough():
            world.run(until_store_operations=world.store_operations + OPERATIONS_BETWEEN_EVENTS)
            if world.store_operations >= self._checkpoint_at:
                self._take_checkpoint()
            if world.store_operations >= self._first_event_at:
                self._happen()
            if self.rng.random() < 0.15:
                self._let_the_operator_look()
        self._check_end()

    def _has_seen_enough(self, fault_kinds: int = FAULT_KINDS) -> bool:
        world = self.world
        enough = len(world.writers) >= WRITERS and len(world.faults) >= fault_kinds
        require(world.store_operations < _MOST_STORE_OPERATIONS, "liveness: the processes get nowhere", world.events)
        return enough

    # -- what happens

    def _let_the_operator_look(self) -> None:
        """Now and then somebody outside the store notes how far the writers are (I12)."""
        for process in self.world.processes:
            if process.writer is not None and process.writer.stopped is None:
                process.corpus.model.saw(process.writer.epoch, process.writer.position.sequence)

    def _take_checkpoint(self) -> None:
        self._checkpoint_at = self.world.store_operations + 25
        if self._disaster and self.first.model.manifest is not None:
            prefix = self.first.layout.prefix
            objects = {key: data for key, data in self.world.store.objects.items() if key.startswith(prefix)}
            self.first.checkpoints.append((objects, self.first.model.end))

    def _happen(self) -> None:
        """Let one of the large things happen that this seed has in store, if the time is right."""
        if self._second and self.first.model.end >= 3 and not (self._disaster and self._second == "corpus restored"):
            self._begin_second_corpus(self._second)
            self._second = ""
        elif self._stranger and self.first.model.manifest is not None:
            self._send_stranger(self._stranger)
            self._stranger = ""
        elif self._rot:
            self._rot = not self._rot_newest_snapshot()
        elif self._disaster:
            if self._has_seen_enough(fault_kinds=FAULT_KINDS - 1) and self._strike(self._disaster):
                self._disaster = ""
        elif self.first.model.is_disturbed and self.rng.random() < 0.1 and not self.first.is_accepting_loss:
            self._accept_loss()
        elif len(self.world.writers) < WRITERS and self.rng.random() < 0.12:
            self._pause_writers()
        self._serve_restored()

    def _pause_writers(self) -> None:
        """Let the writers sleep, so that others take over."""
        for process in self.world.processes:
            if process.writer is not None and process.frozen_until <= self.world.step_number:
                self.world.freeze(process)

    def _go_on_for(self, store_operations: int) -> None:
        """Let the run be long enough for what just happened to have consequences."""
        self._end_at = max(self._end_at, self.world.store_operations + store_operations)

    def _begin_second_corpus(self, how: str) -> None:
        """A new incarnation, while processes of the first go on: empty, or restored from the first."""
        world = self.world
        world.faults[how] += 1
        world.trace(how)
        self._go_on_for(80)
        if how == "corpus created again":
            second = Corpus(2, world.store)
            world.corpora.append(second)
            for _ in range(2):
                world.start_process(second)
            return
        second = Corpus(2, world.store, self.first)
        world.corpora.append(second)
        end = self.first.model.end
        until = self.rng.randrange(max(1, end - 5), end + 2) if self.rng.random() < 0.5 else None
        process = Process(world.fresh_name(), second, source=self.first)
        world.add(process, restore_lane(world, process, until))

    def _serve_restored(self) -> None:
        """Start processes of a restored corpus as soon as it has a MANIFEST, complete or not."""
        world = self.world
        for corpus in world.corpora[1:]:
            served = any(process.corpus is corpus and process.serves for process in world.processes)
            restoring = any(process.corpus is corpus and not process.serves for process in world.processes)
            manifest = corpus.model.manifest
            if manifest is None:
                continue
            if not served and (restoring or not manifest.is_unfinished):
                world.start_process(corpus)
            elif served and not restoring and manifest.is_unfinished:
                world.count("restore abandoned")
                for process in [process for process in world.processes if process.corpus is corpus]:
                    world.end(process)

    def _send_stranger(self, kind: str) -> None:
        """A process that has no business in this prefix: nothing may come of what it asks for."""
        world = self.world
        world.faults[kind] += 1
        if kind == "foreign owner":
            process = Process(world.fresh_name(), self.first, owner="somebody else", may_change=False)
            world.add(process, log_lane(world, process))
        else:
            process = Process(world.fresh_name(), self.first, source=self.first, may_change=False)
            world.add(process, restore_lane(world, process, None))

    def _rot_newest_snapshot(self) -> bool:
        """Let a file of the newest snapshot rot that no other one needs, where something older can replace it."""
        world, manifest = self.world, self.first.model.manifest
        if manifest is None or not manifest.snapshots or any(process.is_publishing for process in world.processes):
            return False
        if len(manifest.snapshots) < 2 and manifest.log_floor:
            return False
        older = {file.key for snapshot in manifest.snapshots[:-1] for file in snapshot.files}
        own = [file.key for file in manifest.snapshots[-1].files if file.key not in older]
        key = self.first.layout.object(self.rng.choice(own))
        world.store.objects[key] = b"rotten"
        world.faults["snapshot rotten"] += 1
        world.trace(f"{key} rots")
        return True

    # -- disasters

    def _strike(self, disaster: str) -> bool:
        """Let the store lose what it had; return whether there was something to lose.

        The witness has just been told of all of it: a loss above the witness is beyond what can be noticed.
        """
        model, layout, store = self.first.model, self.first.layout, self.world.store
        manifest = model.manifest
        if manifest is None:
            return False
        witnessed = (model.positions[-1].epoch, model.end)
        if disaster == "log tail lost":
            if manifest.newest_sequence >= model.end:
                return False
            first_lost = self.rng.randrange(manifest.newest_sequence + 1, model.end + 1)
            for sequence in range(first_lost, model.end + 1):
                store.remove(layout.record(sequence))
        elif disaster == "MANIFEST lost":
            store.remove(layout.manifest)
            model.manifest = None
        elif disaster == "old MANIFEST put back":
            older = list(model.versions)[:-1]
            is_of_this_writer = bool(older) and manifest_codec.decode(older[-1], key="").epoch == manifest.epoch
            if not older or (not is_of_this_writer and self.rng.random() < 0.95):
                return False  # most seeds wait until the writer itself cannot tell by the epoch
            self._put_manifest_back(older[-1] if self.rng.random() < 0.7 else self.rng.choice(older))
        else:
            usable = [objects for objects, end in self.first.checkpoints if end < model.end]
            if not usable or usable[-1][layout.manifest] == store.objects[layout.manifest]:
                return False
            self._put_bucket_back(self.rng.choice(usable))
        model.saw(*witnessed)
        self._after_disaster(disaster)
        return True

    def _put_bucket_back(self, objects: dict[str, bytes]) -> None:
        store, layout = self.world.store, self.first.layout
        for key in store.list_keys(layout.prefix, ""):
            if key not in objects:
                store.remove(key)
        for key, data in objects.items():
            store.put(key, data)
        self._put_manifest_back(objects[layout.manifest])

    def _put_manifest_back(self, data: bytes) -> None:
        self.world.store.put(self.first.layout.manifest, data)
        self.first.model.manifest = manifest_codec.decode(data, key="MANIFEST")

    def _after_disaster(self, disaster: str) -> None:
        """What was on its way to the store is gone with it. Followers and the newest writer may live on.

        Neither may who saw an empty prefix and is about to make its MANIFEST, nor an older writer: if the barrier that shuts it out is among what was lost, nothing can keep it from
        acknowledging a write that the next process refuses to build on. That is said in docs/durability.md.
        """
        world, model = self.world, self.first.model
        model.is_disturbed = True
        world.store.before.clear()  # no cache outlives what it is a cache of
        self._go_on_for(60)
        world.faults[disaster] += 1
        world.trace(disaster)
        world.late = [(operation, process) for operation, process in world.late if process.corpus is not self.first]
        for process in [process for process in world.processes if process.corpus is self.first and process.serves]:
            is_old = process.writer is not None and process.writer.epoch != model.positions[-1].epoch
            if process.is_taking_over or process.is_opening or is_old or self.rng.random() < 0.15:
                world.end(process)
                world.start_process(self.first)

    def _accept_loss(self) -> None:
        """Somebody stops every process of the corpus and says that it shall go on with what there is."""
        world = self.world
        self.first.is_accepting_loss = True
        self._go_on_for(60)
        world.late = [(operation, process) for operation, process in world.late if process.corpus is not self.first]
        ended = [process for process in world.processes if process.corpus is self.first]
        for process in ended:
            world.end(process)
        for _ in range(2):
            world.start_process(self.first)

    # -- the end

    def _check_end(self) -> None:
        """Let everything late arrive, then read all of it with fresh processes, once without the newest snapshot."""
        world = self.world
        for process in list(world.processes):
            world.end(process)
        world.rates.calm_down()
        world.outage_until = 0
        for operation, process in world.late:
            world.channel.perform(operation, process, LATE)
        for corpus in world.corpora:
            if not corpus.model.versions:
                continue
            has_spare = not corpus.is_accepting_loss and not world.faults["snapshot rotten"]
            if not self._check_fresh_process(corpus) or not has_spare:
                continue
            if self._rot_all_of_newest(corpus):
                self._check_fresh_process(corpus)

    def _rot_all_of_newest(self, corpus: Corpus) -> bool:
        manifest = corpus.model.manifest
        if manifest is None or not manifest.snapshots:
            return False
        has_spare = self.rates.keep > 1 and corpus.model.origin is None  # a fresh copy has one snapshot only
        if len(manifest.snapshots) < 2 and manifest.log_floor and not has_spare:
            return False
        older = {file.key for snapshot in manifest.snapshots[:-1] for file in snapshot.files}
        for file in manifest.snapshots[-1].files:
            if file.key not in older:
                self.world.store.objects[corpus.layout.object(file.key)] = b"rotten"
        return True

    def _check_fresh_process(self, corpus: Corpus) -> bool:
        """Return whether a fresh process could become the writer; what it must not is refuse without a reason."""
        world, model = self.world, corpus.model
        process = Process(world.fresh_name(), corpus)
        replica = Replica(process.identity(), keep_snapshots=self.rates.keep)
        witness = model.witness
        try:
            self._drive(replica.open(), process)
            writer = self._drive(replica.take_over(witness), process)
        except CorruptData as error:
            is_known = model.is_disturbed or (corpus.is_accepting_loss and error.code == "behind_witness")
            if not is_known:
                raise Violation(f"I2 a fresh process can read everything, yet: {error.message}") from error
            world.count(f"refused at the end: {error.code}")
            return False
        except Unavailable as error:
            is_unfinished = model.manifest is not None and model.manifest.is_unfinished
            require(is_unfinished and error.code == "restore_unfinished", "liveness: the store answers", error.message)
            world.count("unfinished restore refused at the end")
            return False
        model.taken_over(writer.position, writer.epoch, witness, process.contents)
        world.writers.add(process.name)
        payload = world.fresh_payload()
        before = model.invoked(payload)
        done = self._drive(writer.append(payload), process)
        model.acknowledge(payload, done.sequence, process.contents, before)
        model.check_end(writer.position, process.contents)
        return True

    def _drive(self, steps: ops.Steps[Any], process: Process) -> Any:
        dialogue = Dialogue(steps, self.world.rng)
        try:
            operation = dialogue.begin()
            while True:
                operation = dialogue.send(self.world.perform_with_faults(operation, process))
        except StopIteration as end:
            return end.value
