"""Command line of the simulation, from the repository's root; `make simulate` runs the first form.

python -m tests.simulation --seeds 50000 --first-seed 0   run many seeds on all cores, and say what they covered
python -m tests.simulation 17                             run one seed and print its trace
python -m tests.simulation 17 --planted no-barrier        the same with a planted fault
python -m tests.simulation --table                        the first seed that finds each planted fault
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.model import Violation
from tests.simulation.planted import PLANTED
from tests.simulation.report import describe
from tests.simulation.runs import SEEDS, Outcome, first_seed_that_finds, run_in_parallel, run_seed

_PROGRESS_EVERY_SECONDS = 2.0


def main() -> int:
    """Run what the arguments ask for; 1 if a seed violates an invariant."""
    options = _parse()
    if options.table:
        return print_table(options.jobs)
    if options.seed is None:
        return run_many(options.first_seed, options.seeds, options.jobs)
    try:
        run_seed(options.seed, planted=options.planted, on_trace=print)
    except Violation as error:
        print(error)
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Seeded simulation of the log protocol."
    )
    parser.add_argument("seed", nargs="?", type=int, help="run this seed alone and print its trace")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="plant this fault into the protocol")
    parser.add_argument("--table", action="store_true", help="print the seed at which each planted fault is found")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    return parser.parse_args()


def run_many(first: int, count: int, jobs: int) -> int:
    """Run the seeds on all cores and print what they did; progress goes to stderr."""
    begun = time.monotonic()
    whole, said = Outcome(), begun
    for part in run_in_parallel(first, count, jobs=jobs):
        whole.add(part)
        for violation in part.violations:
            print(violation, file=sys.stderr)
        if (now := time.monotonic()) - said >= _PROGRESS_EVERY_SECONDS:
            said, done = now, whole.seeds + len(whole.violations)
            print(
                f"simulate: {done} of {count} seeds, {done / (now - begun):.0f} a second, {len(whole.violations)} violations",
                file=sys.stderr,
            )
    print(describe(whole, time.monotonic() - begun, jobs))
    return 1 if whole.violations else 0


def print_table(jobs: int) -> int:
    """Print a line for each planted fault: its name, the first seed that finds it, the violation; 1 if one is not found."""
    missed = 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for name, found in zip(PLANTED, pool.map(first_seed_that_finds, PLANTED), strict=True):
            missed += found is None
            seed, violation = found or ("-", "not found")
            print(f"{name:40} {seed:>5}  {violation[:100]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
