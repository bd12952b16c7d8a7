"""The CustomResourceDefinition of TenantCorpus, made from the model; `crds/` and the chart carry what this returns.

The schema is structural, has no defaults (an absent field stays absent: the default is resolved in code, so that no
tool that compares manifests sees a difference) and preserves unknown fields only in parts that Kubernetes itself
defines. Rules that no single field shows are CEL: `crd_rules`.
Sources: Kubernetes "Specifying a structural schema", "Validation rules"; KEP-2876.
"""

import inspect
from typing import Any, Final

import msgspec

from groundplane.api.crd_rules import RULES
from groundplane.api.v1alpha1 import (
    GROUP,
    KIND,
    VERSION,
    TenantCorpus,
    TenantCorpusSpec,
    TenantCorpusStatus,
)

PLURAL: Final = "tenantcorpora"
SHORT_NAME: Final = "tc"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

Schema = dict[str, Any]

_LIST_KEYS: Final = {
    "spec.subjects": ("namespace", "serviceAccount"),
    "spec.podTemplate.env": ("name",),
    "status.subjects": ("namespace", "serviceAccount"),
    "status.conditions": ("type",),
}
_SETS: Final = frozenset({"spec.subjects[].access", "status.subjects[].access"})
_TIMES: Final = frozenset({"status.conditions[].lastTransitionTime", "status.snapshot.time"})
_COLUMNS: Final = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Phase", "string", ".status.phase", 0),
    ("Documents", "integer", ".status.documents", 0),
    ("Sequence", "integer", ".status.sequence", 0),
    ("Snapshot", "date", ".status.snapshot.time", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Tenant", "string", ".spec.tenant", 1),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 1),
)


def tenant_corpus_crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition, ready to be applied."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _resource_schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
            for name, kind, path, priority in _COLUMNS
        ],
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": [SHORT_NAME],
        "categories": ["groundplane"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _resource_schema() -> Schema:
    schema: Schema = {
        "description": _first_line(TenantCorpus),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _schema(msgspec.inspect.type_info(TenantCorpusSpec), "spec"),
            "status": _schema(msgspec.inspect.type_info(TenantCorpusStatus), "status"),
        },
        "required": ["spec"],
    }
    return _with_rules(schema, "")


def _schema(kind: msgspec.inspect.Type, path: str) -> Schema:
    """Return the schema of what stands at `path`, its rules included."""
    return _with_rules(_schema_without_rules(kind, path), path)


def _schema_without_rules(kind: msgspec.inspect.Type, path: str) -> Schema:
    match kind:
        case msgspec.inspect.Metadata(type=inner, extra_json_schema=extra):
            return {**_schema_without_rules(inner, path), **(extra or {})}
        case msgspec.inspect.UnionType(types=types):
            return _union(types, path)
        case msgspec.inspect.StructType():
            return _struct(kind, path)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return _list(kind, path)
        case msgspec.inspect.DictType():
            return _map(kind, path)
        case msgspec.inspect.StrType():
            shape = {"minLength": kind.min_length, "maxLength": kind.max_length, "pattern": kind.pattern}
            return _without_none({"type": "string", **shape, "format": "date-time" if path in _TIMES else None})
        case msgspec.inspect.IntType():
            return _without_none({"type": "integer", "format": "int64", "minimum": kind.ge, "maximum": kind.le})
        case msgspec.inspect.LiteralType(values=values):
            return {"type": "string", "enum": sorted(values)}
        case msgspec.inspect.BoolType():
            return {"type": "boolean"}
        case _:
            raise TypeError(f"{path} has type {kind}: expected one that a structural schema can say")


def _union(types: tuple[msgspec.inspect.Type, ...], path: str) -> Schema:
    """Return the schema of an optional field, or of a quantity, which is text or a number."""
    kinds = [kind for kind in types if not isinstance(kind, msgspec.inspect.NoneType)]
    if len(kinds) == 1:
        return _schema_without_rules(kinds[0], path)
    text, number = (_schema_without_rules(kind, path) for kind in kinds)
    if (text["type"], number["type"]) != ("string", "integer"):
        raise TypeError(f"{path} is a union of {kinds}: expected text or a number")
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": text["pattern"],
        "maxLength": text["maxLength"],
    }


def _struct(kind: msgspec.inspect.StructType, path: str) -> Schema:
    properties = {field.encode_name: _schema(field.type, f"{path}.{field.encode_name}") for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    schema: Schema = {"description": _first_line(kind.cls), "type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _list(kind: msgspec.inspect.VarTupleType | msgspec.inspect.ListType, path: str) -> Schema:
    schema = _without_none(
        {
            "type": "array",
            "minItems": kind.min_length,
            "maxItems": kind.max_length,
            "items": _schema(kind.item_type, f"{path}[]"),
        }
    )
    if path in _SETS:
        return {**schema, "x-kubernetes-list-type": "set"}
    if path in _LIST_KEYS:
        return {**schema, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(_LIST_KEYS[path])}
    return {**schema, "x-kubernetes-list-type": "atomic"}


def _map(kind: msgspec.inspect.DictType, path: str) -> Schema:
    if isinstance(kind.value_type, msgspec.inspect.AnyType):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    values = _schema(kind.value_type, f"{path}{{}}")
    return _without_none({"type": "object", "maxProperties": kind.max_length, "additionalProperties": values})


def _with_rules(schema: Schema, path: str) -> Schema:
    rules = [_without_none(msgspec.to_builtins(rule)) for rule in RULES if rule.path == path]
    for rule in rules:
        del rule["path"]
    return {**schema, "x-kubernetes-validations": rules} if rules else schema


def _first_line(model: type) -> str:
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _without_none(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if value is not None}
