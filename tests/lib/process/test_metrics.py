"""Metrics: every label value from the start, served as Prometheus reads it."""

import httpx
from prometheus_client import Counter
from starlette.applications import Starlette
from starlette.routing import Route

from groundplane.process.metrics import MetricsEndpoint, new_registry, present_from_start


def test_every_combination_is_there_before_it_happened():
    """`rate` over a series that appears with its first event misses that event."""
    counter = Counter("things", "x", ["a", "b"], registry=new_registry())
    present_from_start(counter, ["1", "2"], ["x", "y"])

    seen = {(one.labels["a"], one.labels["b"]): one.value for family in counter.collect() for one in family.samples}
    assert seen == {("1", "x"): 0, ("1", "y"): 0, ("2", "x"): 0, ("2", "y"): 0}


async def test_the_endpoint_serves_the_registry_as_a_route():
    """An object with a wrong signature serves 500 and is found by the first scrape."""
    registry = new_registry()
    Counter("things", "x", registry=registry).inc()
    app = Starlette(routes=[Route("/metrics", MetricsEndpoint(registry))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    assert "things_total 1.0" in answer.text
    assert "_created" not in answer.text
