"""Command line of the simulation, from the repository's root.

python -m tests.simulation 17                       run one seed and print its trace
python -m tests.simulation 17 --planted no-barrier  the same with a planted fault
python -m tests.simulation 0-20000                  run many seeds
python -m tests.simulation --table                  the seed at which each planted fault is found
"""

import argparse
import sys

from tests.simulation.model import Violation
from tests.simulation.planted import PLANTED
from tests.simulation.runs import first_seed_that_finds, run_seed, run_seeds


def main() -> int:
    """Run what the arguments ask for; 1 if a seed violates an invariant."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Seeded simulation of the log protocol."
    )
    parser.add_argument("seeds", nargs="?", help="one seed, or first-end")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="plant this fault into the protocol")
    parser.add_argument("--table", action="store_true", help="print the seed at which each planted fault is found")
    options = parser.parse_args()
    if options.table or options.seeds is None:
        print_table()
        return 0
    first, _, end = options.seeds.partition("-")
    try:
        if end:
            print(dict(run_seeds(range(int(first), int(end)))))
        else:
            print(dict(run_seed(int(first), planted=options.planted, on_trace=print)))
    except Violation as error:
        print(error)
        return 1
    return 0


def print_table() -> None:
    """Print a line for each planted fault: its name, the first seed that finds it, the violation."""
    for name in PLANTED:
        seed, violation = first_seed_that_finds(name) or ("-", "not found")
        print(f"{name:34} {seed:>5}  {violation[:100]}")


sys.exit(main())
