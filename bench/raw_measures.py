"""The raw half of the bench: figures of LanceDB alone, beside which the product's stand."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from bench.measure import Figure, Timing, across, calls_per_second, interleave
from bench.workbench import Workbench

THREADS = 8


class Measure(NamedTuple):
    """Something that is run as a whole because its parts are interleaved, and the keys it fills."""

    keys: tuple[str, ...]
    run: Callable[[Workbench], Mapping[str, Figure]]


def measure_small(bench: Workbench) -> Mapping[str, Figure]:
    """Time a search over 10,000 rows in all three settings."""
    raw, flat = bench.raw_small(), bench.raw_small_flat()
    subjects = {"raw": raw.search, "raw_together": raw.search_together, "raw_flat": flat.search}
    timings = interleave(bench.plan, bench.small_queries, subjects)
    return {
        key: figure for name, timing in timings.items() for key, figure in _percentiles(f"{name}_10k", timing).items()
    }


def measure_large(bench: Workbench) -> Mapping[str, Figure]:
    """Time a search over 100,000 rows with IVF_SQ."""
    raw = bench.raw_large()
    subjects = {"raw": raw.search, "raw_together": raw.search_together}
    timings = interleave(bench.plan, bench.large_queries, subjects)
    return {
        key: figure for name, timing in timings.items() for key, figure in _percentiles(f"{name}_100k", timing).items()
    }


def measure_throughput(bench: Workbench) -> Mapping[str, Figure]:
    """Count searches a second of eight threads over 10,000 rows."""
    raw, plan = bench.raw_small(), bench.plan
    rates = [calls_per_second(raw.search, bench.small_queries, THREADS, plan.seconds) for _ in range(plan.rounds)]
    return {"raw_10k_qps_8_threads": across(rates)}


def measure_upsert(bench: Workbench) -> Mapping[str, Figure]:
    """Time the first ten one-row upserts into an optimized table, a new table each round."""
    medians = []
    for number in range(bench.plan.rounds):
        rows = bench.corpus.rows(100, "upsert")
        medians.append(median(bench.raw_to_write(f"upsert-{number}").upsert_seconds(rows)) * 1e3)
    return {"raw_10k_upsert_p50_ms": across(medians)}


def _percentiles(prefix: str, timing: Timing) -> dict[str, Figure]:
    return {f"{prefix}_p{percent}_ms": timing.milliseconds(percent) for percent in (50, 95)}


def _latency_keys(*prefixes: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_p{percent}_ms" for prefix in prefixes for percent in (50, 95))


MEASURES = (
    Measure(_latency_keys("raw_10k", "raw_together_10k", "raw_flat_10k"), measure_small),
    Measure(("raw_10k_qps_8_threads",), measure_throughput),
    Measure(("raw_10k_upsert_p50_ms",), measure_upsert),
    Measure(_latency_keys("raw_100k", "raw_together_100k"), measure_large),
)
