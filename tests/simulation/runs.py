"""Running seeds: one seed, many seeds on all cores, seeds with a planted fault."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.coverage import Coverage
from tests.simulation.model import Violation
from tests.simulation.planted import PLANTED
from tests.simulation.scenario import Scenario

SEEDS = 2000
CHUNK = 100
COVERAGE_EVERY = 10  # seeds: counting steps costs a third of the time


class Outcome:
    """What a number of seeds did and found."""

    def __init__(self) -> None:
        self.seeds = 0
        self.store_operations = 0
        self.acknowledgements = 0
        self.cpu_seconds = 0.0
        self.fewest_store_operations = 0
        self.fewest_writers = 0
        self.fewest_fault_kinds = 0
        self.events: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.coverage = Coverage()
        self.violations: list[str] = []

    def add(self, other: "Outcome") -> None:
        """Add what other seeds did."""
        for name in ("fewest_store_operations", "fewest_writers", "fewest_fault_kinds"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, min(mine, theirs) if self.seeds and other.seeds else max(mine, theirs))
        self.seeds += other.seeds
        self.store_operations += other.store_operations
        self.acknowledgements += other.acknowledgements
        self.cpu_seconds += other.cpu_seconds
        self.events += other.events
        self.faults += other.faults
        self.coverage.add(other.coverage)
        self.violations += other.violations


def run_seed(
    seed: int, *, planted: str | None = None, on_trace: Callable[[str], None] | None = None, covers: bool = False
) -> Outcome:
    """Run one seed and return what it did. Raises Violation that names the replaying command."""
    outcome = Outcome()
    scenario = Scenario(seed, on_trace=on_trace, coverage=outcome.coverage if covers else None)
    plant = PLANTED[planted] if planted else contextlib.nullcontext
    try:
        with plant():
            scenario.run()
    except Violation as error:
        command = f"python -m tests.simulation {seed}" + (f" --planted {planted}" if planted else "")
        raise Violation(f"seed {seed}: {error}\nreplay with: {command}") from error
    world = scenario.world
    outcome.seeds = 1
    outcome.store_operations = outcome.fewest_store_operations = world.store_operations
    outcome.fewest_writers, outcome.fewest_fault_kinds = len(world.writers), len(world.faults)
    outcome.acknowledgements = sum(corpus.model.checked_acknowledgements for corpus in world.corpora)
    outcome.events, outcome.faults = world.events, world.faults
    return outcome


def run_seeds(seeds: Iterable[int]) -> Outcome:
    """Run the seeds and return what all of them did; violations are listed, not raised."""
    whole, begun = Outcome(), time.process_time()
    for seed in seeds:
        try:
            whole.add(run_seed(seed, covers=seed % COVERAGE_EVERY == 0))
        except Violation as error:
            whole.violations.append(str(error))
    whole.cpu_seconds = time.process_time() - begun
    return whole


def run_in_parallel(first: int, count: int, *, jobs: int) -> Iterator[Outcome]:
    """Run `count` seeds from `first` on `jobs` processes; yield what each chunk did, as soon as it is known, in order."""
    starts = range(first, first + count, CHUNK)
    chunks = [range(start, min(start + CHUNK, first + count)) for start in starts]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_seeds, chunks)


def first_seed_that_finds(planted: str, *, seeds: int = SEEDS) -> tuple[int, str] | None:
    """Return the first seed that finds the planted fault, and the violation; None if no seed does."""
    for seed in range(seeds):
        try:
            run_seed(seed, planted=planted)
        except Violation as error:
            return seed, str(error).splitlines()[0].partition(": ")[2]
    return None
