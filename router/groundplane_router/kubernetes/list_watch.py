"""One collection of TenantCorpora, listed and then watched from there, for ever.

A list is of one version, however many pages it has, and never from a server's cache: a grant that was withdrawn does not come
back. A watch goes on from the last version that was heard of, also after it broke off; only a version that is no longer kept
(410), or an answer that cannot be used, makes it list again.

On an idle cluster a watch is silent but for a bookmark 2 s before its end and one a minute (measured on 1.34; none in a watch of
12 s or less). So watches are short, each one that the server takes confirms what is known, and one that the server does not end in
time is dead. Sources: "Kubernetes API Concepts", sections on watches, bookmarks and 410.
"""

import random
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, Literal, Protocol, cast

import msgspec

from groundplane.api.crd import PLURAL
from groundplane.api.v1alpha1 import API_VERSION
from groundplane.errors import Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane_router.backoff import Backoff
from groundplane_router.kubernetes.client import ApiServer, decode
from groundplane_router.kubernetes.corpora import Reading, read_resource
from groundplane_router.kubernetes.failures import BAD_ANSWER, ResourceExpired, bad_answer
from groundplane_router.kubernetes.objects import Resource, ResourcePage, Status, WatchLine

PAGE_SIZE: Final = 20
"""So many resources of etcd's largest size, 1.5 MiB, are within what one answer may have: fat ones must not stop the directory."""

MAX_PAGES: Final = 5_000
WATCH_SECONDS: Final = (30, 60)
"""The server ends a watch after a time between these, so that those of many routers do not end together."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
MOST_ASKED_SECONDS: Final = 60.0
"""A Retry-After that asks for more is not believed: the directory would grow old."""

EXPIRED_CODE: Final = 410

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
_EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change; of a bookmark only the version counts."""

    type: EventType
    version: str
    reading: Reading


class Sink(Protocol):
    """Takes what a collection holds."""

    def replace(self, readings: Sequence[Reading]) -> None:
        """Take the whole of it."""

    def apply(self, events: Sequence[Event]) -> None:
        """Take what has changed since, in order; no event, or bookmarks alone, mean that nothing has."""


class ListWatch:
    """Follows the TenantCorpora of one namespace, or of all."""

    def __init__(self, api: ApiServer, namespace: str | None, sink: Sink, *, clock: Clock, rng: random.Random) -> None:
        """namespace: None for all of them."""
        self._api = api
        self._path = collection_path(namespace)
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._pause = Backoff(rng, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        self._version: str | None = None
        self._fault: str | None = None
        self._log = Log("router.directory")

    async def run(self) -> None:
        """Follow for ever. A failure is logged once, changes nothing, and is tried again after at most 5 s."""
        while True:
            at_least = 0.0
            try:
                await self._follow()
            except ResourceExpired:
                self._version = None
            except Unavailable as error:
                if error.detail == BAD_ANSWER:
                    self._version = None
                self._report(error)
                at_least = min(error.retry_after_seconds or 0.0, MOST_ASKED_SECONDS)
            await self._clock.sleep(self._pause.next_seconds(at_least=at_least))

    async def _follow(self) -> None:
        """List if need be, then take events until the watch ends."""
        if self._version is None:
            self._version = await self._list()
            self._recovered()
        seconds = self._rng.randint(*WATCH_SECONDS)
        began_at = self._clock.monotonic()
        async with aclosing(self._api.watch(self._path, self._version, seconds)) as batches:
            async for lines in batches:
                self._take(lines)
        if self._clock.monotonic() - began_at >= seconds / 2:
            self._pause.reset()

    async def _list(self) -> str:
        """Hand the whole collection over and return its version."""
        readings: list[Reading] = []
        query = {"limit": str(PAGE_SIZE)}
        for _ in range(MAX_PAGES):
            page = await self._api.get(self._path, ResourcePage, query)
            readings += [read_resource(item) for item in page.items or ()]
            if not page.metadata.continue_:
                self._sink.replace(readings)
                return page.metadata.resource_version
            query["continue"] = page.metadata.continue_
        raise bad_answer(f"with more than {MAX_PAGES * PAGE_SIZE} TenantCorpora")

    def _take(self, lines: Sequence[bytes]) -> None:
        """Hand events over. Raises ResourceExpired, or Unavailable after which the collection is listed again."""
        events = [parse_event(line) for line in lines]
        self._sink.apply(events)
        self._recovered()
        if events:
            self._version = events[-1].version
            self._pause.reset()

    def _report(self, error: Unavailable) -> None:
        if error.detail != self._fault:
            self._fault = error.detail
            self._log.warning("directory_not_followed", path=self._path, fault=error.message, detail=error.detail)

    def _recovered(self) -> None:
        if self._fault is not None:
            self._fault = None
            self._log.info("directory_followed_again", path=self._path)


def collection_path(namespace: str | None) -> str:
    """Return the path of the TenantCorpora of `namespace`; None is all namespaces."""
    within = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{API_VERSION}{within}/{PLURAL}"


def parse_event(line: bytes) -> Event:
    """Return the event of one line. Raises ResourceExpired, or Unavailable for any other failure that the server reports."""
    event = decode(line, WatchLine)
    if event.type == "ERROR":
        raise _failure_of(decode(event.object, Status))
    resource = decode(event.object, Resource)
    version = resource.metadata.resource_version
    if event.type not in _EVENT_TYPES or not version:
        raise bad_answer("with an event of an unknown kind")
    return Event(type=cast("EventType", event.type), version=version, reading=read_resource(resource))


def _failure_of(status: Status) -> Unavailable:
    if status.code == EXPIRED_CODE:
        return ResourceExpired()
    return bad_answer(f"a watch with failure {status.code}")
