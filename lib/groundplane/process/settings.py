"""Settings: one frozen struct a program, read once from the environment; nothing else reads `os.environ`.

A field names its variable and says when to change it: `Annotated[float, setting("GROUNDPLANE_X_SECONDS", "…")]`.
The docs table and the chart's values are compared with these structs by a test.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from groundplane.errors import InvalidInput

MAX_QUOTED_CHARACTERS = 128

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


Check = Callable[[Any], object]
"""Raises InvalidInput for a value that the type allows and nothing can use, such as the path of no key."""


def setting(
    variable: str, help_text: str, *, secret: bool = False, check: Check | None = None, **constraints: Any
) -> msgspec.Meta:
    """Return the annotation of a settings field; `constraints` are those of `msgspec.Meta` (`ge`, `min_length`, …)."""
    extra = {"variable": variable, "secret": secret, "check": check}
    return msgspec.Meta(description=help_text, extra=extra, **constraints)


class SettingRow(msgspec.Struct, frozen=True):
    """One line of the settings table in the docs."""

    variable: str
    default: str
    help_text: str


def read_settings(settings_type: type[SettingsT], environment: Mapping[str, str]) -> SettingsT:
    """Return the settings of `environment`; an empty value counts as unset.

    Raises InvalidInput that lists every fault, one a line, each with its variable's name; secrets are never quoted.
    """
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in msgspec.structs.fields(settings_type):
        meta, hint = _meta_of(settings_type, field.name)
        raw = environment.get(meta["variable"], "")
        if raw == "":
            if field.required:
                faults.append(f"{meta['variable']} is not set: expected {meta['help']}")
            continue
        try:
            values[field.name] = msgspec.convert(raw, hint, strict=False)
            if meta["check"] is not None:
                meta["check"](values[field.name])
        except (msgspec.ValidationError, InvalidInput) as error:
            faults.append(_fault(meta, raw, error))
    if faults:
        raise InvalidInput("\n".join(faults), code="invalid_settings")
    return settings_type(**values)


def settings_table(settings_type: type[msgspec.Struct]) -> list[SettingRow]:
    """Return one row a field, in the struct's order."""
    rows = []
    for field in msgspec.structs.fields(settings_type):
        meta, _ = _meta_of(settings_type, field.name)
        default = "required" if field.required else _shown_default(field)
        rows.append(SettingRow(variable=meta["variable"], default=default, help_text=meta["help"]))
    return rows


def _fault(meta: dict[str, Any], raw: str, error: Exception) -> str:
    """Return the line about one bad value; what was raised may quote the value too, so a secret's is left out."""
    if meta["secret"]:
        return f"{meta['variable']}=(secret): expected {meta['help']}"
    shown = f"{meta['variable']}={raw[:MAX_QUOTED_CHARACTERS]}"
    if isinstance(error, InvalidInput):
        message = error.message.removeprefix(f"{shown}: ")
        return f"{shown}: {message.partition(f'{raw!r}: ')[2] or message}"
    found = str(error).split(" - at ")[0].lower()[:MAX_QUOTED_CHARACTERS]
    if not found.startswith("expected"):  # the library names the value again instead of those that it takes
        return f"{shown}: expected {meta['help']}"
    return f"{shown}: {found}; {meta['help']}"


def _shown_default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return ""
    return "" if field.default is None else str(field.default)


def _without_none(hint: Any) -> Any:
    """Return `hint` without None: an empty variable is unset, and msgspec takes no bounds on `int | None`."""
    members = tuple(member for member in get_args(hint) if member is not type(None))
    return Union[members] if type(None) in get_args(hint) else hint  # noqa: UP007 - the members are known at run time only


def _meta_of(settings_type: type[msgspec.Struct], name: str) -> tuple[dict[str, Any], Any]:
    hint = get_type_hints(settings_type, include_extras=True)[name]
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, msgspec.Meta) and extra.extra and "variable" in extra.extra:
                return {**extra.extra, "help": extra.description or ""}, Annotated[
                    _without_none(get_args(hint)[0]), extra
                ]
    raise TypeError(f"{settings_type.__name__}.{name} is not annotated with setting(...)")
