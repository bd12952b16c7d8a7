"""What the operator renders, before a real API server: strictly valid, admitted as restricted, and never a difference again."""

import copy
import json
import uuid

import pytest

from e2e.cluster.control_plane import kubectl
from e2e.cluster.steps import run
from groundplane_operator.leaves import first_difference
from groundplane_operator.names import FIELD_MANAGER
from tests.operator.golden_cases import CASES, rendered

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
APPLY = (
    "apply",
    "--server-side",
    f"--field-manager={FIELD_MANAGER}",
    "--force-conflicts",
    "--validate=strict",
    "-o=json",
)


@pytest.fixture(scope="module")
def restricted(control_plane):
    """Give a namespace that admits restricted pods alone; its pods' ServiceAccount and priority exist."""
    name = f"golden-{uuid.uuid4().hex[:12]}"
    run(kubectl(control_plane, "create", "namespace", name))
    run(kubectl(control_plane, "label", "namespace", name, RESTRICTED))
    run(kubectl(control_plane, "create", "serviceaccount", "corpus-acme", "--namespace", name))
    run(kubectl(control_plane, "create", "priorityclass", "high", "--value=1000"))
    return name


@pytest.fixture
def apply(control_plane, restricted, tmp_path):
    """Apply a manifest as the operator does, in that namespace; return what the server made of it."""

    def call(manifest, *options):
        path = tmp_path / f"{manifest['kind']}.json"
        path.write_text(json.dumps(in_namespace(manifest, restricted)))
        return json.loads(run(kubectl(control_plane, *APPLY, *options, "-f", str(path))))

    return call


def in_namespace(manifest, namespace):
    moved = copy.deepcopy(manifest)
    moved["metadata"]["namespace"] = namespace
    return moved


def unowned(manifest):
    """Return the manifest without its owner, which is not there: the garbage collector would remove the object."""
    stored = copy.deepcopy(manifest)
    del stored["metadata"]["ownerReferences"]
    return stored


@pytest.mark.parametrize("case", CASES)
def test_every_golden_manifest_is_valid_and_equal_to_what_the_server_keeps(apply, restricted, case):
    """A field that the server does not know is refused; one that it writes in another way would be applied for ever."""
    differences = {}
    for manifest in rendered(case):
        live = apply(manifest, "--dry-run=server")
        differences[manifest["kind"]] = first_difference(in_namespace(manifest, restricted), live)

    assert differences == dict.fromkeys(differences)


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_admitted_by_a_restricted_namespace(apply, case):
    """The controllers make the pods, so a Deployment that is accepted says nothing about them."""
    templates = [each["spec"]["template"] for each in rendered(case) if each["kind"] in {"Deployment", "Job"}]
    for template in templates:
        metadata = {**template["metadata"], "name": "admitted", "namespace": ""}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

        assert apply(pod, "--dry-run=server")["metadata"]["name"] == "admitted"


def test_a_field_that_is_rendered_no_longer_leaves_the_server_too(apply):
    """That is what the seal is for: the next manifest differs by it, and applying it removes what is gone."""
    before, after = unowned(rendered("tuned")[-1]), unowned(rendered("bucket")[-1])
    live = apply(before)
    difference = first_difference(in_namespace(after, live["metadata"]["namespace"]), live)
    pod = apply(after)["spec"]["template"]["spec"]

    assert difference is not None
    assert "nodeSelector" not in pod
    assert "resources" not in pod["containers"][0] or pod["containers"][0]["resources"] == {}


def test_what_others_own_survives_and_is_no_difference(apply, control_plane):
    """A label of a cost centre, a sidecar of a webhook."""
    manifest = unowned(rendered("bucket")[-1])
    manifest["metadata"]["name"] = "shared"
    namespace = apply(manifest)["metadata"]["namespace"]
    run(kubectl(control_plane, "label", "deployment", "shared", "team=search", "--namespace", namespace))
    live = apply(manifest)

    assert live["metadata"]["labels"]["team"] == "search"
    assert first_difference(in_namespace(manifest, namespace), live) is None
