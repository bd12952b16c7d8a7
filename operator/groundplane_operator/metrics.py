"""The operator's metrics, declared once; docs, alerts and dashboards are compared with this."""

from collections import Counter as Counts
from collections.abc import Iterable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from groundplane.api.v1alpha1 import CONDITION_TYPES, Condition
from groundplane.process.metrics import present_from_start

PassResult = Literal["done", "again", "failed"]
RESULTS: Final[tuple[PassResult, ...]] = ("done", "again", "failed")
STATUSES: Final = ("True", "False", "Unknown")
PASS_BUCKETS_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class OperatorMetrics:
    """All metrics of one operator process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.passes = Counter(
            "groundplane_operator_passes",
            "Passes over a TenantCorpus: done (it is as its spec asks), again (a step was made or awaited), failed.",
            ["result"],
            registry=registry,
        )
        present_from_start(self.passes, RESULTS)
        self.pass_seconds = Histogram(
            "groundplane_operator_pass_seconds",
            "Duration of a pass over a TenantCorpus.",
            buckets=PASS_BUCKETS_SECONDS,
            registry=registry,
        )
        self.queue_depth = Gauge(
            "groundplane_operator_queue_depth", "TenantCorpora that are due and wait for a pass.", registry=registry
        )
        self.queue_oldest_seconds = Gauge(
            "groundplane_operator_queue_oldest_seconds",
            "How long the TenantCorpus that waits longest has been due; 0 if none waits.",
            registry=registry,
        )
        self.event_age_seconds = Gauge(
            "groundplane_operator_event_age_seconds",
            "Seconds since the API server last told of a TenantCorpus or a child, by watch or by list.",
            registry=registry,
        )
        self.api_calls = Counter(
            "groundplane_operator_api_calls",
            "Calls to the API server by verb and status code; code none: no answer.",
            ["verb", "code"],
            registry=registry,
        )
        self.corpora = Gauge(
            "groundplane_operator_corpora",
            "TenantCorpora by condition and its status.",
            ["condition", "status"],
            registry=registry,
        )
        present_from_start(self.corpora, CONDITION_TYPES, STATUSES)
        self.build = Gauge(
            "groundplane_operator_build_info", "Always 1; the version is a label.", ["version"], registry=registry
        )

    def count_call(self, verb: str, code: str) -> None:
        """Count one call to the API server."""
        self.api_calls.labels(verb, code).inc()

    def show_conditions(self, corpora: Iterable[Iterable[Condition]]) -> None:
        """Set how many corpora have which condition."""
        counts = Counts((each.type, each.status) for conditions in corpora for each in conditions)
        for condition in CONDITION_TYPES:
            for status in STATUSES:
                self.corpora.labels(condition, status).set(counts[condition, status])
