"""The files of the chart that are made from code: values.yaml, its schema, the table of the README, the CRD as a template."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import yaml

from helm.values import Values

TABLE_BEGIN = "<!-- values: made by docs/generate.py -->"
TABLE_END = "<!-- end of values -->"
_YAML_WIDTH = 120


class Row(msgspec.Struct, frozen=True):
    """One value: where it stands, what it is unless said otherwise, and when to change it."""

    path: tuple[str, ...]
    default: Any
    help_text: str
    is_part: bool
    """Whether it is a mapping that has rows of its own below it."""


def rows(values: msgspec.Struct, path: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the rows of `values` in their order, a part before what it holds."""
    hints = get_type_hints(type(values), include_extras=True)
    for field in msgspec.structs.fields(values):
        here, default = (*path, field.encode_name), getattr(values, field.name)
        if isinstance(default, msgspec.Struct):
            yield Row(here, None, type(default).__doc__ or "", is_part=True)
            yield from rows(default, here)
        else:
            yield Row(here, default, _help_of(hints[field.name]), is_part=False)


def render_values() -> str:
    """Return values.yaml: every value with its default and what it means."""
    lines = [
        "# Made from helm/values.py by `python docs/generate.py`; a test compares the two.",
        "# Checked by values.schema.json: a misspelt name is refused.",
    ]
    for row in rows(Values()):
        indent = "  " * (len(row.path) - 1)
        if len(row.path) == 1:
            lines.append("")
        lines.append(f"{indent}# {row.help_text}")
        text = "" if row.is_part or row.default is None else f" {_yaml_flow(row.default)}"
        lines.append(f"{indent}{row.path[-1]}:{text}")
    return "\n".join([*lines, ""])


def render_schema() -> str:
    """Return values.schema.json. Only below `global` are names allowed that it does not know."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Values)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def render_readme(text: str) -> str:
    """Return the README `text` with the table as the values are now. Raises ValueError if it has no place for it."""
    head, begin, rest = text.partition(TABLE_BEGIN)
    _, end, tail = rest.partition(TABLE_END)
    if not begin or not end:
        raise ValueError(f"README of the chart: expected {TABLE_BEGIN} and {TABLE_END}")
    return "".join((head, begin, "\n", _table(), "\n", end, tail))


def render_crd_template(crd: str) -> str:
    """Return the CustomResourceDefinition, a YAML document, as a template that can be switched off and is kept."""
    if "{{" in crd:
        raise ValueError("the CRD holds {{, which Helm would take for its own: escape it here")
    first = "metadata:\n"
    head, _, tail = crd.partition(first)
    guarded = [
        "  labels:",
        '    {{- include "groundplane.labels" . | nindent 4 }}',
        "  {{- if .Values.crds.keep }}",
        "  annotations:",
        "    helm.sh/resource-policy: keep",
        "  {{- end }}",
        "",
    ]
    return "".join(("{{- if .Values.crds.enabled }}\n", head, first, "\n".join(guarded), tail, "{{- end }}\n"))


def _table() -> str:
    shown = [row for row in rows(Values()) if not row.is_part]
    lines = [f"| `{'.'.join(row.path)}` | {_code(row.default)} | {row.help_text} |" for row in shown]
    return "\n".join(["| value | default | meaning |", "| --- | --- | --- |", *lines])


def _code(default: Any) -> str:
    return "" if default is None or default == "" else f"`{_yaml_flow(default)}`"


def _yaml_flow(default: Any) -> str:
    text = yaml.safe_dump(default, default_flow_style=True, sort_keys=False, width=_YAML_WIDTH * 4)
    return text.removesuffix("\n").removesuffix("\n...")


def _help_of(hint: Any) -> str:
    for meta in get_args(hint)[1:]:
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    raise TypeError(f"{hint} is not annotated with value(...)")
