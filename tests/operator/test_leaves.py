"""A rendered manifest is compared with a live object: nothing is applied in vain, and nothing is missed."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_operator import names
from groundplane_operator.leaves import LIST_KEYS, first_difference, template_difference
from groundplane_operator.render.deployment import PodRevision, render_deployment
from groundplane_operator.render.pod import pod_inputs, render_pod_template
from tests.operator.golden_cases import CASES, rendered
from tests.operator.live_cluster import leaves_of, put, server_side_apply
from tests.operator.parts import IN_BUCKET, corpus_of

MANIFESTS = [(case, manifest) for case in sorted(CASES) for manifest in rendered(case)]
IDS = [f"{case}-{manifest['kind']}" for case, manifest in MANIFESTS]
KEY_NAMES = {name for keys in LIST_KEYS.values() for name in keys}
FOREIGN = st.sampled_from(["", "x", 0, 7, True, [], ["a"], {}, {"name": "x"}])


@st.composite
def disturbed(draw):
    """A manifest and a live object that was made from it, then edited: leaves changed, removed, and others added."""
    manifest = draw(st.sampled_from([manifest for _, manifest in MANIFESTS]))
    live = copy.deepcopy(manifest)
    paths = [path for path, _ in leaves_of(manifest)]
    for path in draw(st.lists(st.sampled_from(paths), max_size=4)):
        if path[-1] not in KEY_NAMES:  # an entry under another key is another entry; none is there twice
            put(live, path, draw(FOREIGN))
    for path in draw(st.lists(st.sampled_from(paths), max_size=3)):
        if not any(isinstance(step, tuple) for step in path):
            put(live, (*path[:-1], "foreign"), draw(FOREIGN))
    return manifest, live


@pytest.mark.parametrize("manifest", [manifest for _, manifest in MANIFESTS], ids=IDS)
def test_a_manifest_equals_itself(manifest):
    """In a steady state nothing is applied."""
    assert first_difference(manifest, copy.deepcopy(manifest)) is None


@given(disturbed())
@settings(deadline=None)
def test_applying_a_manifest_makes_any_live_object_equal(case):
    """Else it would be applied at every look, for ever."""
    manifest, live = case
    after, _ = server_side_apply(live, set(), manifest)

    assert first_difference(manifest, after) is None


@given(disturbed())
@settings(deadline=None)
def test_no_difference_means_that_every_rendered_leaf_is_there(case):
    """What is not seen here is never repaired."""
    manifest, live = case
    found = dict(leaves_of(live))
    wrong = [path for path, value in leaves_of(manifest) if value not in ("", []) and found.get(path) != value]

    assert (first_difference(manifest, live) is None) == (wrong == [])


@given(st.sampled_from([manifest for _, manifest in MANIFESTS]), FOREIGN)
@settings(deadline=None)
def test_fields_and_entries_of_others_do_not_matter(manifest, value):
    """Webhooks, autoscalers and people add what is theirs, and keep it."""
    live = copy.deepcopy(manifest)
    live["metadata"]["labels"]["team"] = value
    live["status"] = {"x": value}
    if manifest["kind"] == "Deployment":
        pod = live["spec"]["template"]["spec"]
        pod["containers"].insert(0, {"name": "injected", "image": "proxy"})
        pod["containers"][1]["env"].reverse()
        pod["containers"][1]["terminationMessagePath"] = "/dev/termination-log"
        pod["dnsPolicy"] = value

    assert first_difference(manifest, live) is None


def test_the_first_difference_is_named_by_its_path():
    """It goes into a condition, for people; the order is that of the names, so it is the same at every look."""
    manifest = rendered("bucket")[-1]
    live = copy.deepcopy(manifest)
    live["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "other"
    live["spec"]["template"]["spec"]["volumes"].pop()

    path = "spec.template.spec.containers[shard].env[GROUNDPLANE_CORPUS_KEY].value"
    assert first_difference(manifest, live) == path


@pytest.mark.parametrize(
    ("given_amount", "shown"),
    [("1000m", "1"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), (1_073_741_824, "1Gi"), ("1024Mi", "1Gi")],
)
def test_a_quantity_that_the_api_server_writes_in_another_way_is_no_difference(given_amount, shown):
    """It canonicalises them; a pod would be replaced for nothing, for ever."""
    rendered_amount = {"spec": {"resources": {"requests": {"storage": given_amount}}}}

    assert first_difference(rendered_amount, {"spec": {"resources": {"requests": {"storage": shown}}}}) is None
    assert first_difference(rendered_amount, {"spec": {"resources": {"requests": {"storage": "3"}}}}) is not None


def test_a_list_without_keys_belongs_to_whoever_wrote_it_whole():
    """A peer that somebody adds to a policy by hand is a way in that must be closed."""
    manifest = rendered("bucket")[3]
    live = copy.deepcopy(manifest)
    live["spec"]["ingress"].append({"from": [{"podSelector": {}}]})

    assert first_difference(manifest, live) == "spec.ingress"


def test_a_volume_of_another_kind_differs_although_it_has_no_fields():
    """`emptyDir: {}` says something by being there."""
    manifest = rendered("deleted")[-1]
    live = copy.deepcopy(manifest)
    live["spec"]["template"]["spec"]["volumes"][0] = {"name": "work", "hostPath": {"path": "/"}}

    assert first_difference(manifest, live) == "spec.template.spec.volumes[work].emptyDir"


def test_a_missing_object_differs():
    """A child that was deleted by hand is made again."""
    assert first_difference(rendered("bucket")[0], None) == "apiVersion"


def test_a_field_that_is_rendered_no_longer_is_a_difference():
    """Server-side apply would remove it; the seal is how anybody finds out that it has to."""
    before = render_deployment(corpus_of({**IN_BUCKET, "podTemplate": {"nodeSelector": {"disk": "ssd"}}}), revision())
    tuned = {**IN_BUCKET, "podTemplate": {"nodeSelector": {"disk": "ssd"}}}
    live, owned = server_side_apply(None, set(), render_deployment(corpus_of(tuned), revision(tuned)))
    wanted = render_deployment(corpus_of(IN_BUCKET), revision())
    after, _ = server_side_apply(live, owned, wanted)

    assert before["metadata"]["annotations"][names.APPLIED_ANNOTATION]
    assert first_difference(wanted, live) is not None
    assert "nodeSelector" not in after["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("wanted", "known", "path"),
    [
        pytest.param({"spec": {"a": 1}}, {"spec": {"a": 1}}, "", id="equal"),
        pytest.param({"spec": {"a": 2}}, {"spec": {"a": 1}}, "spec.a", id="changed"),
        pytest.param({"spec": {}}, {"spec": {"a": 1}}, "spec.a", id="removed"),
        pytest.param({"spec": {"b": 1, "a": 1}}, {"spec": {}}, "spec.a", id="added"),
    ],
)
def test_the_difference_of_two_templates_goes_both_ways(wanted, known, path):
    """A roll-out says what caused it, also where a field was taken away."""
    assert template_difference(wanted, known) == path


def revision(spec=IN_BUCKET):
    inputs = pod_inputs(corpus_of(spec))
    return PodRevision(template=render_pod_template(inputs), inputs=inputs.digest)
