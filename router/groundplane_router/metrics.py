"""The router's metrics: every name declared once, every label value present from the start, no tenant in any label."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from groundplane.process.clock import Clock
from groundplane.process.metrics import LATENCY_BUCKETS_SECONDS, present_from_start
from groundplane.wire.names import Reason, Scope
from groundplane.wire.public import Tier
from groundplane_router.deadline import Stopwatch

RequestOutcome = Literal["hits", "empty", "unavailable", "denied", "invalid", "overloaded", "failed", "done"]
"""`done`: a request that is no question (documents, memos, corpus) and went well."""

Stage = Literal["embed", "search", "merge", "grep", "memo"]
MemoResult = Literal["hit", "stale", "miss", "failed"]
DropReason = Literal["dimension_mismatch", "zero_vector", "empty_text"]
TokenResult = Literal["accepted", "refused", "failed"]
"""`failed`: nobody could say whose the token is."""

TIERS: Final = get_args(Tier)
ShardCounts = Callable[[], Mapping[str, Mapping[Scope, int]]]


class RouterMetrics:
    """What the router counts and measures."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self.registry = registry
        self._clock = clock
        self.requests = Counter(
            "grounding_requests", "Requests, by the tier that answered.", ["tier", "outcome"], registry=registry
        )
        self.request_seconds = _histogram("grounding_request_duration_seconds", "Time to answer.", "tier", registry)
        self.stage_seconds = _histogram(
            "grounding_stage_duration_seconds", "Time spent in one stage of a request.", "stage", registry
        )
        self.unavailable = Counter(
            "grounding_unavailable", "Hybrid searches that could not be done.", ["reason"], registry=registry
        )
        self.memo = Counter("grounding_memo", "Memo look-ups.", ["result"], registry=registry)
        self.semantic_active = Gauge(
            "grounding_semantic_active", "1 while queries can be answered semantically.", registry=registry
        )
        self.probe_failures = Counter(
            "grounding_semantic_probe_failures",
            "Times semantic grounding was found not to work.",
            ["reason"],
            registry=registry,
        )
        self.embedder = Gauge(
            "grounding_embedder_info", "The configured embedder.", ["model", "dim", "format"], registry=registry
        )
        self.dropped = Counter(
            "grounding_dropped_documents", "Documents that were not indexed.", ["reason"], registry=registry
        )
        self.token_checks = Counter(
            "grounding_token_checks", "Tokens verified, which each is once a minute.", ["result"], registry=registry
        )
        self.token_check_seconds = Histogram(
            "grounding_token_check_duration_seconds",
            "Time to verify a token.",
            registry=registry,
            buckets=LATENCY_BUCKETS_SECONDS,
        )
        self.directory_age = Gauge(
            "grounding_directory_age_seconds",
            "Time since the directory was last known to be current; it stays in force.",
            registry=registry,
        )
        self.directory_faults = Gauge(
            "grounding_directory_faults",
            "What keeps the directory from being taken as it stands: unreadable parts and contradictions.",
            registry=registry,
        )
        self.build = Gauge("grounding_build_info", "Version of this router.", ["version"], registry=registry)
        self.in_flight = Gauge("grounding_requests_in_flight", "Requests being answered.", registry=registry)
        self.body_bytes = Gauge(
            "grounding_request_body_bytes", "Bytes of request bodies that are being read.", registry=registry
        )
        self._prepare()

    def _prepare(self) -> None:
        present_from_start(self.requests, TIERS, get_args(RequestOutcome))
        present_from_start(self.request_seconds, TIERS)
        present_from_start(self.stage_seconds, get_args(Stage))
        present_from_start(self.unavailable, list(Reason))
        present_from_start(self.memo, get_args(MemoResult))
        present_from_start(self.probe_failures, list(Reason))
        present_from_start(self.dropped, get_args(DropReason))
        present_from_start(self.token_checks, get_args(TokenResult))

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Stopwatch]:
        """Measure what runs inside; the stopwatch may be read inside and after."""
        watch = Stopwatch(self._clock)
        try:
            yield watch
        finally:
            watch.stop()
            self.stage_seconds.labels(stage).observe(watch.seconds)

    def token_checked(self, result: TokenResult, seconds: float) -> None:
        """Count a verified token."""
        self.token_checks.labels(result).inc()
        self.token_check_seconds.observe(seconds)

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch that runs."""
        return Stopwatch(self._clock)


class ShardCollector(Collector):
    """Counts shards when scraped: how many the directory declares, and how many answered when last asked."""

    def __init__(self, counts: ShardCounts) -> None:
        """counts: returns `up` and `declared`, each a count per scope."""
        self._counts = counts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield both families."""
        counts = self._counts()
        for name, text, key in (
            ("grounding_shard_up", "Shards that answered when last asked.", "up"),
            ("grounding_shard_declared", "Shards that the directory declares ready.", "declared"),
        ):
            family = GaugeMetricFamily(name, text, labels=["scope"])
            for scope, count in sorted(counts[key].items()):
                family.add_metric([scope.value], count)
            yield family


def _histogram(name: str, text: str, label: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, [label], registry=registry, buckets=LATENCY_BUCKETS_SECONDS)
