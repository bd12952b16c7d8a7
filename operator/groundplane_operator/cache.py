"""The live objects of every corpus as the API server told of them last, by watch, by list, or in answer to our own calls.

Decisions read from here what would otherwise be ten reads a pass. What is here may be late, never made up: an older version
of an object does not replace a newer one, and what was deleted does not come back with a late answer. Whoever deletes
something reads it live first.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from groundplane.api.v1alpha1 import KIND
from groundplane.errors import InvalidInput
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane.wire.names import PLATFORM_KEY
from groundplane_operator import names
from groundplane_operator.claims import Claimant
from groundplane_operator.cluster import Listed
from groundplane_operator.observed import ChildKind, PlatformSeen, Resource, claimant_of, parse_resource
from groundplane_operator.queue import Key
from groundplane_operator.render.common import Manifest
from groundplane_operator.rollout import Fleet, Rollout, fleet_of, rollout_of

POD: Final = "Pod"
CHILD_KINDS: Final = (*(str(kind) for kind in ChildKind), POD)
WATCHED_LABELS: Final[Mapping[str, str]] = {names.MANAGED_BY_LABEL: names.FIELD_MANAGER}

_Place: TypeAlias = tuple[str, str, str]  # kind, namespace, name


class Cache:
    """All TenantCorpora, their children and their pods."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = Log("operator.cache")
        self._resources: dict[Key, Resource] = {}
        self._claimants: dict[Key, Claimant] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._objects: dict[Key, dict[_Place, Manifest]] = {}
        self._versions: dict[_Place, int] = {}
        self._told_at = clock.monotonic()

    @property
    def event_age_seconds(self) -> float:
        """Return how long ago the API server last told of anything."""
        return self._clock.monotonic() - self._told_at

    @property
    def keys(self) -> frozenset[Key]:
        """Return every corpus of which there is a resource or a child."""
        return frozenset(self._resources) | frozenset(self._objects)

    @property
    def resources(self) -> Iterable[Resource]:
        """Return every TenantCorpus."""
        return self._resources.values()

    def take(self, live: Manifest, *, is_gone: bool = False) -> Key | None:
        """Put the object in the place of its older version and return its corpus; None if that is no news, or nobody's."""
        self._told_at = self._clock.monotonic()
        key = key_of(live)
        place = _place_of(live)
        version = int(live["metadata"].get("resourceVersion") or 0)
        known = self._versions.get(place, 0)
        if key is None or version < known or (version == known and not is_gone):
            return None
        self._versions[place] = version
        if live["kind"] == KIND:
            self._take_resource(key, live, is_gone=is_gone)
        elif is_gone:
            self._forget(key, place)
        else:
            self._objects.setdefault(key, {})[place] = _slim(live)
            if live["kind"] == ChildKind.DEPLOYMENT:
                self._rollouts[str(key)] = rollout_of(live)
        return key

    def replace(self, kind: str, namespace: str | None, listed: Listed) -> None:
        """Take a complete list of one kind (of one namespace): what is not in it and is not newer than it is gone."""
        there = {_place_of(each) for each in listed.items}
        for each in listed.items:
            self.take(each)
        for place, version in list(self._versions.items()):
            is_meant = place[0] == kind and namespace in {None, place[1]}
            if is_meant and place not in there and version <= listed.version:
                del self._versions[place]
                self._forget_place(place)

    def children(self, key: Key) -> dict[ChildKind, Manifest]:
        """Return the objects that have the names of the corpus's children."""
        expected = {names.child_name(key.name), names.cleanup_name(key.name)}
        return {ChildKind(place[0]): live for place, live in self._of(key) if place[0] != POD and place[2] in expected}

    def pods(self, key: Key) -> list[Manifest]:
        """Return the pods of the corpus's shard, by name."""
        return [live for place, live in self._of(key) if place[0] == POD and _is_shard(live)]

    def claimants(self) -> tuple[Claimant, ...]:
        """Return who claims what."""
        return tuple(self._claimants.values())

    def platform(self) -> PlatformSeen:
        """Return where the platform corpus stands."""
        holders = [each for each in self._resources.values() if each.status.storage_key == PLATFORM_KEY]
        return PlatformSeen(is_declared=bool(holders), is_ready=any(_is_ready(each) for each in holders))

    def fleet(self) -> Fleet:
        """Return whose pods are being replaced."""
        return fleet_of(self._rollouts)

    def _take_resource(self, key: Key, live: Manifest, *, is_gone: bool) -> None:
        if is_gone:
            self._forget_resource(key)
            return
        try:
            resource = parse_resource(live)
        except InvalidInput as error:
            self._log.error("resource_not_read", corpus=str(key), message=error.message)
            return
        self._resources[key] = resource
        self._claimants[key] = claimant_of(resource)

    def _forget_resource(self, key: Key) -> None:
        self._resources.pop(key, None)
        self._claimants.pop(key, None)

    def _of(self, key: Key) -> list[tuple[_Place, Manifest]]:
        return sorted(self._objects.get(key, {}).items(), key=lambda entry: entry[0])

    def _forget_place(self, place: _Place) -> None:
        if place[0] == KIND:
            self._forget_resource(Key(place[1], place[2]))
            return
        for key in [key for key, objects in self._objects.items() if place in objects]:
            self._forget(key, place)

    def _forget(self, key: Key, place: _Place) -> None:
        objects = self._objects.get(key, {})
        objects.pop(place, None)
        if place[0] == ChildKind.DEPLOYMENT:
            self._rollouts.pop(str(key), None)
        if not objects:
            self._objects.pop(key, None)


def key_of(live: Manifest) -> Key | None:
    """Return the corpus that an object belongs to, None if it is neither a TenantCorpus nor labelled as a child."""
    metadata = live["metadata"]
    if live["kind"] == KIND:
        return Key(metadata["namespace"], metadata["name"])
    corpus = metadata.get("labels", {}).get(names.CORPUS_LABEL)
    return None if corpus is None else Key(metadata["namespace"], corpus)


def _place_of(live: Manifest) -> _Place:
    return live["kind"], live["metadata"]["namespace"], live["metadata"]["name"]


def _slim(live: Manifest) -> Manifest:
    """Return the object without the record of who set which field: half of its size, and nobody here reads it."""
    return {**live, "metadata": {name: value for name, value in live["metadata"].items() if name != "managedFields"}}


def _is_shard(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(names.COMPONENT_LABEL) == names.SHARD_COMPONENT)


def _is_ready(resource: Resource) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in resource.status.conditions)
