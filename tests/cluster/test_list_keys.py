"""The lists that are compared by key are exactly those that the API server merges by key."""

import json
from collections.abc import Iterator

import pytest

from e2e.cluster.control_plane import kubectl
from e2e.cluster.steps import run
from groundplane_operator.leaves import LIST_KEYS
from tests.operator.golden_cases import CASES, rendered

ROOTS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Job": "io.k8s.api.batch.v1.Job",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "Service": "io.k8s.api.core.v1.Service",
    "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
}


@pytest.fixture(scope="module")
def definitions(control_plane):
    """Give the API server's own description of its objects."""
    return json.loads(run(kubectl(control_plane, "get", "--raw", "/openapi/v2")))["definitions"]


def resolved(definitions, schema):
    while "$ref" in schema or "allOf" in schema:
        reference = schema.get("$ref") or schema["allOf"][0]["$ref"]
        extra = {name: value for name, value in schema.items() if name.startswith("x-")}
        schema = {**definitions[reference.rpartition("/")[2]], **extra}
    return schema


def lists_of(definitions, schema, part, path=""):
    """Yield the path of every list in `part` with the keys by which the server merges it, () for none."""
    schema = resolved(definitions, schema)
    if isinstance(part, dict):
        for name, child in part.items():
            found = schema.get("properties", {}).get(name, {})
            yield from lists_of(definitions, found, child, f"{path}.{name}" if path else name)
    elif isinstance(part, list):
        yield path, keys_of(schema)
        for entry in part:
            yield from lists_of(definitions, schema.get("items", {}), entry, f"{path}[]")


def keys_of(schema):
    return tuple(schema.get("x-kubernetes-list-map-keys", ()))


def all_lists(definitions) -> Iterator[tuple[str, tuple[str, ...]]]:
    for case in CASES:
        for manifest in rendered(case):
            yield from lists_of(definitions, {"$ref": f"#/definitions/{ROOTS[manifest['kind']]}"}, manifest)


def test_the_keys_of_lists_are_the_servers(definitions):
    """Compared by another key, or as a whole, a list would be applied for ever, or an entry of others would hide a fault."""
    found = dict(all_lists(definitions))
    merged = {path: set(keys) for path, keys in found.items() if keys}

    assert {path: set(keys) for path, keys in LIST_KEYS.items() if path in found} == merged
    assert set(LIST_KEYS) - set(found) == set()
