"""The shard over an object store: writing, snapshots, restoring and handing over, on real processes and a real S3 server."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from itertools import pairwise
from statistics import median

from bench.bucket import BucketShard
from bench.measure import Figure, across, resident_mb, time_calls
from bench.raw_measures import Measure
from bench.shard import BATCH
from bench.workbench import Workbench

INGEST_ROWS = 40_000
FLUSHES = 40
REPLACED_BY_EACH = 1_000
TAIL_RECORDS = 10  # of 500 rows, behind the newest snapshot of 100,000
MEMORY_QUERIES = 1_000
STALL_WRITES = 200  # at least, after the flush
HANDOVER_WRITES = 100  # at least, before, during and after
RETRY_SECONDS = 0.005


def measure_write(bench: Workbench) -> Mapping[str, Figure]:
    """Time one acknowledged document over HTTP beside a bare conditional PUT of the same log object's bytes."""
    plan, bucket = bench.plan, bench.bucket()
    ratios, own, bare = [], [], []
    with bench.new_bucket_shard("s3-write") as shard:
        for number in range(plan.rounds):
            rows = bench.corpus.rows(plan.warm_calls + plan.calls, f"s3-{number}")
            bodies = [shard.batch_body(rows.part(index, index + 1)) for index in range(len(rows))]
            written = time_calls(lambda body: shard.post("/write", body, "write"), bodies)
            record = shard.newest_record()
            put = time_calls(bucket.bare_put, [record] * len(bodies))
            own.append(median(written[plan.warm_calls :]))
            bare.append(median(put[plan.warm_calls :]))
            ratios.append(own[-1] / bare[-1])
    return {
        "s3_write_over_put_p50": across(ratios),
        "s3_write_p50_ms": across([seconds * 1e3 for seconds in own]),
        "s3_put_p50_ms": across([seconds * 1e3 for seconds in bare]),
    }


def measure_ingest(bench: Workbench) -> Mapping[str, Figure]:
    """Write 40,000 rows into a new corpus of the bucket and count rows a second, snapshots that fall due included."""
    rates = []
    rows = bench.corpus.rows(INGEST_ROWS, "s3-bulk")
    for number in range(min(3, bench.plan.rounds)):
        with bench.new_bucket_shard(f"s3-bulk-{number}") as shard:
            rates.append(len(rows) / shard.load(rows))
    return {"s3_ingest_rows_per_s": across(rates)}


def measure_restore_small(bench: Workbench) -> Mapping[str, Figure]:
    """Time a start on an empty disk: 10,000 rows, half of them behind the newest snapshot."""
    half = len(bench.small) // 2
    with bench.new_bucket_shard("s3-restore") as shard:
        shard.load(bench.small.part(0, half))
        shard.snapshot()
        shard.load(bench.small.part(half, len(bench.small)))
        seconds = [shard.restart_on_an_empty_disk() for _ in range(bench.plan.rounds)]
    return {"restore_ready_s_10k": across(seconds)}


def measure_restore_large(bench: Workbench) -> Mapping[str, Figure]:
    """Time a start on an empty disk with 100,000 rows and 5,000 replaced behind the newest snapshot; then read its memory."""
    shard = bench.bucket_shard_large()
    shard.snapshot()
    shard.load(bench.replacement(TAIL_RECORDS * BATCH))
    seconds = [shard.restart_on_an_empty_disk() for _ in range(min(3, bench.plan.rounds))]
    for index in range(MEMORY_QUERIES):
        shard.search(bench.large_queries[index % len(bench.large_queries)])
    memory = resident_mb(shard.process.pid)
    return {"restore_ready_s_100k": across(seconds), "shard_rss_mb_100k_after_1000_queries": across([memory])}


def measure_snapshot_bytes(bench: Workbench) -> Mapping[str, Figure]:
    """Replace 1,000 of 100,000 rows 40 times, each with a snapshot, and sum what is uploaded beside all that is listed."""
    shard = bench.bucket_shard_large()
    shard.snapshot()
    shares, seconds = [], []
    for _ in range(FLUSHES if bench.plan.rounds > 2 else 2):
        shard.load(bench.replacement(REPLACED_BY_EACH))
        seconds += time_calls(lambda each: each.snapshot(), [shard])
        shares.append(_uploaded_share(shard))
    mean = sum(shares) / len(shares)
    return {
        "snapshot_bytes_mean_of_40_flushes_over_full": Figure(mean, min(shares), max(shares)),
        "s3_snapshot_s_100k": across(seconds),
    }


def measure_stall(bench: Workbench) -> Mapping[str, Figure]:
    """Find the longest wait of a steady writer over a flush, a compaction and a snapshot of 100,000 rows."""
    shard = bench.bucket_shard_large()
    longest = []
    for number in range(min(3, bench.plan.rounds)):
        shard.load(bench.replacement(len(bench.large) // 8))  # so much is superseded that the flush compacts
        rows = bench.corpus.rows(5_000, f"s3-stall-{number}")
        flush = threading.Thread(target=shard.snapshot)
        flush.start()
        durations: list[float] = []
        for index in range(len(rows)):
            body = shard.batch_body(rows.part(index, index + 1))
            durations += time_calls(shard.write_when_taken, [body])  # a refusal is a wait too
            if not flush.is_alive() and len(durations) > STALL_WRITES:
                break
        flush.join()
        longest.append(max(durations))
    return {"longest_write_stall_s_100k": across(longest)}


def measure_handover(bench: Workbench) -> Mapping[str, Figure]:
    """Start a second process of 100,000 rows under steady writes and find the longest time without an acknowledgement."""
    pauses = []
    for _ in range(min(3, bench.plan.rounds)):
        old = bench.bucket_shard_large()
        new = old.successor()
        with _steady_writer(bench, [old, new]) as acknowledged:
            new.start()
            time.sleep(1)
        old.process.kill()
        bench.succeed_bucket_shard_large(new)
        if len(acknowledged) < HANDOVER_WRITES:
            raise RuntimeError(f"{len(acknowledged)} writes were acknowledged over a hand-over: expected many")
        pauses.append(max(later - earlier for earlier, later in pairwise(acknowledged)))
    return {"handover_pause_s_100k": across(pauses)}


@contextmanager
def _steady_writer(bench: Workbench, shards: list[BucketShard]) -> Iterator[list[float]]:
    """Write one document after the other to whichever of `shards` takes it; give the times of the acknowledgements."""
    acknowledged = [time.perf_counter()]
    stop = threading.Event()
    rows = bench.corpus.rows(20_000, f"handover-{shards[1].process.port}")

    def work() -> None:
        turn = 0
        for index in range(len(rows)):
            while not stop.is_set():
                shard = shards[turn % len(shards)]
                try:
                    shard.post("/write", shard.batch_body(rows.part(index, index + 1)), "write")
                except (RuntimeError, OSError, HTTPException):  # not ready yet, or not the writer any more
                    shard.forget_connections()
                    turn += 1
                    time.sleep(RETRY_SECONDS)
                else:
                    acknowledged.append(time.perf_counter())
                    break

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def _uploaded_share(shard: BucketShard) -> float:
    """Return the bytes that the newest snapshot alone brought to the bucket, over those of all its files."""
    newest = shard.manifest().snapshots[-1]
    own = f"snapshots/{newest.upload_id}/"
    uploaded = sum(file.size for file in newest.files if file.key.startswith(own))
    return uploaded / sum(file.size for file in newest.files)


MEASURES = (
    Measure(("s3_write_over_put_p50", "s3_write_p50_ms", "s3_put_p50_ms"), measure_write),
    Measure(("s3_ingest_rows_per_s",), measure_ingest),
    Measure(("restore_ready_s_10k",), measure_restore_small),
    Measure(("restore_ready_s_100k", "shard_rss_mb_100k_after_1000_queries"), measure_restore_large),
    Measure(("snapshot_bytes_mean_of_40_flushes_over_full", "s3_snapshot_s_100k"), measure_snapshot_bytes),
    Measure(("longest_write_stall_s_100k",), measure_stall),
    Measure(("handover_pause_s_100k",), measure_handover),
)
