"""What is rendered is what a reader finds in the golden files, and passes what a cluster may demand of it."""

import msgspec
import pytest
import yaml

from groundplane.api.v1alpha1 import MAX_NAME_CHARACTERS, OWNED_VARIABLES
from groundplane.tokens import SigningKey
from groundplane_operator import names
from groundplane_operator.render.deployment import PodRevision, render_deployment, try_read_revision
from groundplane_operator.render.pod import PodInputs, pod_inputs, render_pod_template
from groundplane_operator.render.volume_claim import render_volume_claim
from groundplane_shard.settings import read_shard_settings
from groundplane_shard.stores.s3 import parse_store_url
from tests.operator.golden_cases import CASES, GOLDEN, golden_text, rendered
from tests.operator.parts import BUCKET, IN_BUCKET, ON_VOLUME, OTHER_UID, SETTINGS, corpus_of


def template_of(spec, settings=SETTINGS):
    return render_pod_template(pod_inputs(corpus_of(spec, settings)))


def container_of(spec):
    return template_of(spec)["spec"]["containers"][0]


def variables_of(container):
    return {each["name"]: each.get("value") for each in container["env"]}


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_the_golden_ones(case, request):
    """A change of what runs in a cluster is seen by whoever reviews it (`--write-golden` rewrites the files)."""
    path = GOLDEN / f"{case}.yaml"
    if request.config.getoption("--write-golden"):
        path.write_text(golden_text(case))

    assert path.read_text() == golden_text(case)


def test_every_golden_file_is_compared():
    """A file without a case would look true for ever."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_rendered_that_the_api_server_drops(case):
    """Such a field would differ from the live object for ever, and be applied for ever."""

    def empty_paths(part, path=""):
        if part in ("", [], None):
            yield path
        children = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for name, child in children:
            yield from empty_paths(child, f"{path}.{name}")

    found = [path for manifest in rendered(case) for path in empty_paths(manifest)]

    assert [path for path in found if ".annotations." not in path] == []


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_admitted_under_restricted_pod_security(case):
    """A namespace with enforce=restricted would refuse it otherwise."""
    for manifest in rendered(case):
        if manifest["kind"] not in {"Deployment", "Job"}:
            continue
        pod = manifest["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("case", CASES)
def test_every_child_is_found_by_its_labels_and_goes_with_its_resource(case):
    """Drift is watched by label, and nothing must be left behind; only a volume that is to be kept has no owner."""
    for manifest in rendered(case):
        metadata = manifest["metadata"]
        is_kept = manifest["kind"] == "PersistentVolumeClaim" and CASES[case][0].get("deletionPolicy") != "Delete"
        assert metadata["labels"][names.CORPUS_LABEL] == "acme"
        assert metadata["labels"][names.MANAGED_BY_LABEL] == names.FIELD_MANAGER
        assert ("ownerReferences" in metadata) is not is_kept


def test_the_longest_name_still_fits_into_every_child():
    """Names of Services and Jobs become labels of at most 63 characters."""
    longest = "a" * MAX_NAME_CHARACTERS

    assert max(len(names.child_name(longest)), len(names.cleanup_name(longest))) <= 63


@pytest.mark.parametrize("spec", [IN_BUCKET, ON_VOLUME], ids=["bucket", "volume"])
def test_a_shard_accepts_the_settings_that_it_is_given(spec, tmp_path):
    """A pod that the operator makes must not end with exit code 2."""
    for directory in ("corpus", "credentials"):
        (tmp_path / directory).mkdir()
    (tmp_path / "corpus/router-a.pem").write_bytes(SigningKey.generate().public_pem())
    for name in ("access-key", "secret-key"):
        (tmp_path / "credentials" / name).write_text("key")
    variables = variables_of(container_of(spec))
    settings = read_shard_settings(
        {name: value.replace("/etc/groundplane", str(tmp_path)) for name, value in variables.items()}
    )

    assert settings.corpus_key == "t-acme"
    assert (settings.witness_write, settings.host) == (False, "0.0.0.0")


@pytest.mark.parametrize("case", ["tuned", "default-bucket-and-peers", "bucket"])
def test_a_shard_reads_the_bucket_from_the_url_that_it_is_given(case):
    """Endpoint and region travel inside of it."""
    deployment = rendered(case)[-1]
    url = variables_of(deployment["spec"]["template"]["spec"]["containers"][0])["GROUNDPLANE_OBJECT_STORE"]
    location = parse_store_url(url)

    assert location.region == ("us-east-1" if case == "bucket" else "eu-west-1")
    assert location.bucket in {"corpora", "shared"}


@pytest.mark.parametrize("spec", [IN_BUCKET, ON_VOLUME], ids=["bucket", "volume"])
def test_whatever_is_set_for_a_shard_is_owned_by_the_operator_or_may_be_overridden(spec):
    """`podTemplate.env` is refused for exactly the variables that follow from the resource."""
    ours = set(variables_of(container_of(spec)))

    assert ours - set(OWNED_VARIABLES) == {"TMPDIR", "GROUNDPLANE_LANGUAGE"}


def test_equal_inputs_are_equal_pods_whatever_else_differs():
    """Only what is in the inputs can replace a pod; suspending, deleting and granting are not."""
    other = {**IN_BUCKET, "deletionPolicy": "Delete", "suspended": True}

    assert pod_inputs(corpus_of(IN_BUCKET)).digest == pod_inputs(corpus_of(other)).digest


@pytest.mark.parametrize(
    "change",
    [
        {"objectStore": {**BUCKET, "credentialsSecret": {"name": "new"}}},
        {"cache": {"sizeLimit": "1Gi"}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"snapshots": {"keep": 9}},
        {"snapshots": {"every": "1h"}},
        {"podTemplate": {"nodeSelector": {"disk": "ssd"}}},
        {"restoreFrom": {"incarnation": OTHER_UID}},
    ],
    ids=lambda change: ".".join([*change]),
)
def test_whatever_changes_a_pod_changes_its_inputs(change):
    """A change that the digest does not see would never reach the pod."""
    changed = {**IN_BUCKET, **change}

    assert template_of(changed) != template_of(IN_BUCKET)
    assert pod_inputs(corpus_of(changed)).digest != pod_inputs(corpus_of(IN_BUCKET)).digest


def test_a_field_that_a_later_version_adds_leaves_the_digest_of_those_that_do_not_use_it():
    """Else that upgrade would replace every pod of the installation."""

    class LaterInputs(PodInputs, frozen=True, kw_only=True):
        sidecar: str | None = None

    now = pod_inputs(corpus_of(IN_BUCKET))
    later = LaterInputs(**{name: getattr(now, name) for name in now.__struct_fields__})

    assert later.digest == now.digest
    assert msgspec.structs.replace(later, sidecar="x").digest != now.digest


def test_a_deployment_remembers_its_pods():
    """An upgrade of the operator keeps the pods that are there by what the Deployment itself says."""
    corpus = corpus_of(IN_BUCKET)
    revision = PodRevision(template=template_of(IN_BUCKET), inputs="1", change="spec.x")

    assert try_read_revision(render_deployment(corpus, revision)) == revision


def test_a_template_that_was_edited_by_hand_is_not_remembered():
    """It would be kept up as if it were ours."""
    corpus = corpus_of(IN_BUCKET)
    deployment = render_deployment(corpus, PodRevision(template=template_of(IN_BUCKET), inputs="1"))
    annotations = deployment["metadata"]["annotations"]
    annotations[names.TEMPLATE_ANNOTATION] = annotations[names.TEMPLATE_ANNOTATION].replace("groundplane:1", "other:1")

    assert try_read_revision(deployment) is None
    assert try_read_revision({"metadata": {"annotations": {names.TEMPLATE_ANNOTATION: "{"}}}) is None


def test_a_volume_says_whose_data_lies_on_it():
    """A resource of the same name and of another tenant must not take it over."""
    claim = render_volume_claim(corpus_of(ON_VOLUME))

    assert claim is not None
    assert claim["metadata"]["annotations"][names.STORAGE_KEY_ANNOTATION] == "t-acme"


def test_a_suspended_corpus_differs_in_its_replicas_alone():
    """Suspending and resuming must not replace what the pod is."""
    plain, suspended = rendered("bucket")[-1], rendered("suspended")[-1]

    assert (plain["spec"].pop("replicas"), suspended["spec"].pop("replicas")) == (1, 0)
    assert plain["spec"] == suspended["spec"]


def test_golden_files_are_yaml_that_says_the_same():
    """They are applied to a real API server as they are."""
    loaded = list(yaml.safe_load_all((GOLDEN / "tuned.yaml").read_text()))

    assert [each["kind"] for each in loaded] == [each["kind"] for each in rendered("tuned")]
    assert msgspec.json.encode(loaded[2]) == msgspec.json.encode(rendered("tuned")[2])
