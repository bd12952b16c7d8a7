"""Whatever happens, in whatever order, the same children come of it; and then nothing more is written."""

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_operator import names
from groundplane_operator.steps import Done, Pause, Refuse
from tests.operator.live_cluster import LiveCluster
from tests.operator.parts import BUCKET, IN_BUCKET, OTHER_UID

MOST_PASSES = 12
SPECS = [
    IN_BUCKET,
    {**IN_BUCKET, "suspended": True},
    {**IN_BUCKET, "resources": {"limits": {"memory": "2Gi"}}},
    {**IN_BUCKET, "podTemplate": {"nodeSelector": {"disk": "ssd"}, "env": [{"name": "A", "value": "1"}]}},
    {**IN_BUCKET, "subjects": [{"namespace": "agents", "serviceAccount": "a"}]},
    {**IN_BUCKET, "deletionPolicy": "Delete"},
    {**IN_BUCKET, "objectStore": {**BUCKET, "credentialsSecret": {"name": "new"}}},
]
KINDS = ["ServiceAccount", "ConfigMap", "Service", "NetworkPolicy", "Deployment"]
EVENTS = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from(SPECS)),
    st.tuples(st.just("remove"), st.sampled_from(KINDS)),
    st.tuples(st.just("vandalise"), st.sampled_from(KINDS)),
    st.tuples(st.just("label"), st.sampled_from(KINDS)),
    st.tuples(st.just("pass"), st.integers(1, 3)),
    st.tuples(st.just("write"), st.integers(1, 50)),
)


def happen(cluster, event):
    kind, value = event
    live = cluster.objects.get((value, "corpus-acme")) if isinstance(value, str) else None
    if kind == "edit":
        cluster.edit(value)
    elif kind == "remove":
        cluster.remove_child(value)
    elif kind == "pass":
        for _ in range(value):
            cluster.pass_over()
    elif kind == "write":
        cluster.sequence += value
        cluster.now += value
    elif live is not None and kind == "vandalise":
        live["metadata"]["labels"] = {**live["metadata"]["labels"], names.COMPONENT_LABEL: "mine"}
        live.get("spec", {}).pop("type", None)
        live.get("spec", {}).get("template", {}).get("metadata", {}).pop("labels", None)
    elif live is not None:
        live["metadata"]["labels"] = {**live["metadata"]["labels"], "team": "search"}


def settle(cluster, name="acme"):
    """Let passes go on until nothing is left to do; return the last step and how many it took."""
    for count in range(1, MOST_PASSES + 1):
        step = cluster.pass_over(name)
        if step is None or isinstance(step, (Done, Refuse, Pause)):
            return step, count
    raise AssertionError(f"no end after {MOST_PASSES} passes: {step}")


def shown(cluster):
    """Return the children as users see them: without what servers count up, and without the witness's time."""
    found = {}
    for key, live in cluster.objects.items():
        live = copy.deepcopy(live)
        live.pop("status", None)
        for name in ("uid", "generation"):
            live["metadata"].pop(name, None)
        annotations = live["metadata"].get("annotations", {})
        for name in (names.CHANGE_ANNOTATION, names.APPLIED_ANNOTATION, names.WITNESSED_ANNOTATION):
            annotations.pop(name, None)
        annotations.pop("deployment.kubernetes.io/revision", None)
        live["metadata"]["labels"].pop("team", None)
        live.get("data", {}).pop(names.WITNESS_FILE, None)
        found[key] = live
    return found


@given(st.lists(EVENTS, max_size=12), st.sampled_from(SPECS))
@settings(deadline=None, max_examples=40)
def test_any_order_and_repetition_of_events_ends_in_the_children_of_the_last_spec(events, last):
    """Events are lost, repeated and late; the state of the cluster must not depend on them."""
    busy, quiet = LiveCluster(), LiveCluster()
    busy.create(IN_BUCKET)
    for event in events:
        happen(busy, event)
    busy.edit(last)
    quiet.create(last)
    settle(busy)
    settle(quiet)

    assert shown(busy) == shown(quiet)


@given(st.lists(EVENTS, max_size=8), st.sampled_from(SPECS))
@settings(deadline=None, max_examples=40)
def test_nothing_is_written_in_a_steady_state(events, last):
    """A hundred corpora for ten minutes: not one mutating call."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    for event in [*events, ("edit", last)]:
        happen(cluster, event)
    settle(cluster)
    cluster.now += 60  # the witness that was held back is due
    settle(cluster)
    cluster.writes.clear()
    for _ in range(20):
        cluster.now += 30
        cluster.pass_over()

    assert cluster.writes == []


@given(st.integers(0, 20), st.sampled_from(SPECS))
@settings(deadline=None, max_examples=40)
def test_an_operator_that_dies_after_any_write_is_gone_on_from(writes, spec):
    """The next process knows nothing but what it sees."""
    cluster, whole = LiveCluster(), LiveCluster()
    cluster.create(spec)
    whole.create(spec)
    settle(whole)

    class Killed(BaseException):
        pass

    class Mortal(list[str]):
        def append(self, write):
            if len(self) >= writes:
                raise Killed
            super().append(write)

    cluster.writes = Mortal()
    try:
        settle(cluster)
    except Killed:
        cluster.writes = []
    settle(cluster)

    assert shown(cluster) == shown(whole)


def test_a_new_corpus_is_done_in_five_passes():
    """Claims, children, pods, done: what five hundred corpora at once cost is this times five hundred."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    _, passes = settle(cluster)

    assert passes <= 5
    assert cluster.resources["acme"].status.observed_generation == 1
    assert cluster.writes.count("apply Deployment") == 1


def test_a_field_that_the_spec_no_longer_has_leaves_the_cluster_too():
    """Else a node selector could never be taken back."""
    cluster = LiveCluster()
    cluster.create({**IN_BUCKET, "podTemplate": {"nodeSelector": {"disk": "ssd"}}})
    settle(cluster)
    cluster.edit(IN_BUCKET)
    settle(cluster)

    assert "nodeSelector" not in cluster.objects["Deployment", "corpus-acme"]["spec"]["template"]["spec"]


def test_what_others_added_is_kept():
    """Labels of a cost centre, a sidecar of a webhook."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    settle(cluster)
    deployment = cluster.objects["Deployment", "corpus-acme"]
    deployment["metadata"]["labels"]["team"] = "search"
    deployment["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    cluster.edit({**IN_BUCKET, "resources": {"limits": {"memory": "2Gi"}}})
    settle(cluster)
    after = cluster.objects["Deployment", "corpus-acme"]

    assert after["metadata"]["labels"]["team"] == "search"
    assert [each["name"] for each in after["spec"]["template"]["spec"]["containers"]] == ["shard", "proxy"]


def test_a_config_map_with_a_foreign_key_is_made_anew_with_its_witness():
    """The key is gone for good, and the store's past is still known."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    settle(cluster)
    before = cluster.objects["ConfigMap", "corpus-acme"]["data"]
    cluster.objects["ConfigMap", "corpus-acme"]["data"] = {**before, "operator-evil.pem": "EVIL"}
    settle(cluster)

    assert cluster.objects["ConfigMap", "corpus-acme"]["data"] == before


def test_the_witness_is_raised_at_most_every_thirty_seconds_and_reaches_the_end():
    """A corpus that is written to must not write to the API server at every look."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    settle(cluster)
    cluster.writes.clear()
    for _ in range(30):
        cluster.now += 10
        cluster.sequence += 1
        cluster.pass_over()
    cluster.now += 30
    settle(cluster)

    assert cluster.writes.count("apply ConfigMap") <= 12
    witness = cluster.objects["ConfigMap", "corpus-acme"]["data"][names.WITNESS_FILE]
    assert f'"sequence":{cluster.sequence}' in witness


def test_a_paused_corpus_is_written_once_and_repaired_afterwards():
    """Whoever works on it by hand is left alone, and what they broke is put back when they are through."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET)
    settle(cluster)
    cluster.annotate({names.PAUSED_ANNOTATION: "true"})
    cluster.remove_child("Service")
    cluster.writes.clear()
    for _ in range(5):
        cluster.pass_over()
    paused = list(cluster.writes)
    cluster.annotate({})
    settle(cluster)

    assert paused == ["status"]
    assert ("Service", "corpus-acme") in cluster.objects


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_deleted_corpus_leaves_nothing_in_the_cluster(policy):
    """Neither policy leaves children; Delete reports what became of the bucket."""
    cluster = LiveCluster()
    cluster.create({**IN_BUCKET, "deletionPolicy": policy})
    settle(cluster)
    cluster.delete()
    settle(cluster)

    assert cluster.resources == {}
    assert cluster.objects == {}
    assert cluster.events == (["CleanedUp"] if policy == "Delete" else [])


def test_a_kept_volume_serves_the_next_resource_of_its_name():
    """deletionPolicy Retain on a volume: the data is there for restoreFrom."""
    on_volume = {"tenant": "acme", "storage": {"size": "10Gi"}}
    cluster = LiveCluster()
    first = cluster.create(on_volume)
    settle(cluster)
    cluster.delete()
    kept = set(cluster.objects)
    cluster.create({**on_volume, "restoreFrom": {"incarnation": first.uid}})
    settle(cluster)

    assert kept == {("PersistentVolumeClaim", "corpus-acme")}
    assert cluster.pass_over() == Done(seconds=cluster.settings.poll_seconds)


def test_a_bad_image_stops_the_fleet_at_the_first_corpora_and_its_repair_goes_on():
    """Three of ten corpora lose a pod's worth of safety, not ten."""
    cluster = LiveCluster()
    tenants = [f"t{number}" for number in range(10)]
    for tenant in tenants:
        cluster.create({**IN_BUCKET, "tenant": tenant}, name=tenant)
        settle(cluster, tenant)

    def roll(image):
        cluster.settings = msgspec.structs.replace(cluster.settings, shard_image=image)
        for tenant in tenants * 3:
            cluster.pass_over(tenant)
        deployments = [live for (kind, _), live in cluster.objects.items() if kind == "Deployment"]
        images = [live["spec"]["template"]["spec"]["containers"][0]["image"] for live in deployments]
        return images.count(image)

    cluster.broken_images = {"groundplane:2"}

    assert 1 <= roll("groundplane:2") <= cluster.settings.max_concurrent_rollouts
    assert roll("groundplane:3") == 10


def test_of_two_corpora_of_one_tenant_the_second_gets_nothing_until_the_first_is_gone():
    """A tenant id that is taken gives nobody else's data, and is not lost when it becomes free."""
    cluster = LiveCluster()
    cluster.create(IN_BUCKET, name="first")
    settle(cluster, "first")
    cluster.create(IN_BUCKET, name="second")

    refused, _ = settle(cluster, "second")
    others = [name for _, name in cluster.objects if name == "corpus-second"]
    cluster.delete("first")
    taken, _ = settle(cluster, "second")

    assert isinstance(refused, Refuse)
    assert refused.seconds is not None
    assert others == []
    assert isinstance(taken, Done)


def test_restoring_from_another_life_is_part_of_the_pod_alone():
    """The other children do not know of it."""
    plain, restored = LiveCluster(), LiveCluster()
    plain.create(IN_BUCKET)
    restored.create({**IN_BUCKET, "restoreFrom": {"incarnation": OTHER_UID}})
    settle(plain)
    settle(restored)
    before, after = shown(plain), shown(restored)
    differing = {key for key in before if before[key] != after[key]}

    assert differing == {("Deployment", "corpus-acme")}
