"""From `helm install` to an answer, and what upgrades and uninstalls leave alone."""

import pytest

from e2e.install.conftest import Installation
from e2e.install.corpora import await_grant, await_ready

CANARY = "The heron of acme keeps the spare key under the third flower pot."
QUESTION = "where is the spare key?"
SPOOFS = {"X-Tenant": "acme", "X-Tenant-Id": "acme", "X-Groundplane-Tenant": "acme", "X-Forwarded-User": "acme"}
READY_SECONDS = 60.0


@pytest.fixture(scope="module")
def indexed(installation: Installation) -> Installation:
    """Give the installation with one document in the corpus of acme."""
    answer = installation.agents["acme-indexer"].index("handbook/key", CANARY)
    assert answer.status == 200, answer.body
    return installation


def found(body: dict[str, list[dict[str, str]]]) -> list[str]:
    """Return the ids of the documents of an answer."""
    return [hit["doc_id"] for hit in body["hits"]]


def test_an_agent_is_answered_with_nothing_but_its_token(indexed: Installation) -> None:
    """This is what it is all for: a ServiceAccount, a projected token, one call."""
    answer = indexed.agents["acme-agent"].ground(QUESTION)

    assert (answer.status, answer.body["tier"], answer.body["semantic"]) == (200, "hybrid", True)
    assert found(answer.body) == ["handbook/key"]


@pytest.mark.parametrize("headers", [{}, SPOOFS], ids=["plain", "claiming-to-be-acme"])
def test_another_tenant_s_agent_gets_none_of_it(indexed: Installation, headers: dict[str, str]) -> None:
    """The tenant is who the token says, whatever the request says."""
    answer = indexed.agents["globex-agent"].ground(QUESTION, **headers)

    assert answer.status == 200
    assert "heron" not in str(answer.body)
    assert found(answer.body) == []


def test_a_pod_without_a_corpus_is_refused(indexed: Installation) -> None:
    """A token of the cluster is no grant."""
    answer = indexed.agents["stranger"].ground(QUESTION)

    assert answer.status == 403
    assert "heron" not in str(answer.body)


def test_an_agent_that_may_read_cannot_write(indexed: Installation) -> None:
    """An agent that was talked into something must not change what all agents are told."""
    assert indexed.agents["acme-agent"].index("handbook/key", "overwritten").status == 403


def test_helm_test_indexes_and_grounds_and_leaves_nothing(installation: Installation) -> None:
    """It is what tells an installer that everything works; it can be run at any time."""
    said = installation.release.test()

    assert "Phase:          Succeeded" in said
    corpora = installation.release.kubectl.list("tenantcorpora", selector="app.kubernetes.io/component=test")
    assert corpora == []


def test_an_upgrade_of_the_release_leaves_the_shards_alone(installation: Installation) -> None:
    """Operator and routers are new, all corpora served on: nothing that a shard is made from has changed."""
    before = installation.shard_pods()

    installation.release.apply(logLevel="debug", metrics={"scrapeAnnotations": True})
    await_one_more_corpus(installation, "after-upgrade")

    assert installation.shard_pods() == before


def test_files_of_a_config_map_are_found_by_their_words(installation: Installation) -> None:
    """All that such a volume shows are links, which the search follows nowhere: it has to begin behind them."""
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "handbook"}}
    installation.release.kubectl.apply({**files, "data": {"valves.md": "Quarzwinder valves are painted ochre."}})

    installation.release.apply(grep={"volume": {"configMap": {"name": "handbook"}}})

    answer = installation.agents["acme-agent"].ground("quarzwinder ochre")
    assert (answer.status, answer.body["tier"]) == (200, "grep")
    assert found(answer.body) != []


def test_an_uninstall_keeps_corpora_and_data(indexed: Installation) -> None:
    """A release can be removed and installed again, by mistake too, and nothing that was indexed is lost."""
    before = indexed.shard_pods()

    indexed.release.uninstall()
    kept = {each["metadata"]["name"] for each in indexed.release.kubectl.list("tenantcorpora", selector="")}
    assert {"acme", "globex", "platform"} <= kept
    assert indexed.shard_pods() == before
    indexed.release.apply()
    await_grant(indexed.agents["acme-agent"], limit_seconds=READY_SECONDS)

    assert found(indexed.agents["acme-agent"].ground(QUESTION).body) == ["handbook/key"]
    assert indexed.shard_pods() == before


def await_one_more_corpus(installation: Installation, name: str) -> None:
    """Make a corpus and return when it is Ready: by then the operator that runs has looked at all of them."""
    acme = installation.release.kubectl.get("tenantcorpus/acme")
    metadata = {"name": name, "namespace": installation.release.namespace}
    spec = {**acme["spec"], "tenant": name, "subjects": []}
    installation.release.kubectl.apply(
        {**{key: acme[key] for key in ("apiVersion", "kind")}, "metadata": metadata, "spec": spec}
    )
    await_ready(installation.release.kubectl, name, limit_seconds=READY_SECONDS)
    installation.release.kubectl.delete(f"tenantcorpus/{name}")
