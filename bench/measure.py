"""Timing and memory: interleaved rounds, percentiles, and what a figure's spread over the rounds is.

Machines drift (other work, heat, caches), so what is compared runs in turns, and a ratio is taken within each round.
"""

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple, TypeVar

import psutil

Call = TypeVar("Call")


class Figure(NamedTuple):
    """The median over the rounds, with the least and the greatest."""

    value: float
    low: float
    high: float


class Plan(NamedTuple):
    """How much is measured."""

    rounds: int = 5
    calls: int = 100  # timed, per subject and round
    warm_calls: int = 10  # before them, not timed
    seconds: float = 4.0  # of a round of throughput

    @classmethod
    def quick(cls) -> "Plan":
        """Return the plan that shows that everything runs; its figures prove nothing."""
        return cls(rounds=2, calls=20, warm_calls=3, seconds=1.0)


class Timing(NamedTuple):
    """Durations in seconds of one subject's calls, one list a round."""

    rounds: list[list[float]]

    def milliseconds(self, percent: float) -> Figure:
        """Return a percentile in milliseconds, over the rounds."""
        return across([percentile(durations, percent) * 1e3 for durations in self.rounds])

    def over(self, other: "Timing", percent: float) -> Figure:
        """Return this percentile divided by the other's of the same round, over the rounds."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return across([percentile(own, percent) / percentile(others, percent) for own, others in pairs])


def across(values: Sequence[float]) -> Figure:
    """Return the figure of one value a round."""
    return Figure(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below or at which `percent` of the values lie (nearest rank, never interpolated)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def interleave(
    plan: Plan, calls: Sequence[Call], subjects: Mapping[str, Callable[[Call], object]]
) -> dict[str, Timing]:
    """Time every subject with the same `calls`, in turns, each turn after a few calls that are not timed."""
    timings = {name: Timing([]) for name in subjects}
    endless = cycle(calls)
    for _ in range(plan.rounds):
        turn = list(islice(endless, plan.warm_calls + plan.calls))
        for name, subject in subjects.items():
            timings[name].rounds.append(time_calls(subject, turn)[plan.warm_calls :])
    return timings


def time_calls(subject: Callable[[Call], object], calls: Sequence[Call]) -> list[float]:
    """Return the seconds that each call took."""
    durations = []
    for call in calls:
        start = time.perf_counter()
        subject(call)
        durations.append(time.perf_counter() - start)
    return durations


def calls_per_second(subject: Callable[[Call], object], calls: Sequence[Call], threads: int, seconds: float) -> float:
    """Return how many calls a second `threads` threads complete together."""
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(index: int) -> None:
        for call in cycle([*calls[index:], *calls[:index]]):
            if time.perf_counter() >= end:
                return
            subject(call)
            counts[index] += 1

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def resident_mb(process_id: int) -> float:
    """Return the resident memory of one process in MB (10^6 bytes)."""
    return float(psutil.Process(process_id).memory_info().rss) / 1e6


def resident_mb_of_tree(process_id: int) -> float:
    """Return the resident memory of a process and all that it started, in MB; shared pages count in each."""
    return sum(resident_mb(process.pid) for process in _tree(process_id))


def _tree(process_id: int) -> Iterator[psutil.Process]:
    root = psutil.Process(process_id)
    yield root
    yield from root.children(recursive=True)
