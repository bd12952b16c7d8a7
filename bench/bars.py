"""The bars: what every figure must reach. Keys are those of build/bench.json; ratios are product over raw LanceDB."""

from typing import NamedTuple


class Bar(NamedTuple):
    """One promise about speed or memory."""

    key: str
    limit: float
    is_at_most: bool
    meaning: str

    def is_met(self, value: float) -> bool:
        """Say whether `value` keeps the promise."""
        return value <= self.limit if self.is_at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.is_at_most else '≥'} {self.limit:,g}"


def _at_most(key: str, limit: float, meaning: str) -> Bar:
    return Bar(key, limit, is_at_most=True, meaning=meaning)


def _at_least(key: str, limit: float, meaning: str) -> Bar:
    return Bar(key, limit, is_at_most=False, meaning=meaning)


BARS = (
    _at_most("evidence_10k_over_raw_p50", 0.8, "router evidence, vector cached, tenant 500 + platform 10,000 rows"),
    _at_most("shard_search_10k_over_raw_p50", 0.45, "one shard over HTTP, 10,000 rows"),
    _at_most("shard_search_100k_over_raw_p50", 1.2, "one shard over HTTP, 100,000 rows, both with IVF_SQ"),
    _at_least(
        "indexed_top5_overlap_with_exact_100k", 0.98, "share of the exact engine's top 5 that the indexed one has"
    ),
    _at_most("shard_search_during_writes_over_quiet_p95", 2, "20 single writes a second, two flushes, 10,000 rows"),
    _at_most("shard_search_during_ingest_over_quiet_p95", 5, "batches of 500 without pause, 10,000 rows"),
    _at_least("shard_qps_8_clients_over_raw_8_threads", 2, "searches a second, 10,000 rows"),
    _at_least("ingest_rows_per_s", 4_000, "40,000 rows in batches of 500, vectors given, durable, snapshots included"),
    _at_most(
        "single_write_over_raw_upsert_p50", 0.5, "one document, fsynced and searchable, over a one-row merge_insert"
    ),
    _at_most("shard_rss_mb_10k_after_1000_queries", 290, "resident memory of a shard"),
    _at_most("shard_rss_mb_10k_after_1000_writes_idle", 350, "resident memory of a shard, idle again"),
    _at_most("router_rss_mb_embedded", 330, "resident memory of a router with the embedded model"),
    _at_most("demo_rss_mb_total", 1_300, "resident memory of all processes of the demo"),
    _at_most("restart_ready_s_10k", 3, "from kill -9 to ready"),
    _at_most("longest_write_stall_s_10k", 0.15, "over a flush, a compaction and a snapshot"),
    _at_most("s3_write_over_put_p50", 1.5, "one document over HTTP, over a bare conditional PUT of the same bytes"),
    _at_least("s3_ingest_rows_per_s", 2_500, "40,000 rows in batches of 500 into a bucket, snapshots included"),
    _at_most(
        "snapshot_bytes_mean_of_40_flushes_over_full",
        0.15,
        "100,000 rows, 1,000 replaced by each, compactions included",
    ),
    _at_most("longest_write_stall_s_100k", 0.25, "over a flush, a compaction and a snapshot, in a bucket"),
    _at_most("restore_ready_s_10k", 2.5, "from the bucket on an empty disk, process start included"),
    _at_most("restore_ready_s_100k", 8, "from the bucket on an empty disk, process start included"),
    _at_most("shard_rss_mb_100k_after_1000_queries", 450, "resident memory of a shard, restored from the bucket"),
    _at_most(
        "handover_pause_s_100k", 2, "longest time without an acknowledged write while a second process takes over"
    ),
    _at_least("simulation_seeds_per_s", 200, "of the log protocol's simulation, a core second"),
)

OPERATOR_BARS = (
    _at_most(
        "operator_apply_to_applied_s_500", 60, "500 corpora applied at once, until all their children are applied"
    ),
    _at_most("operator_steady_mutating_calls_100", 0, "writes in 10 minutes without a change, Leases left out"),
    _at_most("operator_rss_mb_500", 220, "resident memory of an operator with 500 corpora"),
    _at_most("operator_restart_relist_s_500", 15, "from the start of the process until every corpus was looked at"),
)
