"""A store that fails on purpose: wraps any `ObjectStore` and asks a rule before every call what is to go wrong."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import (
    Absent,
    Conflict,
    Damaged,
    Found,
    Listed,
    LocalFile,
    PreconditionFailed,
    Stored,
    Verified,
)
from groundplane_shard.stores import ObjectStore

Failure = Literal["refused", "lost", "vanished"]
Rule = Callable[["Call"], "Failure | asyncio.Event | None"]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Call:
    """One call of the store. `is_write` says whether a lost answer leaves it open what was done."""

    verb: str
    key: str

    @property
    def is_write(self) -> bool:
        return self.verb in {"create", "replace", "upload", "delete"}


def nothing(_call: Call) -> None:
    """The rule of a store that works."""


def failing(failure: Failure, *verbs: str, key: str = "", times: int | None = None) -> Rule:
    """Return a rule: calls of `verbs` whose key holds `key` end in `failure`, the first `times` of them (None: all)."""
    left = [times]

    def rule(call: Call) -> Failure | None:
        if call.verb not in verbs or key not in call.key or left[0] == 0:
            return None
        left[0] = None if left[0] is None else left[0] - 1
        return failure

    return rule


def waiting(event: asyncio.Event, *verbs: str, key: str = "") -> Rule:
    """Return a rule: calls of `verbs` whose key holds `key` begin only once `event` is set."""
    return lambda call: event if call.verb in verbs and key in call.key else None


def unreliable(generator: random.Random, share: float) -> Rule:
    """Return a rule by which about `share` of all calls fail, in one way or another."""

    def rule(_call: Call) -> Failure | None:
        if generator.random() >= share:
            return None
        return generator.choice(("refused", "lost", "vanished"))

    return rule


class FailingStore:
    """Performs calls on `store` as `rule` has it.

    `refused`: nothing is done, and the caller knows (`Unavailable`). `lost`: it is done, and the caller is told that
    nobody knows (`OutcomeUnknown`). `vanished`: told the same, but nothing is done. An event: the call waits for it.
    `calls` lists everything that was asked.
    """

    def __init__(self, store: ObjectStore, rule: Rule = nothing) -> None:
        self.store = store
        self.rule = rule
        self.calls: list[Call] = []

    async def get(self, key: str) -> Found | Absent:
        return await self._perform(Call("get", key), lambda: self.store.get(key))

    async def create(self, key: str, data: bytes) -> Stored | PreconditionFailed | Conflict:
        return await self._perform(Call("create", key), lambda: self.store.create(key, data))

    async def replace(self, key: str, data: bytes, etag: str) -> Stored | PreconditionFailed | Conflict:
        return await self._perform(Call("replace", key), lambda: self.store.replace(key, data, etag))

    async def upload(self, key: str, file: LocalFile) -> Stored | PreconditionFailed | Conflict:
        return await self._perform(Call("upload", key), lambda: self.store.upload(key, file))

    async def download(self, key: str, target: Path, *, size: int, sha256: str) -> Verified | Damaged:
        return await self._perform(
            Call("download", key), lambda: self.store.download(key, target, size=size, sha256=sha256)
        )

    async def verify(self, key: str, *, size: int, sha256: str) -> Verified | Damaged:
        return await self._perform(Call("verify", key), lambda: self.store.verify(key, size=size, sha256=sha256))

    async def list_page(self, prefix: str, start_after: str) -> Listed:
        return await self._perform(Call("list", prefix), lambda: self.store.list_page(prefix, start_after))

    async def delete(self, key: str) -> None:
        await self._perform(Call("delete", key), lambda: self.store.delete(key))

    async def _perform(self, call: Call, work: Callable[[], Awaitable[Value]]) -> Value:
        self.calls.append(call)
        fate = self.rule(call)
        if isinstance(fate, asyncio.Event):
            await fate.wait()
        elif fate == "refused":
            raise Unavailable(f"{call.verb} was refused by the test")
        elif fate == "vanished":
            raise OutcomeUnknown(f"{call.verb} went nowhere in the test")
        answer = await work()
        if fate == "lost":
            raise OutcomeUnknown(f"the answer of {call.verb} was lost by the test")
        return answer
