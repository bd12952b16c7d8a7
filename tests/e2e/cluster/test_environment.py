"""Which cluster the tests run in, and what is said where there can be none."""

import pytest

from e2e.cluster.environment import kind_for
from e2e.cluster.steps import StepFailed


@pytest.mark.parametrize(
    ("environment", "machine", "kind"),
    [
        pytest.param({"KUBECONFIG": "/c"}, {"has_kind": True, "is_root": True}, "given", id="kubeconfig-comes-first"),
        pytest.param({}, {"has_kind": True, "is_root": True}, "kind", id="kind-before-our-own"),
        pytest.param({}, {"has_kind": True, "is_root": False}, "kind", id="kind-needs-no-root"),
        pytest.param({}, {"has_kind": False, "is_root": True}, "own", id="our-own"),
        pytest.param({"GROUNDPLANE_CLUSTER": "own"}, {"has_kind": True, "is_root": True}, "own", id="own-is-chosen"),
        pytest.param(
            {"GROUNDPLANE_CLUSTER": "kind", "KUBECONFIG": "/c"},
            {"has_kind": True, "is_root": True},
            "kind",
            id="kind-is-chosen",
        ),
    ],
)
def test_the_cluster_is_the_nearest_one(environment, machine, kind):
    """People with a cluster at hand must not need root, and nobody's shell decides by accident."""
    assert kind_for(environment, **machine) == kind


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        pytest.param({}, "install docker and kind; set KUBECONFIG; run this as root", id="nothing"),
        pytest.param({"GROUNDPLANE_CLUSTER": "own"}, "run this as root", id="own-without-root"),
        pytest.param({"GROUNDPLANE_CLUSTER": "kind"}, "no kind on this machine", id="kind-without-kind"),
        pytest.param({"GROUNDPLANE_CLUSTER": "k3s"}, "expected own or kind", id="unknown"),
    ],
)
def test_without_a_cluster_it_is_said_what_to_do(environment, said):
    """`make e2e` fails where it cannot run: it never passes by skipping."""
    with pytest.raises(StepFailed, match=said):
        kind_for(environment, has_kind=False, is_root=False)
