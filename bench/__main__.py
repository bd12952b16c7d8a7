"""`python -m bench`: run the measures, print the table, write build/bench.json; exit code 1 if a bar is missed."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bench import bucket_measures, raw_measures, router_measures, shard_measures, simulation_measures
from bench.bars import BARS
from bench.measure import Figure, Plan
from bench.raw_measures import Measure
from bench.report import Report
from bench.workbench import Workbench

MEASURES: tuple[Measure, ...] = (
    *raw_measures.MEASURES,
    *shard_measures.MEASURES,
    *bucket_measures.MEASURES,
    *router_measures.MEASURES,
    *simulation_measures.MEASURES,
)

MAX_ERROR_CHARACTERS = 1_000


def main(arguments: Sequence[str]) -> int:
    """Run what `arguments` ask for and return the exit code."""
    options = _parse(arguments)
    known = frozenset(key for measure in MEASURES for key in measure.keys) | {bar.key for bar in BARS}
    only = frozenset(options.only.split(",")) if options.only else known
    if unknown := sorted(only - known):
        print(f"bench: --only {','.join(unknown)}: expected keys among {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    console, progress = Console(width=None if sys.stdout.isatty() else 120), Console(stderr=True)
    bars = [bar for bar in BARS if bar.key in only]
    report = Report(bars, "Groundplane against raw LanceDB, same rows")
    with Workbench(Plan.quick() if options.quick else Plan()) as bench:
        for measure in MEASURES:
            if only.intersection(measure.keys):
                progress.print(f"bench: {', '.join(measure.keys)}", highlight=False)
                report.add(_try_measure(measure, bench, progress))
    report.print(console)
    if options.quick:
        progress.print("bench: a quick run, its figures prove nothing", highlight=False)
    report.write(options.output)
    return 0 if report.is_good else 1


def _try_measure(measure: Measure, bench: Workbench, progress: Console) -> Mapping[str, Figure]:
    """Return the figures of one measure; none if it failed, so that its bars are missed and the others are measured."""
    try:
        figures = measure.run(bench)
    except (AssertionError, RuntimeError) as error:
        progress.print(f"bench:   failed: {str(error)[:MAX_ERROR_CHARACTERS]}", highlight=False)
        return {}
    for key, figure in figures.items():
        progress.print(f"bench:   {key} {figure.value:,.4g}", highlight=False)
    return figures


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Groundplane against raw LanceDB, same rows.")
    parser.add_argument("--only", metavar="KEY,…", help="measure only what fills these keys")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: does everything run?")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="default: build/bench.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
