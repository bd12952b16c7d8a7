"""The check at start finds stores on which two writers could both commit."""

import asyncio
from typing import ClassVar

import pytest

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import Conflict, PreconditionFailed, Stored
from groundplane_shard.stores import MemoryStore, check_conditions


class IgnoresIfNoneMatch(MemoryStore):
    """Creates over what exists."""

    async def create(self, key, data):
        self.objects[key] = data
        return Stored("e")


class TwoWinners(MemoryStore):
    """Lets two of the racing creates win, as stores without an atomic check do."""

    winners = 0

    async def create(self, key, data):
        self.objects[key] = data
        self.winners += 1
        return Stored("e") if self.winners <= 2 else PreconditionFailed()


class NoWinner(MemoryStore):
    """Refuses every create."""

    async def create(self, key, data):
        return Conflict()


class IgnoresIfMatch(MemoryStore):
    """Replaces whatever version is stored."""

    async def replace(self, key, data, etag):
        self.objects[key] = data
        return Stored("e")


class RefusesEveryReplacement(MemoryStore):
    """Never lets MANIFEST change."""

    async def replace(self, key, data, etag):
        return PreconditionFailed()


@pytest.mark.parametrize("broken", [IgnoresIfNoneMatch, TwoWinners, NoWinner, IgnoresIfMatch, RefusesEveryReplacement])
async def test_store_without_true_conditions_is_refused_and_left_clean(broken):
    """The fence between two writers is the store's condition; without it the shard stays read-only and says why."""
    store = broken()

    with pytest.raises(Unavailable) as refusal:
        await check_conditions(store, "t-acme/i/", token="00c0ffee")
    assert refusal.value.code == "store_not_conditional"
    assert store.objects == {}


async def test_store_is_condemned_even_if_its_probe_cannot_be_removed():
    """What is wrong with the store is what somebody has to know; what was left behind is a trifle beside it."""

    class WithoutDelete(TwoWinners):
        async def delete(self, key):
            raise Unavailable("store answered 403", code="store_denied")

    with pytest.raises(Unavailable) as refusal:
        await check_conditions(WithoutDelete(), "t-acme/i/", token="00c0ffee")
    assert refusal.value.code == "store_not_conditional"


async def test_race_of_a_millisecond_is_found():
    """A store that looks whether the key exists, and only then writes, lets two writers commit."""

    class LooksThenWrites(MemoryStore):
        async def create(self, key, data):
            is_free = key not in self.objects
            await asyncio.sleep(0.001)
            self.objects[key] = data
            return Stored("e") if is_free else PreconditionFailed()

    with pytest.raises(Unavailable, match="parallel creates of one key won"):
        await check_conditions(LooksThenWrites(), "t-acme/i/", token="00c0ffee")


async def test_a_store_has_one_chance():
    """A race that two writers lose once in three starts would still be lost."""

    class RacesAtFirst(TwoWinners):
        keys: ClassVar[set[str]] = set()

        async def create(self, key, data):
            self.keys.add(key)
            return await (super().create(key, data) if len(self.keys) == 1 else MemoryStore.create(self, key, data))

    with pytest.raises(Unavailable, match="2 of 32 parallel creates"):
        await check_conditions(RacesAtFirst(), "t-acme/i/", token="00c0ffee")


async def test_creates_that_were_kept_waiting_are_tried_again_under_another_key():
    """A store that decides races right may take longer than a call may wait, above all on a busy machine."""

    class Slow(MemoryStore):
        keys: ClassVar[set[str]] = set()

        async def create(self, key, data):
            self.keys.add(key)
            answer = await super().create(key, data)
            if isinstance(answer, PreconditionFailed) and len(self.keys) == 1:
                raise OutcomeUnknown("no answer in time")
            return answer

    store = Slow()

    await check_conditions(store, "t-acme/i/", token="00c0ffee")
    assert len(store.keys) == 2
    assert store.objects == {}


async def test_store_that_cannot_be_asked_is_not_condemned():
    """An outage at start is no reason to tell somebody to buy another store."""

    class Silent(MemoryStore):
        async def create(self, key, data):
            raise OutcomeUnknown("no answer")

    with pytest.raises(Unavailable) as refusal:
        await check_conditions(Silent(), "t-acme/i/", token="00c0ffee")
    assert refusal.value.code == "outcome_unknown"


async def test_losers_that_are_told_to_ask_again_are_fine():
    """S3 answers 409 to creates that race; that is a refusal too."""

    class Conflicting(MemoryStore):
        async def create(self, key, data):
            answer = await super().create(key, data)
            return answer if isinstance(answer, Stored) else Conflict()

    await check_conditions(Conflicting(), "t-acme/i/", token="00c0ffee")
