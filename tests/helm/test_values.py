"""Values that are wrong are refused before anything is installed, in words that name them."""

import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from e2e.cluster.steps import StepFailed
from helm.documents import render_crd_template, render_readme, rows
from helm.values import Values
from tests.helm.cases import CASES
from tests.support.helm import CHART

ROOT = Path(__file__).parents[2]

WRONG = [
    pytest.param({"router": {"replica": 2}}, "/router.*additional properties 'replica' not allowed", id="misspelt"),
    pytest.param({"nonsense": 1}, "additional properties 'nonsense' not allowed", id="misspelt-at-the-top"),
    pytest.param({"router": {"replicas": 0}}, "/router/replicas.*minimum", id="no-router"),
    pytest.param({"image": {"digest": "latest"}}, "/image/digest.*pattern", id="digest"),
    pytest.param({"watch": {"scope": "all"}}, "/watch/scope.*one of 'cluster', 'namespaces'", id="scope"),
    pytest.param({"watch": {"namespaces": ["Agents"]}}, "/watch/namespaces/0.*pattern", id="namespace"),
    pytest.param({"embedder": {"dimension": 0}}, "/embedder/dimension.*minimum", id="dimension"),
    pytest.param({"logLevel": "loud"}, "/logLevel.*one of", id="log-level"),
    pytest.param({"objectStore": {"url": "https://a"}}, "/objectStore/url.*pattern", id="store"),
    pytest.param({"grep": {"volume": {"a": {}, "b": {}}}}, "/grep/volume.*maxProperties", id="two-volumes"),
]
CONTRADICTIONS = [
    pytest.param({"watch": {"namespaces": ["a"]}}, "watch.scope is cluster: set watch.scope to namespaces", id="scope"),
    pytest.param({"objectStore": {"url": "s3://a"}}, "one of them is set: expected both", id="keys"),
    pytest.param({"embedder": {"url": "http://a"}}, "embedder.kind is embedded: set embedder.kind to openai", id="url"),
    pytest.param({"embedder": {"kind": "openai"}}, "embedder.url is empty: expected the URL", id="no-url"),
    pytest.param({"embedder": {"apiKeySecret": {"name": "a"}}}, "a key is for openai alone", id="api-key"),
    pytest.param({"grep": {"directory": "a"}}, "grep.volume is empty: expected the source", id="grep"),
    pytest.param({"router": {"podLabels": {"app.kubernetes.io/component": "a"}}}, "is the chart's own", id="label"),
]


@pytest.mark.parametrize("case", CASES)
def test_lint_has_nothing_to_say(chart, case):
    """`helm lint --strict` is what the pipelines of those who ship the chart run."""
    assert "0 chart(s) failed" in chart.lint(CASES[case])


@pytest.mark.parametrize(("values", "words"), WRONG)
def test_the_schema_refuses_wrong_values(chart, values, words):
    """A misspelt value that is ignored shows weeks later."""
    with pytest.raises(StepFailed, match=f"(?s){words}"):
        chart.template(values)


@pytest.mark.parametrize(("values", "words"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_refused(chart, values, words):
    """A schema sees each value for itself; a pod that ends with exit code 2 is a late answer."""
    with pytest.raises(StepFailed, match=words):
        chart.template(values)


def test_a_chart_of_charts_may_say_what_it_likes_below_global_and_switch_us_on(chart):
    """Its other parts have values of their own there, and `condition: groundplane.enabled` is how it leaves us out."""
    assert "kind: Deployment" in chart.template({"global": {"others": {"a": 1}}, "enabled": True})


def test_the_chart_has_the_version_of_the_distribution():
    """Chart, image and package of one release are found by one number."""
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert (described["version"], described["appVersion"]) == (version, version)


def test_the_values_of_the_chart_are_the_declared_ones():
    """values.yaml is written by hand from the declaration, line by line: it has to come out as the same values."""
    written = yaml.safe_load((CHART / "values.yaml").read_text())

    assert msgspec.convert(written, Values) == Values()
    assert len({row.path for row in rows(Values())}) == len(list(rows(Values())))


def test_a_readme_without_a_place_for_the_table_is_refused():
    """Else the table would be lost without a word."""
    with pytest.raises(ValueError, match="README of the chart: expected <!-- values"):
        render_readme("nothing")


def test_a_definition_that_helm_would_take_for_a_template_is_refused():
    """An expression with two braces would be lost in the chart alone."""
    with pytest.raises(ValueError, match=r"holds \{\{"):
        render_crd_template("metadata:\n  a: '{{'\n")


NOTES = [
    pytest.param({}, ["rollout status deployment/groundplane-router", "helm -n groundplane-system test"], id="next"),
    pytest.param({}, ["WARNING: objectStore.url is empty", "storage: {size: 10Gi}"], id="no-bucket"),
    pytest.param({"router": {"replicas": 1}}, ["WARNING: router.replicas is 1"], id="one-router"),
    pytest.param({"embedder": {"kind": "none"}}, ["WARNING: embedder.kind is none"], id="no-embedder"),
    pytest.param({"networkPolicy": {"enabled": False}}, ["WARNING: networkPolicy.enabled is false"], id="open"),
    pytest.param(
        CASES["everything"], ["WARNING: what lies in grep.volume is shown", "the Secret bucket-keys"], id="grep"
    ),
]


@pytest.mark.parametrize(("values", "words"), NOTES)
def test_the_notes_say_what_to_do_next_and_what_to_think_of(chart, values, words):
    """They are what everybody reads who installs it."""
    notes = chart.notes(values)

    assert [each for each in words if each not in notes] == []
