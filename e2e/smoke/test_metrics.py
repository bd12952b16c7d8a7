"""Prometheus, as a platform team's sees our pods."""

import json
import urllib.parse
import urllib.request
from typing import Any

import pytest

from e2e.cluster.environment import Environment
from e2e.cluster.steps import wait_until
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import NAME, Workload

SCRAPED_SECONDS = 60.0  # it asks every five seconds, and learns of a pod within two


@pytest.fixture
def prometheus_url(environment: Environment) -> str:
    """Give the URL of Prometheus; skips on a cluster of somebody else's, where we know of none."""
    if environment.prometheus_url is None:
        pytest.skip("no Prometheus is known in this cluster")
    return environment.prometheus_url


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the series of an expression at this moment."""
    with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=10) as answer:
        series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return series


def test_prometheus_scrapes_a_shard_that_asks_for_it(kubectl: Kubectl, shard: Workload, prometheus_url: str) -> None:
    """Alerts and dashboards are tested against what really arrives."""
    (pod,) = kubectl.list("pods", selector=f"{NAME}={shard.name}")
    scraped = f'up{{namespace="{kubectl.namespace}",pod="{pod["metadata"]["name"]}"}} == 1'

    wait_until(
        lambda: bool(query(prometheus_url, scraped)),
        what="Prometheus has scraped the shard",
        limit_seconds=SCRAPED_SECONDS,
        explain=lambda: f"{scraped} has no series",
    )
