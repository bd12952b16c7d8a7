"""Which pods Prometheus scrapes."""

from typing import Any

import pytest

from e2e.cluster.targets import render_targets


def pod(address: str = "10.244.0.10", **annotations: str) -> dict[str, Any]:
    """Return a pod as the API server lists it."""
    named = {f"prometheus.io/{name}": value for name, value in annotations.items()}
    metadata = {"namespace": "tenant", "name": "shard-0", "annotations": named}
    return {"metadata": metadata, "status": {"podIP": address} if address else {}}


def test_a_pod_that_asks_is_scraped_where_it_says():
    """The annotations are the contract between the chart and any Prometheus."""
    assert render_targets([pod(scrape="true", port="9100", path="/m")]) == [
        {
            "targets": ["10.244.0.10:9100"],
            "labels": {"namespace": "tenant", "pod": "shard-0", "__metrics_path__": "/m"},
        }
    ]


@pytest.mark.parametrize(
    "unwanted",
    [
        pytest.param(pod(), id="does-not-ask"),
        pytest.param(pod(scrape="false", port="1"), id="refuses"),
        pytest.param(pod(scrape="true"), id="names-no-port"),
        pytest.param(pod("", scrape="true", port="1"), id="has-no-address-yet"),
        pytest.param({"metadata": {"namespace": "a", "name": "b"}}, id="has-nothing"),
    ],
)
def test_other_pods_are_left_alone(unwanted):
    """A target that is never up would hide one that went down."""
    assert render_targets([unwanted]) == []
