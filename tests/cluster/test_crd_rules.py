"""The API server's own judgement of TenantCorpora: what `tests/lib/api` says of one machine, said by a cluster."""

import uuid

import pytest

from groundplane.api.crd import tenant_corpus_crd
from groundplane.api.v1alpha1 import MAX_SUBJECTS, OWNED_VARIABLES
from tests.support.kubernetes_api import CRDS, Refusal, administrator, corpora
from tests.support.manifest_cases import ACCEPTED, ACCEPTED_EDITS, REFUSED, REFUSED_EDITS, manifest


@pytest.fixture(scope="module")
def admin(control_plane):
    with administrator(control_plane) as calls:
        yield calls


@pytest.fixture(scope="module")
def namespace(admin):
    name = f"rules-{uuid.uuid4().hex[:12]}"
    admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def stored(admin, namespace):
    """Store a resource under a name of its own."""

    def store(spec):
        name = f"case-{uuid.uuid4().hex[:12]}"
        return admin.create(corpora(namespace), manifest(spec, name), fieldValidation="Strict")

    return store


def try_create(admin, namespace, spec, name="acme"):
    return admin.create(corpora(namespace), manifest(spec, name), dryRun="All", fieldValidation="Strict")


def try_edit(admin, before, spec):
    metadata = before["metadata"]
    path = corpora(metadata["namespace"], metadata["name"])
    return admin.replace(path, before | {"spec": spec}, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_bad_manifest_is_refused_in_words_that_help(admin, namespace, case):
    """Whoever applies it sees what to change, at the moment of applying it."""
    with pytest.raises(Refusal) as refused:
        try_create(admin, namespace, case.spec, case.name)

    assert refused.value.status == 422
    assert case.word in refused.value.message


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_a_good_manifest_is_stored_as_it_was_written(admin, namespace, spec):
    """A default that the server adds would be a difference for ever in tools that compare manifests."""
    assert try_create(admin, namespace, spec)["spec"] == spec


@pytest.mark.parametrize("case", REFUSED_EDITS.values(), ids=REFUSED_EDITS)
def test_an_edit_that_would_cost_data_is_refused(admin, stored, case):
    """The corpus lies where it lies, and belongs to whom it belongs."""
    before = stored(case.before)
    with pytest.raises(Refusal) as refused:
        try_edit(admin, before, case.after)

    assert refused.value.status == 422
    assert case.word in refused.value.message


@pytest.mark.parametrize(("before", "after"), ACCEPTED_EDITS.values(), ids=ACCEPTED_EDITS)
def test_every_other_edit_is_accepted(admin, stored, before, after):
    """Rules that are too strict can only be left by deleting the resource."""
    assert try_edit(admin, stored(before), after)["spec"] == after


def test_an_unknown_field_is_refused(admin, namespace):
    """A misspelt field would silently do nothing."""
    with pytest.raises(Refusal, match="unknown field"):
        try_create(admin, namespace, {"tenant": "acme", "suspend": True})


def test_a_spec_is_required(admin, namespace):
    """An empty resource names no tenant."""
    with pytest.raises(Refusal, match="spec"):
        admin.create(corpora(namespace), manifest({}) | {"spec": None}, dryRun="All")


def test_a_user_cannot_write_a_status_with_a_spec(stored):
    """The status is the router's directory: only who may write the subresource may write it."""
    assert "status" not in stored({"tenant": "acme"})


def test_status_has_its_own_door_and_its_shape_is_checked(admin, stored):
    """What router, tools and people read of it is what the operator wrote."""
    before = stored({"tenant": "acme"})
    path = f"{corpora(before['metadata']['namespace'], before['metadata']['name'])}/status"
    status = {"storageKey": "t-acme", "incarnation": before["metadata"]["uid"], "documents": 3}
    written = admin.replace(path, before | {"status": status})
    with pytest.raises(Refusal, match="documents"):
        admin.replace(path, written | {"status": {"documents": "three"}})

    assert written["status"] == status
    assert written["metadata"]["generation"] == before["metadata"]["generation"]


def test_two_conditions_of_one_type_are_refused(admin, stored):
    """Which of the two counts nobody could say."""
    before = stored({"tenant": "acme"})
    condition = {"type": "Ready", "status": "True", "reason": "Because"}
    path = f"{corpora(before['metadata']['namespace'], before['metadata']['name'])}/status"
    with pytest.raises(Refusal, match="conditions"):
        admin.replace(path, before | {"status": {"conditions": [condition, condition]}})


def test_the_largest_manifest_is_within_the_cost_of_rules(admin, namespace):
    """The server stops a rule that takes too long, and refuses the resource."""
    subjects = [{"namespace": "agents", "serviceAccount": f"agent-{number}"} for number in range(MAX_SUBJECTS)]
    env = [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(64)]
    labels = {f"label-{number}": "x" * 63 for number in range(64)}
    template = {"env": env, "labels": labels, "annotations": labels, "nodeSelector": labels}
    spec = {"tenant": "x" * 1_024, "subjects": subjects, "podTemplate": template}

    assert try_create(admin, namespace, spec)["spec"] == spec


@pytest.mark.parametrize("variable", OWNED_VARIABLES)
def test_each_variable_that_the_operator_owns_is_refused(admin, namespace, variable):
    """Set by hand, it would start a shard on another corpus's place."""
    spec = {"tenant": "acme", "podTemplate": {"env": [{"name": variable, "value": "x"}]}}
    with pytest.raises(Refusal, match="use the fields of the resource"):
        try_create(admin, namespace, spec)


def test_the_server_changes_nothing_of_the_definition(admin):
    """A field that it drops, a rule for instance, would be found by nobody."""
    wanted = tenant_corpus_crd()["spec"]
    served = admin.get(f"{CRDS}/{tenant_corpus_crd()['metadata']['name']}")["spec"]

    assert served["versions"] == wanted["versions"]
    assert wanted["names"].items() <= served["names"].items()


def test_kubectl_finds_it_under_its_short_name(admin):
    """`kubectl get tc`, and `kubectl get groundplane`."""
    resources = admin.get("/apis/groundplane.dev/v1alpha1")["resources"]
    served = next(one for one in resources if one["name"] == "tenantcorpora")

    assert (served["shortNames"], served["categories"]) == (["tc"], ["groundplane"])
