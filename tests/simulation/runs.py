"""Running seeds: one seed, many seeds, seeds with a planted fault."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable

from tests.simulation.model import Violation
from tests.simulation.planted import PLANTED
from tests.simulation.world import World

SEEDS = 2000
STORE_OPERATIONS = 300


def run_seed(seed: int, *, planted: str | None = None, on_trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Run one seed and return how often each event was reached. Raises Violation that names the replaying command."""
    world = World(seed, on_trace=on_trace)
    plant = PLANTED[planted] if planted else contextlib.nullcontext
    try:
        with plant():
            world.run(STORE_OPERATIONS)
    except Violation as error:
        command = f"python -m tests.simulation {seed}" + (f" --planted {planted}" if planted else "")
        raise Violation(f"seed {seed}: {error}\nreplay with: {command}") from error
    return Counter(world.events, **{"store operations": world.store_operations})


def run_seeds(seeds: Iterable[int]) -> Counter[str]:
    """Run the seeds and return how often each event was reached in all of them."""
    return sum((run_seed(seed) for seed in seeds), Counter())


def first_seed_that_finds(planted: str) -> tuple[int, str] | None:
    """Return the first seed that finds the planted fault, and the violation; None if no seed does."""
    for seed in range(SEEDS):
        try:
            run_seed(seed, planted=planted)
        except Violation as error:
            return seed, str(error).splitlines()[0].partition(": ")[2]
    return None
