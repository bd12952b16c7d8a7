"""What the API server checks of a TenantCorpus beyond the shape of single fields, as CEL (KEP-2876).

`parse` checks the same on one machine; a test puts the same manifests before both. Transition rules (`oldSelf`) hold
for edits alone, so they have no counterpart there.
"""

from typing import Final, Literal

import msgspec

from groundplane.api.v1alpha1 import MAX_NAME_CHARACTERS, OWNED_VARIABLES, RESERVED_PREFIXES


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One rule: `path` is where it stands ("" for the resource, `[]` for the entries of a list)."""

    path: str
    rule: str
    message: str
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] = "FieldValueInvalid"
    field_path: str | None = None


def _same(field: str) -> str:
    """Return the expression that `field` is as it was: present or absent as before, and equal where present."""
    return f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"


def _fixed(path: str, field: str, message: str) -> Rule:
    return Rule(path=path, rule=_same(field), message=message, reason="FieldValueForbidden")


_RESERVED: Final = " || ".join(f"name.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)

RULES: Final = (
    Rule(
        path="",
        rule=f"size(self.metadata.name) <= {MAX_NAME_CHARACTERS}",
        message=f"metadata.name has more than {MAX_NAME_CHARACTERS} characters: shorten it, the names of the corpus's "
        "Service and pods are made from it",
    ),
    Rule(
        path="",
        rule="!self.metadata.name.contains('.')",
        message="metadata.name holds a dot: the names of the corpus's Service and pods are made from it, use '-'",
    ),
    Rule(
        path="spec",
        rule="has(self.tenant) != has(self.platform)",
        message="expected exactly one of tenant and platform: set tenant to the tenant's id, or platform: true for the "
        "shared corpus",
    ),
    _fixed("spec", "tenant", "tenant never changes: create another TenantCorpus for another tenant"),
    _fixed("spec", "platform", "platform never changes: create another TenantCorpus instead"),
    _fixed("spec", "restoreFrom", "restoreFrom is set at creation only: create another TenantCorpus to restore into"),
    Rule(
        path="spec",
        rule="!(has(self.objectStore) && has(self.storage))",
        message="expected at most one of objectStore and storage: keep one of them, or neither for the installation's "
        "default bucket",
    ),
    Rule(
        path="spec",
        rule="has(self.objectStore) == has(oldSelf.objectStore) && has(self.storage) == has(oldSelf.storage)",
        message="the place of log and snapshots never changes: create another TenantCorpus and copy, or restore into it",
        reason="FieldValueForbidden",
    ),
    Rule(
        path="spec.platform",
        rule="self",
        message="is false: expected true, or leave it out and set tenant",
    ),
    Rule(
        path="spec.tenant",
        rule=r"!self.matches('[\\x00-\\x1f\\x7f]')",
        message="holds a control character: expected printable text",
    ),
    _fixed("spec.objectStore", "bucket", "bucket never changes: the corpus lies there"),
    _fixed("spec.objectStore", "prefix", "prefix never changes: the corpus lies there"),
    _fixed("spec.objectStore", "endpoint", "endpoint never changes: the corpus lies there"),
    _fixed("spec.storage", "className", "className never changes: a volume keeps its class"),
    Rule(
        path="spec.storage",
        rule="quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
        message="size is smaller than before: a volume can grow, never shrink; restore into another corpus instead",
    ),
    Rule(
        path="spec.storage",
        rule="quantity(string(self.size)).isGreaterThan(quantity('0'))",
        message="size is zero: expected at least 1 byte",
    ),
    Rule(
        path="spec.cache",
        rule="!has(self.sizeLimit) || quantity(string(self.sizeLimit)).isGreaterThan(quantity('0'))",
        message="sizeLimit is zero: expected at least 1 byte",
    ),
    Rule(
        path="spec.snapshots",
        rule="!has(self.every) || (duration(self.every) >= duration('10s') && duration(self.every) <= duration('24h'))",
        message="every: expected from 10s to 24h",
    ),
    Rule(
        path="spec.podTemplate",
        rule=f"!has(self.labels) || !self.labels.exists(name, {_RESERVED})",
        message="labels: a name begins with a prefix that the operator owns: choose another name",
    ),
    Rule(
        path="spec.podTemplate",
        rule=f"!has(self.annotations) || !self.annotations.exists(name, {_RESERVED})",
        message="annotations: a name begins with a prefix that the operator owns: choose another name",
    ),
    Rule(
        path="spec.podTemplate.env[]",
        rule="has(self.value) != has(self.valueFrom)",
        message="expected exactly one of value and valueFrom",
    ),
    Rule(
        path="spec.podTemplate.env[]",
        rule=f"!(self.name in {list(OWNED_VARIABLES)})",
        message="the operator sets this variable: use the fields of the resource",
    ),
)
