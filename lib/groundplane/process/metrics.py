"""Prometheus metrics: one registry a process, every label value present from the start."""

from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

LATENCY_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
Metric = Counter | Gauge | Histogram


def new_registry() -> CollectorRegistry:
    """Return an empty registry; the `_created` series that the library adds by default are switched off."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    return CollectorRegistry()


def present_from_start(metric: Metric, *labels: Sequence[str]) -> None:
    """Create every combination of label values of `metric`, so that `rate` and `absent` see zeroes and not gaps."""
    combinations: list[tuple[str, ...]] = [()]
    for values in labels:
        combinations = [(*before, value) for before in combinations for value in values]
    for combination in combinations:
        metric.labels(*combination)


class MetricsEndpoint:
    """`GET /metrics` in the text format that Prometheus scrapes: an ASGI application, as a route takes any object."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the current values."""
        response = Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
        await response(scope, receive, send)
