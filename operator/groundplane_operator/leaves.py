"""Whether a live object already says what was rendered, leaf by leaf; fields of others do not matter.

A leaf is whatever is neither a mapping nor a list. Lists that server-side apply merges by a key are compared entry by entry
under that key, in any order, and may hold entries of others; all other lists belong to whoever wrote them, whole. What the
API server drops or writes in another way is no difference: an empty value is as good as none, quantities compare by value.

The law, held by a property test: after a server-side apply of the rendered manifest there is no difference, whatever stood
there before. It needs the seal (`render.common.seal`) for fields that are rendered no longer.
Source: Kubernetes "Server-Side Apply", merge strategy; the keys are those of the published OpenAPI document.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from groundplane.api.formats import parse_quantity
from groundplane.errors import InvalidInput

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "metadata.ownerReferences": ("uid",),
    "spec.ports": ("port", "protocol"),
    "spec.template.spec.containers": ("name",),
    "spec.template.spec.initContainers": ("name",),
    "spec.template.spec.volumes": ("name",),
    "spec.template.spec.imagePullSecrets": ("name",),
    "spec.template.spec.containers[].env": ("name",),
    "spec.template.spec.initContainers[].env": ("name",),
    "spec.template.spec.containers[].ports": ("containerPort", "protocol"),
    "spec.template.spec.containers[].volumeMounts": ("mountPath",),
    "spec.template.spec.initContainers[].volumeMounts": ("mountPath",),
}
"""By the path of the list, `[]` standing for the entries of one above it."""

_QUANTITY_PARENTS: Final = ("requests", "limits")
_QUANTITY_NAMES: Final = ("sizeLimit",)


def first_difference(rendered: Mapping[str, Any], live: Mapping[str, Any] | None) -> str | None:
    """Return the path of the first leaf that `live` lacks or has otherwise, None if there is none. Paths are in order.

    A path names entries of keyed lists by their key: `spec.template.spec.containers[shard].image`.
    """
    return next(_differences(rendered, live or {}, "", ""), None)


def template_difference(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the path of the first field that differs between two pod templates, in either direction; "" for none."""
    rendered, live = {"spec": {"template": wanted}}, {"spec": {"template": known}}
    found = first_difference(rendered, live) or first_difference(live, rendered) or ""
    return found.removeprefix("spec.template.")


def _differences(rendered: object, live: object, path: str, kind: str) -> Iterator[str]:
    """Yield the paths of what differs. `kind` is the path as LIST_KEYS has it."""
    if _is_empty(rendered) and (live is None or _is_empty(live)):
        return
    if isinstance(rendered, dict):
        if not rendered and not isinstance(live, dict):
            yield path
        found = live if isinstance(live, dict) else {}  # the path then names the first leaf that is missing
        for name in sorted(rendered):
            yield from _differences(rendered[name], found.get(name), _join(path, name), _join(kind, name))
    elif isinstance(rendered, list):
        yield from _list_differences(rendered, live, path, kind)
    elif not _is_equal(rendered, live, path):
        yield path


def _list_differences(rendered: list[Any], live: object, path: str, kind: str) -> Iterator[str]:
    entries = live if isinstance(live, list) else []
    keys = LIST_KEYS.get(kind)
    if keys is None:
        yield from _atomic_differences(rendered, entries, path, kind)
        return
    found = {_key(entry, keys): entry for entry in entries}
    for entry in sorted(rendered, key=lambda entry: _key(entry, keys)):
        key = _key(entry, keys)
        yield from _differences(entry, found.get(key), f"{path}[{key[0]}]", f"{kind}[]")


def _atomic_differences(rendered: list[Any], live: list[Any], path: str, kind: str) -> Iterator[str]:
    if len(rendered) != len(live):
        yield path
        return
    for index, (wanted, found) in enumerate(zip(rendered, live, strict=True)):
        yield from _differences(wanted, found, f"{path}[{index}]", f"{kind}[]")


def _key(entry: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entry's key; the API server fills in the protocol where none is named."""
    return tuple(str(entry.get(key, "TCP" if key == "protocol" else "")) for key in keys)


def _is_equal(rendered: object, live: object, path: str) -> bool:
    return rendered == live or (_is_quantity(path) and _quantity(rendered) == _quantity(live) is not None)


def _is_quantity(path: str) -> bool:
    parent, _, name = path.rpartition(".")
    return name in _QUANTITY_NAMES or parent.rpartition(".")[2] in _QUANTITY_PARENTS


def _quantity(value: object) -> object:
    try:
        return parse_quantity(value, "quantity") if isinstance(value, str | int) else None
    except InvalidInput:
        return None


def _is_empty(value: object) -> bool:
    """Return whether the API server may leave this out: empty text or list. An empty mapping may say something."""
    return value in ("", [])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
