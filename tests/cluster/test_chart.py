"""The chart before a real API server: it takes every object, admits every pod, and grants what the programs need and no more."""

import msgspec
import pytest
import yaml

from e2e.cluster.control_plane import kubectl
from e2e.cluster.steps import StepFailed, run
from tests.helm.cases import CASES
from tests.support.helm import previous_chart
from tests.support.live_objects import wait_for

OPERATOR_NEEDS = [
    "list tenantcorpora",
    "patch tenantcorpora/status",
    "create deployments.apps",
    "delete pods",
    "get secrets",
]
NOBODY_MAY = ["list secrets", "watch secrets", "delete secrets", "create pods", "create pods/exec", "patch roles"]
JWKS = "/openid/v1/jwks"


class Installed:
    """The objects of a release in a namespace of their own."""

    def __init__(self, control_plane, namespace, manifests):
        self._control_plane = control_plane
        self.namespace = namespace
        self.apply(manifests)

    def apply(self, manifests):
        """Make all of it as the manifests say."""
        for group in (["CustomResourceDefinition"], ["ServiceAccount"], None):
            self._apply([each for each in manifests if group is None or each["kind"] in group])

    def kubectl(self, *arguments):
        """Return what kubectl prints."""
        return run(kubectl(self._control_plane, f"--namespace={self.namespace}", *arguments))

    def may(self, component, right):
        """Whether the ServiceAccount of a component has a right."""
        verb, resource = right.split()
        try:
            return self.kubectl("auth", "can-i", verb, resource, f"--as={self.account(component)}").strip() == "yes"
        except StepFailed:  # "no" ends with 1
            return False

    def account(self, component):
        """Return what the API server calls the ServiceAccount of a component."""
        return f"system:serviceaccount:{self.namespace}:groundplane-{component}"

    def pods(self):
        """Return how many pods there are of each component."""
        found = yaml.safe_load(self.kubectl("get", "pods", "--output=yaml"))["items"]
        components = [each["metadata"]["labels"]["app.kubernetes.io/component"] for each in found]
        return {component: components.count(component) for component in components}

    def _apply(self, manifests):
        command = kubectl(
            self._control_plane,
            "apply",
            "--server-side",
            "--validate=strict",
            f"--namespace={self.namespace}",
            "--filename=-",
        )
        run(msgspec.structs.replace(command, standard_input=yaml.safe_dump_all(manifests).encode()))


def manifests_in(namespace, chart, case):
    """Return the manifests of a case in one namespace alone."""
    values = {**CASES[case], "extraObjects": []}
    if "watch" in values:
        values["watch"] = {**values["watch"], "namespaces": []}
    return chart.manifests(values, f"--namespace={namespace}")


def without_hooks(manifests):
    """Return what Helm upgrades; hooks it makes anew."""
    return [each for each in manifests if "helm.sh/hook" not in each["metadata"].get("annotations", {})]


@pytest.fixture
def install(control_plane, namespace, chart):
    """Install a case in a namespace that admits restricted pods alone, with names of namespaces as they are here."""

    def install(case, chart=chart):
        run(kubectl(control_plane, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"))
        return Installed(control_plane, namespace, manifests_in(namespace, chart, case))

    return install


@pytest.mark.parametrize("case", ["default", "namespaced", "url-embedder"])
def test_every_object_is_taken_and_every_pod_admitted(install, case):
    """A field that is misspelt, or a pod that may do more than it needs, ends an install half way."""
    installed = install(case)

    wait_for(lambda: installed.pods() == {"operator": 1, "router": 2, "test": 1}, "all pods are there", 60)


@pytest.mark.parametrize("case", ["default", "namespaced"])
def test_rights_are_what_is_needed_and_no_more(install, case):
    """What is missing shows as a condition on every corpus; what is too much shows to whoever breaks in."""
    installed = install(case)

    assert [right for right in OPERATOR_NEEDS if not installed.may("operator", right)] == []
    assert [right for right in NOBODY_MAY for who in ("operator", "router") if installed.may(who, right)] == []
    assert installed.may("router", "watch tenantcorpora")
    assert not installed.may("router", "get secrets")
    assert installed.may("router", "create tokenreviews.authentication.k8s.io") is (case == "default")


def test_in_namespaced_mode_the_router_reads_the_cluster_s_keys(install):
    """It has no other way to know who calls, and the chart may grant nothing that is not namespaced."""
    installed = install("namespaced")

    keys = installed.kubectl("get", f"--raw={JWKS}", f"--as={installed.account('router')}")

    assert '"keys"' in keys


def test_named_secrets_are_the_only_ones_that_the_operator_reads(install):
    """In a cluster of many teams it must not be able to read what it does not need."""
    installed = install("everything")

    assert installed.may("operator", "get secrets/bucket-keys")
    assert not installed.may("operator", "get secrets/another")
    assert installed.may("operator", "patch secrets/groundplane-router-key")
    assert not installed.may("operator", "patch secrets/bucket-keys")


@pytest.mark.parametrize("case", ["default", "namespaced"])
def test_an_install_of_the_previous_chart_can_be_upgraded(install, chart, case, tmp_path):
    """A selector or another field that may never change ends an upgrade half way, at everybody who has installed it."""
    previous = previous_chart(tmp_path)
    if previous is None:
        pytest.skip("the chart's history is not at hand")
    installed = install(case, msgspec.structs.replace(chart, chart=previous))

    installed.apply(without_hooks(manifests_in(installed.namespace, chart, case)))

    assert installed.kubectl("get", "deployments", "--output=name").split() == [
        "deployment.apps/groundplane-operator",
        "deployment.apps/groundplane-router",
    ]
