"""How many seeds of the log protocol's simulation one core runs: the price of trying a million histories."""

from collections.abc import Mapping

from bench.measure import Figure, across
from bench.raw_measures import Measure
from bench.workbench import Workbench
from tests.simulation.runs import run_seeds

SEEDS = 1_000


def measure_simulation(bench: Workbench) -> Mapping[str, Figure]:
    """Run 1,000 seeds a round in this process, and divide by its own CPU time: other work on the machine does not count."""
    rates = []
    for number in range(bench.plan.rounds):
        outcome = run_seeds(range(number * SEEDS, (number + 1) * SEEDS))
        rates.append(outcome.seeds / outcome.cpu_seconds)
    return {"simulation_seeds_per_s": across(rates)}


MEASURES = (Measure(("simulation_seeds_per_s",), measure_simulation),)
