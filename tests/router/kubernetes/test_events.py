"""However lists and watches are interleaved, repeated and broken off, what is left is what the last version holds."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import Unavailable
from groundplane_router.kubernetes.corpora import read_resource
from groundplane_router.kubernetes.directory import Collection
from groundplane_router.kubernetes.failures import ResourceExpired
from groundplane_router.kubernetes.list_watch import collection_path, parse_event
from groundplane_router.kubernetes.objects import Resource
from tests.fakes.clock import ManualClock
from tests.support.corpora import UIDS, condition, resource

VARIANTS: dict[str, dict[str, Any]] = {
    "ready": {},
    "suspended": {"conditions": [condition("Suspended")]},
    "nobody": {"subjects": []},
    "unreadable": {"storageKey": "?"},
}
changes = st.tuples(st.sampled_from(sorted(UIDS)), st.sampled_from([*VARIANTS, "deleted", "bookmark"]))


class History:
    """An API server's: each change makes a version, and each version can be listed and watched from."""

    def __init__(self, changes):
        self.versions: list[dict[str, Any]] = [{}]
        self.lines: list[bytes] = []
        for name, change in changes:
            self._make(name, change)

    def _make(self, name, change):
        held = dict(self.versions[-1])
        version = {"resourceVersion": str(len(self.versions))}
        if change == "bookmark":
            event = {"type": "BOOKMARK", "object": {"kind": "TenantCorpus", "metadata": version}}
        elif change == "deleted":
            if name not in held:
                return
            gone = held.pop(name)
            event = {"type": "DELETED", "object": gone | {"metadata": gone["metadata"] | version}}
        else:
            made = resource(name, **VARIANTS[change])
            made["metadata"] |= version
            event = {"type": "MODIFIED" if name in held else "ADDED", "object": made}
            held[name] = made
        self.versions.append(held)
        self.lines.append(json.dumps(event).encode())

    def listed(self, version):
        return [
            read_resource(msgspec.json.decode(json.dumps(one), type=Resource))
            for one in self.versions[version].values()
        ]

    def watched(self, first, last):
        """The events after version `first`, up to `last`."""
        return [parse_event(line) for line in self.lines[first:last]]


@given(st.lists(changes, max_size=20), st.data())
def test_any_lists_and_repeats_end_in_what_the_last_version_holds(made, data):
    """Reconnects, restarts of the API server and late events grant nothing and lose nothing."""
    history = History(made)
    newest = len(history.versions) - 1
    collection = Collection(ManualClock(), lambda: None)
    version = 0
    collection.replace(history.listed(0))
    for _ in range(data.draw(st.integers(0, 6))):
        step = data.draw(st.sampled_from(["list", "watch", "repeat"]))
        if step == "list":
            version = data.draw(st.integers(version, newest))
            collection.replace(history.listed(version))
        else:
            start = version if step == "watch" else data.draw(st.integers(0, version))
            version = data.draw(st.integers(version, newest))
            collection.apply(history.watched(start, version))
    collection.apply(history.watched(version, newest))

    assert sorted(collection.readings, key=lambda one: one.uid) == sorted(
        history.listed(newest), key=lambda one: one.uid
    )


def test_what_says_the_same_is_no_change():
    """Status writes of the operator's polls, bookmarks and repeats must not rebuild the directory."""
    calls = []
    collection = Collection(ManualClock(), lambda: calls.append(1))
    history = History([("acme", "ready"), ("acme", "ready"), ("acme", "bookmark")])
    collection.replace(history.listed(1))
    collection.apply(history.watched(0, 3))

    assert calls == [1]


def test_the_first_list_counts_although_it_is_empty():
    """Else a router of an empty cluster would never be ready."""
    calls = []
    Collection(ManualClock(), lambda: calls.append(1)).replace([])

    assert calls == [1]


def test_a_version_that_is_gone_is_told_apart():
    """As an event in the stream, with the code of the HTTP status."""
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
    with pytest.raises(ResourceExpired):
        parse_event(line)


@pytest.mark.parametrize(
    "line",
    [b"{}", b"null", b'{"type":"ADDED"}', b'{"type":"ADDED","object":7}', b'{"type":"ERROR","object":{"code":500}}'],
)
def test_every_other_event_that_cannot_be_used_is_a_failure(line):
    """Never skipped: it may have been the one that took a grant away."""
    with pytest.raises(Unavailable) as failure:
        parse_event(line)

    assert failure.value.detail == "api_bad_answer"


@pytest.mark.parametrize(
    ("namespace", "path"),
    [
        (None, "/apis/groundplane.dev/v1alpha1/tenantcorpora"),
        ("agents", "/apis/groundplane.dev/v1alpha1/namespaces/agents/tenantcorpora"),
    ],
    ids=["all", "one"],
)
def test_a_collection_has_its_path(namespace, path):
    """A Role of one namespace allows no other path."""
    assert collection_path(namespace) == path
