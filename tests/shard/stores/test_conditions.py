"""The check at start finds stores on which two writers could both commit."""

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
