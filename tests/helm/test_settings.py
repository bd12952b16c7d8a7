"""The chart and the programs speak of the same settings."""

import msgspec
import pytest

from groundplane.process.settings import settings_table
from groundplane.tokens import SigningKey
from groundplane_operator.settings import OperatorSettings, read_operator_settings
from groundplane_router.settings import RouterSettings, read_router_settings
from helm.values import Values
from tests.helm.cases import CASES
from tests.helm.objects import named, variables

STRUCTS: dict[str, type[msgspec.Struct]] = {"operator": OperatorSettings, "router": RouterSettings}
BY_EXTRA_ENV = {
    "operator": {
        "GROUNDPLANE_HOST",  # the program's default is a pod's
        "GROUNDPLANE_KUBECONFIG",  # a pod has a ServiceAccount
        "GROUNDPLANE_OPERATOR_PEERS",  # the chart's own labels are the program's default
        "GROUNDPLANE_PORT",
        "GROUNDPLANE_RESYNC_SECONDS",
        "GROUNDPLANE_ROUTER_PEERS",
        "GROUNDPLANE_WORKERS",
    },
    "router": {
        "GROUNDPLANE_BODIES_MIB",
        "GROUNDPLANE_CALLER_KEY_FILE",  # of local mode, as is the directory's file
        "GROUNDPLANE_DEADLINE_SECONDS",
        "GROUNDPLANE_DENSE_FLOOR",
        "GROUNDPLANE_DIRECTORY_FILE",
        "GROUNDPLANE_EMBEDDING_DOCUMENT_TEMPLATE",
        "GROUNDPLANE_EMBEDDING_MAY_CUT",
        "GROUNDPLANE_EMBEDDING_QUERY_TEMPLATE",
        "GROUNDPLANE_FUSION",
        "GROUNDPLANE_INDEX_DEADLINE_SECONDS",
        "GROUNDPLANE_MAX_INDEX_REQUESTS",
        "GROUNDPLANE_MAX_REQUESTS",
        "GROUNDPLANE_SERVICE_ACCOUNT_DIRECTORY",
        "GROUNDPLANE_TERM_FLOOR",
        "KUBERNETES_SERVICE_HOST",  # Kubernetes sets both
        "KUBERNETES_SERVICE_PORT",
    },
}
"""Settings that have no value of their own, and no need of one."""


@pytest.mark.parametrize("component", STRUCTS)
def test_the_chart_sets_every_setting_that_is_not_left_to_extra_env(cases, component):
    """A setting that is renamed, added or dropped is noticed here, and not by a pod that ends with exit code 2."""
    known = {row.variable for row in settings_table(STRUCTS[component])}

    set_by_values = {
        name
        for case, manifests in cases.items()
        for name in set(variables(manifests, component)) - extra_env(case, component)
    }

    assert set_by_values == known - BY_EXTRA_ENV[component]
    assert BY_EXTRA_ENV[component] <= known


@pytest.mark.parametrize("case", CASES)
def test_the_operator_accepts_what_it_is_told(cases, case):
    """Values that the schema takes must not keep the operator from starting."""
    settings = read_operator_settings(variables(cases[case], "operator"))

    assert settings.namespace == "groundplane-system"
    assert settings.pull_secrets == tuple(CASES[case].get("image", {}).get("pullSecrets", ()))


@pytest.mark.parametrize("case", CASES)
def test_the_router_accepts_what_it_is_told(cases, case, tmp_path):
    """Values that the schema takes must not keep the routers from starting."""
    told = variables(cases[case], "router")
    (tmp_path / "key").mkdir()
    SigningKey.load_or_create(tmp_path / "key/signing.pem")
    (tmp_path / "embedder").mkdir()
    (tmp_path / "embedder/token").write_text("key")
    (tmp_path / "grep/..data/public").mkdir(parents=True)
    moved = {
        name: value.replace("/etc/groundplane", str(tmp_path)).replace("/var/lib/groundplane", str(tmp_path))
        for name, value in told.items()
    }

    settings = read_router_settings({**moved, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    assert settings.directory_kind == "kubernetes"
    assert settings.identity_kind == ("jwks" if case == "namespaced" else "tokenreview")


def test_a_variable_of_extra_env_goes_before_the_chart_s(cases):
    """Two of one name would leave it to the API server which of them counts."""
    pod = named(cases["everything"], "Deployment", "groundplane-router")["spec"]["template"]["spec"]

    listed = [each for each in pod["containers"][0]["env"] if each["name"] == "GROUNDPLANE_LOG_LEVEL"]

    assert listed == [{"name": "GROUNDPLANE_LOG_LEVEL", "value": "warning"}]


def test_large_numbers_are_written_out(cases):
    """Helm would write a million as 1e+06, which is no whole number to a program."""
    assert variables(cases["everything"], "operator")["GROUNDPLANE_ROLLOUT_SECONDS"] == "1000000"


def test_defaults_are_those_of_the_program():
    """A chart that quietly changes a default makes the reference wrong for whoever installs with it."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(OperatorSettings)}
    operator = Values().operator

    assert {
        "max_concurrent_rollouts": operator.max_concurrent_rollouts,
        "rollout_seconds": operator.rollout_seconds,
        "cleanup_seconds": operator.cleanup_seconds,
        "poll_seconds": operator.poll_seconds,
        "rotate_keys_days": operator.rotate_keys_days,
    }.items() <= defaults.items()


def extra_env(case, component):
    return {each["name"] for each in CASES[case].get(component, {}).get("extraEnv", ())}
