"""Metrics of a shard. The scrape's own labels say which corpus it is: no tenant's name stands in a label."""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from groundplane.process.metrics import LATENCY_BUCKETS_SECONDS, present_from_start

Outcome = Literal["ok", "refused", "unavailable"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "refused", "unavailable")
ROUTES = ("search", "write", "documents", "document", "known", "pending", "memo", "snapshot", "status")


class ShardMetrics:
    """Every metric of the shard, declared once; all label values exist from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "corpus_requests_total", "Requests by route and outcome.", ["route", "outcome"], registry=registry
        )
        self.search_seconds = Histogram(
            "corpus_search_duration_seconds",
            "Time to search this corpus.",
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "corpus_commit_duration_seconds",
            "Time from the start of a commit to its acknowledgement.",
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=registry,
        )
        self.flush_seconds = Histogram(
            "corpus_flush_duration_seconds", "Time of one flush.", buckets=LATENCY_BUCKETS_SECONDS, registry=registry
        )
        self.body_bytes = Gauge(
            "corpus_request_body_bytes", "Bytes of request bodies that are being read.", registry=registry
        )
        self.ready = Gauge("corpus_ready", "1 while this shard answers and accepts writes.", registry=registry)
        self.documents = Gauge("corpus_documents", "Documents that searches see.", registry=registry)
        self.chunks = Gauge("corpus_chunks", "Chunks that searches see.", registry=registry)
        self.sequence = Gauge("corpus_sequence", "Sequence of the last log record.", registry=registry)
        self.age_seconds = Gauge(
            "corpus_state_age_seconds",
            "Seconds since this shard last made sure with its store that it knows the newest state.",
            registry=registry,
        )
        self.memtable_bytes = Gauge(
            "corpus_memtable_bytes", "Bytes of writes that no flush has moved to the table.", registry=registry
        )
        self.generation = Gauge("corpus_generation", "Re-embeddings that this corpus has behind it.", registry=registry)
        self.reindexed_documents = Gauge(
            "corpus_reindexed_documents",
            "Documents that the re-embedding under way has made; 0 without one.",
            registry=registry,
        )
        self.log_lag_bytes = Gauge("corpus_wal_lag_bytes", "Bytes of log since the newest snapshot.", registry=registry)
        self.log_lag_records = Gauge(
            "corpus_wal_lag_records", "Log records since the newest snapshot.", registry=registry
        )
        self.last_fsync = Gauge(
            "corpus_wal_last_fsync_timestamp_seconds", "When a log record was last made durable.", registry=registry
        )
        self.last_snapshot = Gauge(
            "corpus_snapshot_last_success_timestamp_seconds", "When a snapshot was last published.", registry=registry
        )
        self.snapshot_failures = Counter(
            "corpus_snapshot_failures_total", "Snapshots that could not be published.", registry=registry
        )
        present_from_start(self.requests, ROUTES, OUTCOMES)
