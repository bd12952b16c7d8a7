"""Several processes of one or two incarnations over a simulated store, and a scheduler that decides everything by seed.

One step lets one lane of one process do the one operation it waits for. On the way the operation may meet the faults of
`faults`, or its process may freeze or crash. Equal seeds give equal traces. Bytes on the store are damaged only where a
fault says so; elsewhere a `CorruptData` is a violation.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from groundplane.errors import CorruptData
from groundplane_shard.log import Position
from groundplane_shard.log import operations as ops
from tests.simulation.channel import LATE, Channel
from tests.simulation.contents import fresh_payload, unpack
from tests.simulation.coverage import Coverage
from tests.simulation.dialogue import Dialogue, Lane
from tests.simulation.faults import KINDS, Rates
from tests.simulation.lanes import log_lane, manifest_lane, staged_path
from tests.simulation.model import Violation
from tests.simulation.process import Corpus, Process
from tests.simulation.store import SimulatedStore


class World:
    """Everything that exists in one run."""

    def __init__(self, seed: int, *, on_trace: Callable[[str], None] | None = None, coverage: Coverage | None = None):
        self.seed = seed
        self.rng = random.Random(seed)
        self.rates = Rates(self.rng)
        self.store = SimulatedStore()
        self.channel = Channel(self)
        self.local_files: dict[str, bytes] = {}
        self.corpora = [Corpus(1, self.store)]
        self.processes: list[Process] = []
        self.late: list[tuple[ops.Operation, Process]] = []
        self.store_operations = 0
        self.step_number = 0
        self.events: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.writers: set[str] = set()
        self.outage_until = 0
        self._names = 0
        self._payloads = 0
        self._on_trace = on_trace
        self._coverage = coverage

    # -- one step

    def run(self, *, until_store_operations: int) -> None:
        """Make steps until so many operations were asked of the store."""
        while self.store_operations < until_store_operations:
            self.step()

    def step(self) -> None:
        """Let one lane of one process that is not frozen do one operation."""
        self.step_number += 1
        rng = self.rng
        if self.late and rng.random() < 0.02:
            self.channel.perform(*self.late.pop(rng.randrange(len(self.late))), LATE)
        ready = [process for process in self.processes if process.frozen_until <= self.step_number]
        if not ready:
            self.step_number = min(process.frozen_until for process in self.processes)
            return
        process = ready[int(rng.random() * len(ready))]
        busy = 0.2 if process.writer is None else 0.6  # how often the second lane is the one to go on
        index = int(rng.random() < busy and len(process.lanes) > 1)
        lane, operation, answer = process.lanes[index]
        fate = rng.random()
        if answer is not None:
            if fate < self.rates.freeze:
                self.freeze(process)
                return
        else:
            answer = self.perform_with_faults(operation, process)
            if process.writer is None and isinstance(operation, ops.List):
                fate /= self.rates.at_barrier
            if fate < self.rates.crash:
                self._crash(process)
                return
            if fate < self.rates.crash + self.rates.freeze:
                self.freeze(process)
                process.lanes[index] = (lane, operation, answer)
                return
        self._resume(process, index, lane, answer)

    def _resume(self, process: Process, index: int, lane: Dialogue, answer: Any) -> None:
        try:
            process.lanes[index] = (lane, lane.send(answer), None)
        except StopIteration:
            self.note(process, "process ends")
            self._replace(process)
        else:
            if self._coverage is not None:
                for chain in lane.chains():
                    self._coverage.note(chain)

    def freeze(self, process: Process) -> None:
        """Let a process sleep; what it was told before it will know when it wakes up."""
        process.frozen_until = self.step_number + self.rng.randrange(5, self.rates.longest_freeze)
        self.fault(process, "freeze")

    def _crash(self, process: Process) -> None:
        self.fault(process, "crash")
        for lane, operation, answer in process.lanes:
            if self._coverage is not None:
                for chain in lane.chains():
                    self._coverage.note_crash(chain)
            if answer is None and _is_change(operation) and self.rng.random() < 0.3:
                self.late.append((operation, process))  # it was on its way
        self._replace(process)

    # -- processes

    def start_process(self, corpus: Corpus) -> None:
        """Start one more ordinary process of this corpus."""
        process = Process(self.fresh_name(), corpus)
        self.add(process, log_lane(self, process), manifest_lane(self, process))

    def add(self, process: Process, *lanes: Lane) -> None:
        """Let a process run these lanes."""
        self.processes.append(process)
        dialogues = [Dialogue(lane, self.rng) for lane in lanes]
        process.lanes = [(dialogue, dialogue.begin(), None) for dialogue in dialogues]

    def end(self, process: Process) -> None:
        """Let a process end where it is."""
        for lane, _, _ in process.lanes:
            lane.close()
        self.processes.remove(process)

    def _replace(self, process: Process) -> None:
        self.end(process)
        if process.serves:
            self.start_process(process.corpus)

    def refused(self, process: Process, error: CorruptData) -> None:
        """A process does not go on because of what it found; a violation unless there was something to be found."""
        explained = (
            self.rates.is_misleading
            or not process.may_change
            or process.corpus.model.is_disturbed
            or (process.source is not None and process.source.model.is_disturbed)
            or ((process.source or process.corpus).is_accepting_loss and error.code == "behind_witness")
        )
        if not explained:
            raise Violation(f"I11 nothing was damaged, yet: {error.message}")
        self.note(process, f"refused: {error.code}", error.message)

    # -- names, counts, trace

    def fresh_name(self) -> str:
        """Return the name of a new process."""
        return f"w{self.fresh_token()[-4:]}"

    def fresh_token(self) -> str:
        """Return hex that was not used before."""
        self._names += 1
        return f"{self._names:08x}"

    def fresh_payload(self) -> bytes:
        """Return a payload that was not used before."""
        self._payloads += 1
        return fresh_payload(self.rng, self._payloads)

    def count(self, event: str, times: int = 1) -> None:
        """Note that something worth reaching was reached."""
        self.events[event] += times

    def note(self, process: Process, event: str, *details: object) -> None:
        """Count an event of a process and trace it."""
        self.events[event] += 1
        if self._on_trace is not None:
            self.trace(f"{process.name} {event} {' '.join(map(str, details))}")

    def fault(self, process: Process, kind: str) -> None:
        """Count a fault that a process meets and trace it."""
        self.faults[kind] += 1
        if self._on_trace is not None:
            self.trace(f"{process.name} meets: {kind}")

    def trace(self, text: str) -> None:
        """Add one line to the trace, if somebody reads it."""
        if self._on_trace is not None:
            self._on_trace(f"{self.step_number:5d} {text}")

    # -- operations

    def perform_with_faults(self, operation: ops.Operation, process: Process) -> ops.Result:
        """Answer an operation as this world does."""
        if type(operation) in KINDS:
            return self.channel.ask(operation, process)
        return self._perform_effect(operation, process)

    def _perform_effect(self, operation: ops.Operation, process: Process) -> ops.Result:
        match operation:
            case ops.Pause():
                return ops.Resumed()
            case ops.Foresee():
                return ops.Foreseen()
            case ops.Restore():
                return self._restore(operation, process)
            case ops.Apply(record, position):
                before = process.position
                if record.kind == 1:
                    process.contents.apply(record.payload)
                process.position = position
                process.corpus.model.applied(record, before, process.contents)
                return ops.Applied()
        raise TypeError(operation)

    def _restore(self, operation: ops.Restore, process: Process) -> ops.Result:
        snapshot = operation.snapshot
        files = snapshot.files if snapshot else ()
        layout = (process.source or process.corpus).layout
        contents = [self.store.bytes_of(layout.object(file.key)) or b"" for file in files]
        is_intact = all(
            self.store.digest(content) == file.sha256 for content, file in zip(contents, files, strict=True)
        )
        self.note(process, "restore" if is_intact else "damaged snapshot", snapshot.sequence if snapshot else 0)
        if not is_intact:
            return ops.Damaged("other bytes")
        if process.source is not None:
            for content, file in zip(contents, files, strict=True):
                self.local_files[staged_path(process, file)] = content
            return ops.Restored()
        process.is_opening = False
        process.contents = unpack(contents)
        process.position = snapshot.position if snapshot else Position()
        return ops.Restored()


def _is_change(operation: ops.Operation) -> bool:
    return isinstance(operation, ops.Create | ops.Replace | ops.Upload | ops.Delete)
