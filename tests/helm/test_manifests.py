"""What must hold of the chart's objects whatever the values are."""

import pytest

from groundplane.api.v1alpha1 import KIND
from groundplane_operator.cache import CHILD_KINDS
from groundplane_operator.cluster import KINDS
from groundplane_operator.keys import SECRET_NAMES
from groundplane_operator.names import COMPONENT_LABEL
from groundplane_operator.observed import ChildKind
from groundplane_operator.settings import read_operator_settings
from tests.helm.cases import CASES
from tests.helm.objects import named, of_kind, pods, rules, variables

NAME_LABEL = "app.kubernetes.io/name"


@pytest.fixture(scope="module", params=CASES)
def manifests(cases, request):
    return cases[request.param]


def test_every_pod_is_admitted_under_restricted_pod_security(manifests):
    """A namespace with enforce=restricted would refuse it otherwise."""
    for _, pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_only_who_calls_the_api_server_has_a_token_for_it(manifests):
    """A token that nobody needs is only good for whoever breaks in."""
    assert {name: pod["automountServiceAccountToken"] for name, pod in pods(manifests)} == {
        "groundplane-operator": True,
        "groundplane-router": True,
        "groundplane-test": False,
    }
    assert [each["automountServiceAccountToken"] for each in of_kind(manifests, "ServiceAccount")] == [False] * 3


def test_no_right_has_a_wildcard(manifests):
    """A wildcard grants what the next version of Kubernetes brings."""
    for name, rule in rules(manifests):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], name


def test_nobody_lists_secrets_or_enters_pods(manifests):
    """Either would be every tenant's data, at once."""
    for name, rule in rules(manifests):
        if "secrets" in rule["resources"]:
            assert set(rule["verbs"]) <= {"get", "create", "patch"}, name
        assert not {"pods/exec", "pods/attach", "pods/portforward", "nodes/proxy"} & set(rule["resources"]), name


def test_the_operator_may_change_its_own_two_secrets_and_no_other(manifests):
    """Whoever can write Secrets of a namespace can become anybody in it."""
    changing = [
        (sorted(rule["resourceNames"]), rule["verbs"])
        for _, rule in rules(manifests)
        if "secrets" in rule["resources"] and "patch" in rule["verbs"]
    ]

    assert changing == [(sorted(SECRET_NAMES.values()), ["get", "patch"])]


@pytest.mark.parametrize("case", ["default", "namespaced"])
def test_the_operator_may_do_to_each_kind_what_it_does(cases, case):
    """A kind of child that is added to the operator and not to its role stops every corpus of every cluster."""
    granted = {
        f"{group}/{resource}": set(rule["verbs"])
        for role, rule in rules(cases[case])
        if role.startswith("groundplane-operator")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    for kind in (*CHILD_KINDS, KIND):
        group, _, _ = KINDS[kind].api_version.rpartition("/")
        needed = {"get", "list", "watch"} | ({"create", "patch"} if kind in set(map(str, ChildKind)) else set())
        assert needed <= granted[f"{group}/{KINDS[kind].plural}"], kind


def test_shards_let_the_chart_s_pods_in(manifests):
    """The operator's policies name router and operator by labels; others than these would be kept out of every shard."""
    settings = read_operator_settings(variables(manifests, "operator"))

    for component, (peer,) in {"router": settings.peers.router, "operator": settings.peers.operator}.items():
        pod = named(manifests, "Deployment", f"groundplane-{component}")["spec"]["template"]["metadata"]
        wanted = peer["podSelector"]["matchLabels"]
        assert {name: pod["labels"][name] for name in wanted} == wanted
        assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "groundplane-system"}


def test_every_selector_selects_the_pods_of_its_component(manifests):
    """A Service, budget or policy that selects nothing says nothing about it."""
    templates = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(manifests, "Deployment")
    }
    for each in of_kind(manifests, "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        selector = each["spec"].get("selector") or each["spec"]["podSelector"]
        wanted = selector.get("matchLabels", selector)
        component = each["metadata"]["name"].removeprefix("groundplane-")
        assert wanted == {NAME_LABEL: "groundplane", COMPONENT_LABEL: component}
        assert wanted.items() <= templates[each["metadata"]["name"]].items()


def test_every_policy_denies_what_it_does_not_name(manifests):
    """An empty list of peers in a NetworkPolicy means everybody, and a type that is not named is not restricted."""
    policies = of_kind(manifests, "NetworkPolicy")

    assert [each["spec"]["policyTypes"] for each in policies] == [["Ingress", "Egress"]] * 2
    for policy in policies:
        for rule in [*policy["spec"].get("ingress", []), *policy["spec"]["egress"]]:
            assert rule.get("from", ["somebody"]) != []
            assert rule.get("to", ["somebody"]) != []
        assert all("from" in rule for rule in policy["spec"].get("ingress", []))


def test_nobody_is_let_in_where_no_caller_is_named(chart):
    """An empty list of callers must close the router, not open it."""
    manifests = chart.manifests({"networkPolicy": {"callers": []}})

    assert "ingress" not in named(manifests, "NetworkPolicy", "groundplane-router")["spec"]


def test_namespaced_mode_grants_nothing_cluster_wide(cases):
    """It is for those who may not have ClusterRoles."""
    manifests = cases["namespaced"]

    assert of_kind(manifests, "ClusterRole", "ClusterRoleBinding") == []
    granted = {each["metadata"]["namespace"] for each in of_kind(manifests, "RoleBinding")}
    assert granted == {"groundplane-system", "agents", "search"}


@pytest.mark.parametrize("component", ["operator", "router"])
def test_each_namespace_binds_a_role_that_is_there(cases, component):
    """A binding to a name that nothing has grants nothing, without a word."""
    manifests = cases["namespaced"]
    roles = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in of_kind(manifests, "Role")}

    bound = [
        (each["metadata"]["namespace"], each["roleRef"]["name"])
        for each in of_kind(manifests, "RoleBinding")
        if each["subjects"][0]["name"] == f"groundplane-{component}"
    ]

    assert set(bound) <= roles
    assert len(bound) == (4 if component == "operator" else 3)


def test_a_second_release_shares_no_cluster_wide_name(chart):
    """Helm refuses an install that would take over another release's objects."""
    first = chart.manifests({})
    second = chart.manifests({}, "--namespace=other")

    names = [
        {each["metadata"]["name"] for each in of_kind(found, "ClusterRole", "ClusterRoleBinding")}
        for found in (first, second)
    ]
    assert names[0] & names[1] == set()


def test_the_definition_of_corpora_outlives_the_release(chart):
    """Removing it would remove every TenantCorpus of the cluster."""
    (crd,) = of_kind(chart.manifests({}), "CustomResourceDefinition")
    (unkept,) = of_kind(chart.manifests({"crds": {"keep": False}}), "CustomResourceDefinition")

    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in unkept["metadata"]
    assert of_kind(chart.manifests({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def test_one_router_has_no_disruption_budget(chart):
    """It would keep a node from being drained, and protect nothing."""
    assert of_kind(chart.manifests({"router": {"replicas": 1}}), "PodDisruptionBudget") == []


@pytest.mark.parametrize(
    ("volume", "directory"),
    [
        pytest.param({"configMap": {"name": "a"}}, "/var/lib/groundplane/grep/..data", id="config-map"),
        pytest.param({"persistentVolumeClaim": {"claimName": "a"}}, "/var/lib/groundplane/grep", id="claim"),
    ],
)
def test_keyword_search_begins_where_the_files_are_no_links(chart, volume, directory):
    """It follows no links, and all that a ConfigMap's volume shows at its top are links."""
    assert variables(chart.manifests({"grep": {"volume": volume}}), "router")["FACE_DCI_CORPUS_DIR"] == directory
