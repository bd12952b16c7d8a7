"""The shard's half of the bench: searching, writing, both at once, memory and restart, over HTTP on a real process."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from statistics import median

from bench.corpus import Query, Rows
from bench.measure import Figure, Timing, across, calls_per_second, interleave, resident_mb, time_calls
from bench.raw_measures import THREADS, Measure
from bench.shard import BATCH, BenchShard
from bench.workbench import Workbench
from groundplane.wire.names import Scope
from groundplane_router.fusion import FusionRule, ScopeAnswer, fuse

INGEST_ROWS = 40_000
WRITES_PER_SECOND = 20
MEMORY_CALLS = 1_000
SETTLE_SECONDS = 3.0
TOP = 5


def measure_search(bench: Workbench) -> Mapping[str, Figure]:
    """Time a search of 10,000 rows over HTTP beside raw LanceDB."""
    raw, shard = bench.raw_small(), bench.shard_small()
    timings = interleave(bench.plan, bench.small_queries, {"raw": raw.search, "shard": shard.search})
    return {
        "shard_search_10k_over_raw_p50": timings["shard"].over(timings["raw"], 50),
        "shard_search_10k_p50_ms": timings["shard"].milliseconds(50),
        "shard_search_10k_p95_ms": timings["shard"].milliseconds(95),
    }


def measure_throughput(bench: Workbench) -> Mapping[str, Figure]:
    """Count searches a second of eight clients, beside raw LanceDB with eight threads."""
    raw, shard, plan = bench.raw_small(), bench.shard_small(), bench.plan
    rates, ratios = [], []
    for _ in range(plan.rounds):
        raw_rate = calls_per_second(raw.search, bench.small_queries, THREADS, plan.seconds)
        rates.append(shard.queries_per_second(bench.small_queries, THREADS, plan.seconds))
        ratios.append(rates[-1] / raw_rate)
    return {"shard_qps_8_clients_over_raw_8_threads": across(ratios), "shard_10k_qps_8_clients": across(rates)}


def measure_single_write(bench: Workbench) -> Mapping[str, Figure]:
    """Time one durable, searchable document over HTTP beside the first one-row upserts of raw LanceDB."""
    shard = bench.shard_small()
    ratios, milliseconds = [], []
    for number in range(bench.plan.rounds):
        rows = bench.corpus.rows(100, f"single-{number}")
        raw = median(bench.raw_to_write(f"single-{number}").upsert_seconds(rows))
        bodies = [shard.batch_body(rows.part(index, index + 1)) for index in range(len(rows))]
        own = median(time_calls(lambda body: shard.post("/write", body, "write"), bodies)[10:])
        ratios.append(own / raw)
        milliseconds.append(own * 1e3)
    return {"single_write_over_raw_upsert_p50": across(ratios), "single_write_p50_ms": across(milliseconds)}


def measure_during_writes(bench: Workbench) -> Mapping[str, Figure]:
    """Time searches while 20 documents a second are written and two flushes run, beside the same without writes."""
    shard = bench.shard_small()

    def write(number: int) -> None:
        rows = bench.corpus.rows(1, f"during-{number}")
        shard.post("/write", shard.batch_body(rows), "write")
        if number % (2 * WRITES_PER_SECOND) == WRITES_PER_SECOND:
            threading.Thread(target=shard.snapshot).start()
        time.sleep(1 / WRITES_PER_SECOND)

    quiet, busy = _quiet_and_busy(bench, shard, write)
    return {
        "shard_search_during_writes_over_quiet_p95": busy.over(quiet, 95),
        "shard_search_during_writes_p95_ms": busy.milliseconds(95),
    }


def measure_during_ingest(bench: Workbench) -> Mapping[str, Figure]:
    """Time searches while batches of 500 are written without pause, beside the same without writes."""
    shard = bench.shard_small()
    rows = bench.corpus.rows(4 * BATCH, "ingest")
    bodies = [shard.batch_body(rows.part(start, start + BATCH)) for start in range(0, len(rows), BATCH)]
    changed = [shard.batch_body(_renamed(rows, start)) for start in range(0, len(rows), BATCH)]

    def write(number: int) -> None:
        turn = number % (2 * len(bodies))
        shard.post("/write", [*bodies, *changed][turn], "write")

    quiet, busy = _quiet_and_busy(bench, shard, write)
    return {
        "shard_search_during_ingest_over_quiet_p95": busy.over(quiet, 95),
        "shard_search_during_ingest_p95_ms": busy.milliseconds(95),
    }


def measure_ingest(bench: Workbench) -> Mapping[str, Figure]:
    """Write 40,000 rows into a new shard and count rows a second, snapshots that fall due included."""
    rates = []
    rows = bench.corpus.rows(INGEST_ROWS, "bulk")
    for number in range(min(3, bench.plan.rounds)):
        with bench.new_shard(f"bulk-{number}") as shard:
            rates.append(len(rows) / shard.load(rows))
    return {"ingest_rows_per_s": across(rates)}


def measure_memory(bench: Workbench) -> Mapping[str, Figure]:
    """Read the shard's memory after 1,000 searches, and after 1,000 writes once it is idle again."""
    searched, written = [], []
    for number in range(min(2, bench.plan.rounds)):
        with bench.new_shard(f"memory-{number}") as shard:
            shard.load(bench.small)
            shard.snapshot()
            shard.process.kill()
            shard.forget_connections()
            shard.start()
            for query, _ in zip(_endless(bench.small_queries), range(MEMORY_CALLS), strict=False):
                shard.search(query)
            searched.append(resident_mb(shard.process.pid))
            rows = bench.corpus.rows(MEMORY_CALLS, "memory")
            for index in range(MEMORY_CALLS):
                shard.post("/write", shard.batch_body(rows.part(index, index + 1)), "write")
            time.sleep(SETTLE_SECONDS)
            written.append(resident_mb(shard.process.pid))
    return {
        "shard_rss_mb_10k_after_1000_queries": across(searched),
        "shard_rss_mb_10k_after_1000_writes_idle": across(written),
    }


def measure_restart(bench: Workbench) -> Mapping[str, Figure]:
    """Kill a shard of 10,000 rows, half of them not in any snapshot, and time it until it is ready again."""
    seconds = []
    with bench.new_shard("restart") as shard:
        shard.load(bench.small.part(0, len(bench.small) // 2))
        shard.snapshot()
        shard.load(bench.small.part(len(bench.small) // 2, len(bench.small)))
        for _ in range(bench.plan.rounds):
            shard.process.kill()
            seconds.append(shard.start())
    return {"restart_ready_s_10k": across(seconds)}


def measure_stall(bench: Workbench) -> Mapping[str, Figure]:
    """Find the longest wait of a steady writer over a flush, a compaction and a snapshot of 10,000 rows."""
    longest = []
    for number in range(min(3, bench.plan.rounds)):
        with bench.new_shard(f"stall-{number}") as shard:
            shard.load(bench.small)
            shard.snapshot()
            replaced = bench.corpus.rows(len(bench.small), "small").part(0, len(bench.small) // 4)
            shard.load(replaced)  # a quarter of the table is superseded: the flush compacts
            rows = bench.corpus.rows(2_000, "stall")
            bodies = [shard.batch_body(rows.part(index, index + 1)) for index in range(len(rows))]
            flush = threading.Thread(target=shard.snapshot)
            flush.start()
            durations: list[float] = []
            for body in bodies:
                durations += time_calls(lambda each: shard.post("/write", each, "write"), [body])
                if not flush.is_alive() and len(durations) > 200:
                    break
            flush.join()
            longest.append(max(durations))
    return {"longest_write_stall_s_10k": across(longest)}


def measure_large(bench: Workbench) -> Mapping[str, Figure]:
    """Time a search of 100,000 rows beside raw LanceDB, both with IVF_SQ, and compare its top 5 with the exact engine's."""
    with (
        bench.new_shard("large") as indexed,
        bench.new_shard("large-exact", {"GROUNDPLANE_EXACT_MIB": "4096"}) as exact,
    ):
        indexed.load(bench.large)
        indexed.snapshot()
        indexed.await_engine("indexed")
        raw = bench.raw_large()
        timings = interleave(bench.plan, bench.large_queries, {"raw": raw.search, "shard": indexed.search})
        exact.load(bench.large)
        overlaps = [len(_top(exact, query) & _top(indexed, query)) / TOP for query in bench.large_queries[:200]]
    return {
        "shard_search_100k_over_raw_p50": timings["shard"].over(timings["raw"], 50),
        "shard_search_100k_p50_ms": timings["shard"].milliseconds(50),
        "indexed_top5_overlap_with_exact_100k": Figure(sum(overlaps) / len(overlaps), min(overlaps), max(overlaps)),
    }


def _quiet_and_busy(bench: Workbench, shard: BenchShard, write: Callable[[int], None]) -> tuple[Timing, Timing]:
    """Time searches in turns without and with a thread that calls `write` over and over."""
    quiet, busy = Timing([]), Timing([])
    calls = [query for query, _ in zip(_endless(bench.small_queries), range(5 * bench.plan.calls), strict=False)]
    numbers = count()
    for _ in range(bench.plan.rounds):
        quiet.rounds.append(time_calls(shard.search, calls))
        with _background(lambda: write(next(numbers))):
            busy.rounds.append(_time_for(shard.search, calls, seconds=4.0))
    return quiet, busy


def _time_for(subject: Callable[[Query], object], calls: list[Query], seconds: float) -> list[float]:
    """Return the seconds of each call, made in turn for at least `seconds`, with a short pause between them."""
    durations: list[float] = []
    end = time.perf_counter() + seconds
    for call in _endless(calls):
        if time.perf_counter() >= end:
            break
        durations += time_calls(subject, [call])
        time.sleep(0.002)
    return durations


@contextmanager
def _background(action: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        while not stop.is_set():
            try:
                action()
            except RuntimeError as error:
                failures.append(error)
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _endless(queries: Sequence[Query]) -> Iterator[Query]:
    while True:
        yield from queries


def _renamed(rows: Rows, start: int) -> Rows:
    """Return a batch whose texts are those of its neighbours: every document of it changes."""
    part = rows.part(start, start + BATCH)
    return Rows(part.ids, [*part.texts[1:], part.texts[0]], part.vectors)


def _top(shard: BenchShard, query: Query) -> set[str]:
    """Return the ids of the best five, fused as the router does."""
    answer = ScopeAnswer(scope=Scope.PLATFORM, answer=shard.search(query))
    return {hit.doc_id for hit in fuse(shard.terms(query), [answer], k=TOP, rule=FusionRule())}


MEASURES = (
    Measure(("shard_search_10k_over_raw_p50", "shard_search_10k_p50_ms", "shard_search_10k_p95_ms"), measure_search),
    Measure(("shard_qps_8_clients_over_raw_8_threads", "shard_10k_qps_8_clients"), measure_throughput),
    Measure(("single_write_over_raw_upsert_p50", "single_write_p50_ms"), measure_single_write),
    Measure(("shard_search_during_writes_over_quiet_p95", "shard_search_during_writes_p95_ms"), measure_during_writes),
    Measure(("shard_search_during_ingest_over_quiet_p95", "shard_search_during_ingest_p95_ms"), measure_during_ingest),
    Measure(("ingest_rows_per_s",), measure_ingest),
    Measure(("shard_rss_mb_10k_after_1000_queries", "shard_rss_mb_10k_after_1000_writes_idle"), measure_memory),
    Measure(("restart_ready_s_10k",), measure_restart),
    Measure(("longest_write_stall_s_10k",), measure_stall),
    Measure(
        ("shard_search_100k_over_raw_p50", "shard_search_100k_p50_ms", "indexed_top5_overlap_with_exact_100k"),
        measure_large,
    ),
)
