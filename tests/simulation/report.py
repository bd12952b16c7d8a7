"""What many seeds did, as a text for people: speed, what was checked, what was covered and what was not."""

from collections.abc import Iterable

from tests.simulation.coverage import count_by_step
from tests.simulation.faults import ALL_FAULTS
from tests.simulation.runs import Outcome


def describe(outcome: Outcome, seconds: float, jobs: int) -> str:
    """Return the report; `seconds` is how long the seeds took on `jobs` processes."""
    seeds = outcome.seeds + len(outcome.violations)
    parts = [
        f"seeds                 {seeds} in {seconds:.1f} s, {seeds / seconds:.0f} a second on {jobs} processes",
        f"seeds a core second   {seeds / max(outcome.cpu_seconds, 1e-9):.0f}",
        f"store operations      {outcome.store_operations}, {outcome.store_operations / seconds:.0f} a second",
        f"acknowledgements      {outcome.acknowledgements} checked",
        f"least in any seed     {_least(outcome)}",
        *_counts("faults", ((name, outcome.faults[name]) for name in ALL_FAULTS)),
        *_counts("events", sorted(outcome.events.items())),
        *_steps(outcome),
        f"violations            {len(outcome.violations)}",
        *outcome.violations[:20],
    ]
    return "\n".join(parts)


def _least(outcome: Outcome) -> str:
    operations, writers, kinds = outcome.fewest_store_operations, outcome.fewest_writers, outcome.fewest_fault_kinds
    return f"{operations} store operations, {writers} writers, {kinds} fault kinds"


def never_met(outcome: Outcome) -> list[str]:
    """Return the kinds of fault that no seed met."""
    return [name for name in ALL_FAULTS if not outcome.faults[name]]


def never_reached(outcome: Outcome) -> list[str]:
    """Return the steps of the protocol that no seed reached."""
    return [str(step) for step, count in count_by_step(outcome.coverage.reached).items() if not count]


def _counts(title: str, counts: Iterable[tuple[str, int]]) -> list[str]:
    return [title, *(f"  {count:>10}  {name}" for name, count in counts)]


def _steps(outcome: Outcome) -> list[str]:
    reached = count_by_step(outcome.coverage.reached)
    crashed = count_by_step(outcome.coverage.crashed)
    never = never_reached(outcome)
    with_crash = sum(1 for count in crashed.values() if count)
    return [
        f"protocol steps        {len(reached) - len(never)} of {len(reached)} reached, {with_crash} with a crash there",
        "                      (counted in every tenth seed)",
        *(f"  {count:>10}  {crashed[step]:>6} crashes  {step}" for step, count in reached.items() if count),
        *(f"       never                  {step}" for step in never),
    ]
