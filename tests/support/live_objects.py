"""Objects of a namespace by kind and name, as a test asks for them, and waiting until something holds."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from groundplane_operator.cluster import KINDS
from tests.support.kubernetes_api import Administrator, Manifest, Refusal

FoundT = TypeVar("FoundT")
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.05


class LiveObjects:
    """What there is in one namespace."""

    def __init__(self, admin: Administrator, namespace: str) -> None:
        self._admin = admin
        self._namespace = namespace

    def get(self, kind: str, name: str) -> Manifest | None:
        """Return the object, None if there is none."""
        try:
            return self._admin.get(self._path(kind, name))
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def list_all(self, kind: str) -> list[Manifest]:
        """Return every object, by name."""
        items: list[Manifest] = self._admin.get(self._path(kind))["items"]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def create(self, manifest: Manifest) -> Manifest:
        """Create the object."""
        return self._admin.create(self._path(manifest["kind"]), manifest)

    def merge(self, kind: str, name: str, change: Any, subresource: str | None = None) -> Manifest:
        """Merge `change` into the object, or into a part of it."""
        return self._admin.merge(self._path(kind, name, subresource), change)

    def delete(self, kind: str, name: str) -> None:
        """Delete the object, and what it owns after it."""
        self._admin.delete(f"{self._path(kind, name)}?propagationPolicy=Background")

    def _path(self, kind: str, name: str | None = None, subresource: str | None = None) -> str:
        return KINDS[kind].path(self._namespace, name, subresource)


def wait_for(
    look: Callable[[], FoundT | None], what: str, seconds: float = WAIT_SECONDS, explain: Callable[[], str] = str
) -> FoundT:
    """Return what `look` returns once that is neither None nor False; fails after `seconds`, saying what was awaited."""
    ends_at = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > ends_at:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{explain()}")
        time.sleep(POLL_SECONDS)
