"""The same without a single ClusterRole: Roles alone, and callers verified with the keys that the cluster publishes."""

import pytest

from e2e.cluster.steps import Command, run
from e2e.install.conftest import Installation


@pytest.fixture(scope="module")
def scope() -> str:
    """Give the scope of this module's release."""
    return "namespaces"


def test_an_agent_indexes_and_is_answered(installation: Installation) -> None:
    """A team that may not have ClusterRoles gets the same product."""
    indexed = installation.agents["acme-indexer"].index("handbook/key", "The heron keeps the key under the flower pot.")
    assert indexed.status == 200, indexed.body

    answer = installation.agents["acme-agent"].ground("where is the key?")

    assert [hit["doc_id"] for hit in answer.body["hits"]] == ["handbook/key"]


def test_other_agents_get_none_of_it(installation: Installation) -> None:
    """Keys alone tell tenants apart as well as the API server does."""
    assert installation.agents["globex-agent"].ground("where is the key?").body["hits"] == []
    assert installation.agents["stranger"].ground("where is the key?").status == 403


def test_nothing_cluster_wide_was_made(installation: Installation) -> None:
    """That is the point of this mode."""
    kinds = "clusterroles,clusterrolebindings"

    found = run(
        Command(arguments=("kubectl", "get", kinds, "--selector=app.kubernetes.io/name=groundplane", "--output=name"))
    )

    assert [each for each in found.split() if installation.release.namespace in each] == []
