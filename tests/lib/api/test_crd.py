"""The CustomResourceDefinition says what the model says; the API server's own judgement is in tests/cluster."""

import re

import pytest

from groundplane.api.crd import tenant_corpus_crd
from groundplane.api.crd_rules import RULES
from groundplane.api.parse import parse_manifest
from groundplane.errors import InvalidInput
from tests.support.manifest_cases import ACCEPTED, REFUSED, manifest


def _version():
    return tenant_corpus_crd()["spec"]["versions"][0]


def _walk(schema, path=""):
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _walk(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _walk(schema["items"], f"{path}[]")


def _schemas():
    return dict(_walk(_version()["schema"]["openAPIV3Schema"]))


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_the_api_server_refuses_is_refused_on_one_machine(case):
    """The same manifests work in both places, so that moving to a cluster brings no surprise."""
    with pytest.raises(InvalidInput) as refused:
        parse_manifest(manifest(case.spec, case.name))

    assert case.word.partition(" ")[0] in refused.value.message


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_api_server_accepts_is_accepted_on_one_machine(spec):
    """A rule that only one of the two judges knows would be found by a user."""
    assert parse_manifest(manifest(spec)).spec


def test_no_field_has_a_default_in_the_schema():
    """A default that the API server writes shows as a difference in every tool that compares manifests."""
    assert [path for path, schema in _schemas().items() if "default" in schema] == []


def test_status_keeps_no_unknown_fields():
    """The status has a shape that people and programs rely on."""
    kept = [path for path, schema in _schemas().items() if "x-kubernetes-preserve-unknown-fields" in schema]

    assert kept
    assert [path for path in kept if not path.startswith("spec.podTemplate")] == []


def test_every_rule_stands_at_a_field_that_exists():
    """A rule at a path that was renamed would silently check nothing."""
    assert {rule.path for rule in RULES} <= set(_schemas())


def test_every_rule_has_a_message_of_its_own():
    """The message is all that a person sees of a rule."""
    messages = [(rule.path, rule.message) for rule in RULES]

    assert len(set(messages)) == len(messages)


def test_conditions_are_a_map_by_type():
    """Two writers of different conditions do not undo each other's work."""
    conditions = _schemas()["status.conditions"]

    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_every_field_of_the_spec_explains_itself():
    """`kubectl explain` is the first page of documentation that people open."""
    fields = {path for path in _schemas() if re.fullmatch(r"spec\.\w+(\.\w+)?", path)}
    podtemplate = {path for path in fields if path.startswith(("spec.podTemplate.", "spec.resources."))}

    assert [path for path in sorted(fields - podtemplate) if not _schemas()[path].get("description")] == []


@pytest.mark.parametrize("name", ["Ready", "Phase", "Documents", "Sequence", "Snapshot", "Age"])
def test_the_table_shows_what_people_on_call_ask_for(name):
    """`kubectl get tenantcorpora` answers the first questions without a second command."""
    assert name in [column["name"] for column in _version()["additionalPrinterColumns"] if not column.get("priority")]
