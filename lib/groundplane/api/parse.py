"""From a decoded manifest to a TenantCorpus; every fault names its path and what to do about it."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from groundplane.api.formats import MEANINGS, parse_quantity
from groundplane.api.v1alpha1 import (
    API_VERSION,
    KIND,
    MAX_NAME_CHARACTERS,
    MAX_SNAPSHOT_SECONDS,
    MIN_SNAPSHOT_SECONDS,
    OWNED_VARIABLES,
    RESERVED_PREFIXES,
    PodTemplate,
    TenantCorpus,
    TenantCorpusSpec,
)
from groundplane.errors import InvalidInput

_AT = re.compile(r"(?P<text>.*?)(?: - at (?P<key>`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)
_ENUM = re.compile(r"Invalid enum value .+", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
_MAX_QUOTED = 64
_MEANING_OF_SHOWN = {repr(pattern)[1:-1]: meaning for pattern, meaning in MEANINGS.items()}
_CHOICES = {
    "access": "read or write",
    "apiVersion": API_VERSION,
    "kind": KIND,
    "deletionPolicy": "Retain or Delete",
    "medium": '"" or Memory',
}

Fault = tuple[str, str]  # path and text
_FREE_TEXT = frozenset(
    {"annotations", "labels", "status", "managedFields", "affinity", "tolerations", "value", "valueFrom"}
)


def parse_manifest(manifest: object) -> TenantCorpus:
    """Return `manifest`, a decoded YAML or JSON object, as a TenantCorpus.

    Raises InvalidInput: one fault a line, each beginning with its path; `field` is the path of the first.
    """
    try:
        corpus = msgspec.convert(manifest, TenantCorpus)
    except msgspec.ValidationError as error:
        path, text = _fault_of(error, manifest)
        raise InvalidInput(f"{path}: {text}", code="invalid_manifest", field=path) from error
    except RecursionError as error:
        raise InvalidInput("manifest is nested too deeply: flatten it", code="invalid_manifest") from error
    faults = [*_line_break_faults(manifest, ""), *_name_faults(corpus.metadata.name), *_faults(corpus.spec)]
    if faults:
        text = "\n".join(f"{path}: {text}" for path, text in faults)
        raise InvalidInput(text, code="invalid_manifest", field=faults[0][0])
    return corpus


def _faults(spec: TenantCorpusSpec) -> Iterator[Fault]:
    yield from _owner_faults(spec)
    yield from _subject_faults(spec)
    if spec.object_store is not None and spec.storage is not None:
        yield (
            "spec.storage",
            "is set beside spec.objectStore: keep one of them, or neither for the installation's default",
        )
    yield from _number_faults(spec)
    yield from _pod_template_faults(spec.pod_template)


def _name_faults(name: str) -> Iterator[Fault]:
    if len(name) > MAX_NAME_CHARACTERS:
        yield "metadata.name", f"has {len(name)} characters: expected at most {MAX_NAME_CHARACTERS}"


def _pod_template_faults(template: PodTemplate) -> Iterator[Fault]:
    for kind, names in (("labels", template.labels), ("annotations", template.annotations)):
        for name in sorted(names):
            if name.startswith(RESERVED_PREFIXES):
                yield (
                    f"spec.podTemplate.{kind}",
                    f"holds {name[:_MAX_QUOTED]}: the operator owns it, choose another name",
                )
    for index, variable in enumerate(template.env):
        path = f"spec.podTemplate.env[{index}]"
        if (variable.value is None) == (variable.value_from is None):
            yield path, "has both or none of value and valueFrom: set exactly one"
        if variable.name in OWNED_VARIABLES:
            yield path, f"sets {variable.name}: the operator does, use the fields of the resource"


def _owner_faults(spec: TenantCorpusSpec) -> Iterator[Fault]:
    if spec.platform is False:
        yield "spec.platform", "is false: expected true, or leave it out and set spec.tenant"
    elif spec.tenant is not None and spec.platform:
        yield "spec.tenant", "is set beside spec.platform: keep exactly one of them"
    elif spec.tenant is None and not spec.platform:
        yield "spec.tenant", "is missing: set it to the tenant's id, or set spec.platform: true for the shared corpus"
    if spec.tenant is not None and any(ord(character) < 0x20 or ord(character) == 0x7F for character in spec.tenant):
        yield "spec.tenant", "holds a control character: expected printable text"
    if spec.tenant is not None and any("\ud800" <= character <= "\udfff" for character in spec.tenant):
        yield "spec.tenant", "holds a lone surrogate: expected text that UTF-8 can carry"


def _subject_faults(spec: TenantCorpusSpec) -> Iterator[Fault]:
    first_with: dict[str, int] = {}
    for index, grant in enumerate(spec.subjects):
        path = f"spec.subjects[{index}]"
        if first_with.setdefault(grant.subject.name, index) != index:
            first = first_with[grant.subject.name]
            yield path, f"names the ServiceAccount of spec.subjects[{first}] again: merge their access into one entry"
        if grant.access is not None and len(set(grant.access)) < len(grant.access):
            yield f"{path}.access", f"holds {grant.access[0]} twice: name each access once"


def _number_faults(spec: TenantCorpusSpec) -> Iterator[Fault]:
    try:
        _ = spec.cache.size_limit_bytes, spec.storage and spec.storage.size_bytes
        for kind, amounts in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
            for name, amount in sorted(amounts.items()):
                parse_quantity(amount, f"spec.resources.{kind}.{name}")
        every_seconds = spec.snapshots.every_seconds
    except InvalidInput as error:
        field = error.field or "spec"
        yield field, error.message.removeprefix(f"{field}: ")
        return
    if not MIN_SNAPSHOT_SECONDS <= every_seconds <= MAX_SNAPSHOT_SECONDS:
        yield "spec.snapshots.every", f"is {spec.snapshots.every}: expected from 10s to 24h"


def _line_break_faults(part: object, path: str) -> Iterator[Fault]:
    """Yield the names that end with a line break: in Python's expressions, unlike RE2, `$` matches before one."""
    if isinstance(part, str):
        if part.endswith("\n"):
            yield path, "ends with a line break: remove it (in YAML, quote the value or use >-)"
    elif isinstance(part, list):
        for index, entry in enumerate(part):
            yield from _line_break_faults(entry, f"{path}[{index}]")
    elif isinstance(part, dict):
        for name, entry in part.items():
            if name not in _FREE_TEXT:
                yield from _line_break_faults(entry, _join(path, str(name)))


def _fault_of(error: msgspec.ValidationError, manifest: object) -> Fault:
    """Return path and text of msgspec's first complaint, in the words of whoever wrote the manifest."""
    matched = _AT.fullmatch(str(error))
    text, path = (matched["text"], matched["path"] or "") if matched else (str(error), "")
    if found := _MISSING.fullmatch(text):
        return _join(path, found[1]), "is missing: set it"
    if found := _UNKNOWN.fullmatch(text):
        return _join(path, found[1][:_MAX_QUOTED]), "is not a field of this version: check its spelling and indentation"
    if matched and matched["key"]:
        return path, "holds a key that is no text: put it in quotes"
    expected = f"{text[:1].lower()}{text[1:]}"
    if found := _PATTERN.fullmatch(text):
        expected = f"expected {_MEANING_OF_SHOWN[found[1]]}"
    elif _ENUM.fullmatch(text):
        expected = f"expected {_CHOICES[path.rpartition('.')[2].partition('[')[0]]}"
    return path or "manifest", f"is {_shown(_value_at(manifest, path))}: {expected}"


def _value_at(manifest: object, path: str) -> object:
    """Return what stands at `path`, or the last thing on the way to it."""
    value: Any = manifest
    for name, index in _STEP.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            break
    return value


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else f"a list of {len(value)}"
    return repr(value)[:_MAX_QUOTED]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
