"""The operator before a real API server: what users and accidents do to a corpus, and where it ends."""

import pytest

from groundplane_operator.names import FINALIZER
from tests.cluster.operator_scene import CHILD_KINDS, scene_of
from tests.support.live_objects import wait_for

EDITS = {
    "ConfigMap": {"data": {"foreign": "kept", "witness.json": None}},
    "Deployment": {"metadata": {"labels": {"foreign": "kept"}}, "spec": {"replicas": 3}},
    "NetworkPolicy": {"metadata": {"labels": {"foreign": "kept"}}, "spec": {"policyTypes": ["Egress"]}},
    "Service": {"metadata": {"labels": {"foreign": "kept"}}, "spec": {"selector": {"groundplane.dev/corpus": "other"}}},
    "ServiceAccount": {"metadata": {"labels": {"foreign": "kept"}}, "automountServiceAccountToken": True},
}


@pytest.fixture
def scene(control_plane, namespace, tmp_path):
    with scene_of(control_plane, namespace, tmp_path) as scene:
        scene.make_secret()
        scene.operator.start()
        yield scene


def test_a_corpus_gets_its_children_and_nothing_of_the_framework(scene):
    """What stands on objects is the operator's own: no annotation or finalizer of a library that a later version may drop."""
    corpus = scene.create()

    children = scene.wait_for_children()

    owners = {kind: live["metadata"]["ownerReferences"][0]["uid"] for kind, live in children.items()}
    assert owners == dict.fromkeys(CHILD_KINDS, corpus["metadata"]["uid"])
    assert "kopf" not in f"{scene.corpus()} {children}"
    assert scene.corpus()["metadata"].get("finalizers") is None


def test_no_generation_counts_as_finished_before_it_is(scene):
    """`kubectl wait` must not pass while the shard has never served."""
    scene.create()
    scene.wait_for_children()

    assert "observedGeneration" not in scene.corpus()["status"]
    assert scene.condition("Ready")["status"] == "False"


def test_nothing_is_written_while_nothing_changes(scene):
    """A quiet cluster is one in which a write means something: the resync of ten seconds passes, and no call is made."""
    scene.create()
    scene.wait_for_children()
    resyncs = scene.operator.log_path.read_text().count('"resynced"')
    before = len(scene.proxy.writes)

    wait_for(lambda: scene.operator.log_path.read_text().count('"resynced"') >= resyncs + 2, "two more resyncs")

    assert [f"{call.method} {call.path}" for call in scene.proxy.writes[before:]] == []


@pytest.mark.parametrize("kind", CHILD_KINDS)
def test_a_child_that_is_deleted_comes_back(scene, kind):
    """Somebody's mistake with kubectl costs seconds."""
    scene.create()
    before = scene.wait_for_children()[kind]["metadata"]["uid"]

    scene.api.delete(kind, "corpus-acme")

    wait_for(
        lambda: (live := scene.children().get(kind)) is not None and live["metadata"]["uid"] != before,
        f"{kind} is back",
        30,
        scene.log_end,
    )


@pytest.mark.parametrize("kind", CHILD_KINDS)
def test_an_owned_field_that_is_edited_is_set_again_and_a_foreign_one_is_kept(scene, kind):
    """The operator owns what it renders, and nothing else."""
    scene.create()
    before = scene.wait_for_children()[kind]

    scene.api.merge(kind, "corpus-acme", EDITS[kind])

    def owned(live):
        return {name: live.get(name) for name in ("spec", "automountServiceAccountToken")}

    wait_for(lambda: owned(scene.children()[kind]) == owned(before), f"{kind} is as before", 30, scene.log_end)
    live = scene.children()[kind]
    assert "kept" in {live["metadata"]["labels"].get("foreign"), live.get("data", {}).get("foreign")}


def test_an_object_of_somebody_else_is_not_taken_over(scene):
    """The name of a child may be in use; what stands there is not ours to change."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "corpus-acme"}, "data": {"theirs": "1"}}
    theirs = scene.api.create(body)

    scene.create()

    scene.wait_for_condition("Degraded", "True", "NameTaken")
    live = scene.api.get("ConfigMap", "corpus-acme")
    assert live is not None
    assert live["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


def test_a_tenant_belongs_to_the_resource_that_had_it_first(scene):
    """Two corpora of one tenant would be two truths; the second is refused, and gets it when the first is gone."""
    scene.create("first", tenant="acme")
    scene.wait_for_condition("Accepted", "True", "Accepted", "first")
    scene.create("second", tenant="acme")
    scene.wait_for_condition("Accepted", "False", "CorpusClaimed", "second")
    assert scene.children("second") == {}

    scene.api.delete("TenantCorpus", "first")

    scene.wait_for_condition("Accepted", "True", "Accepted", "second", 60)


def test_a_missing_secret_is_named_and_its_appearance_heals(control_plane, namespace, tmp_path):
    """The order in which things are applied does not matter, and the message says what is missing."""
    with scene_of(control_plane, namespace, tmp_path) as scene:
        scene.operator.start()
        scene.operator.await_ready()
        scene.create()
        scene.wait_for_condition("Degraded", "True", "SecretMissing", seconds=10)
        assert "corpora does not exist" in scene.condition("Degraded")["message"]

        scene.make_secret()

        wait_for(lambda: "Deployment" in scene.children(), "the Deployment is made", 30, scene.log_end)


def test_a_suspended_corpus_has_no_pod_and_keeps_everything_else(scene):
    """Suspending is cheap to undo."""
    scene.create()
    before = set(scene.wait_for_children())

    scene.api.merge("TenantCorpus", "acme", {"spec": {"suspended": True}})

    scene.wait_for_condition("Suspended", "True", "Suspended")
    wait_for(lambda: scene.children()["Deployment"]["spec"]["replicas"] == 0, "no pod is wanted", 30, scene.log_end)
    assert set(scene.children()) == before


def test_a_paused_corpus_is_left_alone(scene):
    """Somebody who repairs by hand must not be undone."""
    scene.create()
    scene.wait_for_children()
    scene.api.merge("TenantCorpus", "acme", {"metadata": {"annotations": {"groundplane.dev/paused": "true"}}})
    scene.wait_for_condition("Paused", "True", "Paused")
    before = len(scene.proxy.writes)

    scene.api.delete("Service", "corpus-acme")
    resyncs = scene.operator.log_path.read_text().count('"resynced"')
    wait_for(lambda: scene.operator.log_path.read_text().count('"resynced"') > resyncs, "one more resync")

    assert len(scene.proxy.writes) == before
    scene.api.merge("TenantCorpus", "acme", {"metadata": {"annotations": {"groundplane.dev/paused": None}}})
    wait_for(lambda: "Service" in scene.children(), "the Service is back", 30, scene.log_end)


def test_a_deleted_corpus_leaves_nothing_but_the_keys(scene):
    """Children go with their resource; policy Retain puts no finalizer in anybody's way."""
    scene.create()
    scene.wait_for_children()

    scene.api.delete("TenantCorpus", "acme")

    wait_for(lambda: not scene.children(), "the children are gone", 60, scene.log_end)
    keys = ["corpora", "groundplane-operator-key", "groundplane-router-key"]
    assert {kind: found for kind, found in scene.everything().items() if found} == {"Secret": keys}


def test_deletion_with_policy_delete_waits_for_the_clean_up(scene):
    """The resource is there until its bytes are gone: a Job is started, and the finalizer is ours alone."""
    scene.create(deletionPolicy="Delete")
    scene.wait_for_children()
    assert scene.corpus()["metadata"]["finalizers"] == [FINALIZER]

    scene.api.delete("TenantCorpus", "acme")

    wait_for(lambda: scene.api.get("Job", "cleanup-acme"), "the clean-up Job is started", 150, scene.log_end)
    scene.end_pods("cleanup-acme-")
    wait_for(lambda: scene.api.get("TenantCorpus", "acme") is None, "the resource is gone", 60, scene.log_end)
    assert [event["reason"] for event in scene.api.list_all("Event") if event["reason"] == "CleanedUp"] == ["CleanedUp"]


def test_a_misspelt_part_of_the_pod_is_named(scene):
    """The API server drops what it does not know; the pod would run where it must not, and be applied for ever."""
    scene.create(podTemplate={"affinity": {"nodeAfinity": {}}})

    scene.wait_for_condition("Degraded", "True", "ApiRefused")
    assert "nodeAfinity" in scene.condition("Degraded")["message"]
