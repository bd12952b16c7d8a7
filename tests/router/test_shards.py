"""The client of the shards: what it shows them, what it believes, and what it makes of a failure."""

import asyncio
import socket

import msgspec
import pytest

from groundplane.errors import OutcomeUnknown, Unavailable
from groundplane.process.clock import SystemClock
from groundplane.tokens import SigningKey, VerifyingKeys
from groundplane.wire import internal
from groundplane.wire.internal import DeleteDocument, SearchRequest, WriteRequest
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_router import shards as shards_module
from groundplane_router.capabilities import Capabilities
from groundplane_router.deadline import Deadline
from groundplane_router.health import ShardHealth
from groundplane_router.shards import Shards
from tests.fakes.clock import ManualClock
from tests.fakes.shard_server import FakeShard, ShardFault

KEY = CorpusKey("t-acme")
INCARNATION = Incarnation("20000000-0000-4000-8000-000000000000")


SEARCH = SearchRequest(incarnation=INCARNATION, analyser="a", terms=(), window=20)


class Pair:
    """A client and one shard."""

    def __init__(self):
        self.clock = SystemClock()
        self.key = SigningKey.generate()
        public = self.key._key.public_key()
        self.shard = FakeShard(
            KEY, INCARNATION, VerifyingKeys({self.key.id: ("router", public)}), clock=self.clock, tenant="acme"
        )
        self.health = ShardHealth()
        self.capabilities = Capabilities(self.key, self.clock)
        self.client = Shards(self.capabilities, self.health, self.clock)

    def deadline(self, seconds=5.0):
        return Deadline(self.clock, seconds)

    async def write(self, corpus=None, seconds=5.0):
        request = WriteRequest(incarnation=INCARNATION, analyser="a", operations=(DeleteDocument(doc_id="x"),))
        return await self.client.write(corpus or self.shard.entry(), request, self.deadline(seconds))


@pytest.fixture
async def pair():
    one = Pair()
    await one.shard.start()
    async with one.client:
        yield one
    await one.shard.stop()


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_write_that_could_not_be_sent_did_not_happen(pair):
    """The caller may count on it: there is nothing to repeat but the call itself."""
    nowhere = msgspec.structs.replace(pair.shard.entry(), endpoint=f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(Unavailable) as failure:
        await pair.write(nowhere)

    assert not isinstance(failure.value, OutcomeUnknown)
    assert (failure.value.reason, failure.value.detail) == ("search_failed", "shard_unreachable")


@pytest.mark.parametrize("fault", ["slow", "reset", "empty", "garbage", "foreign"])
async def test_a_write_that_was_sent_and_not_answered_is_unknown_and_not_repeated(pair, fault):
    """Only the caller may repeat it."""
    pair.shard.fault = fault
    with pytest.raises(OutcomeUnknown):
        await pair.write(seconds=0.2)

    assert pair.shard.paths() == ["/write"]


@pytest.mark.parametrize(("fault", "calls"), [("reset", 2), ("slow", 1), ("garbage", 1)])
async def test_a_read_is_repeated_once_when_the_connection_broke(pair, fault, calls):
    """A planned restart breaks connections; a slow or wrong shard does not get better by asking twice."""
    pair.shard.fault = fault
    with pytest.raises(Unavailable):
        await pair.client.search(pair.shard.entry(), SEARCH, pair.deadline(0.2))

    assert len(pair.shard.seen) == calls


async def test_an_answer_past_its_bound_is_refused(pair, monkeypatch):
    """A shard gone wild must not take the router's memory."""
    monkeypatch.setattr(shards_module, "MAX_ANSWER_BYTES", 16)
    with pytest.raises(Unavailable):
        await pair.client.status(pair.shard.entry(), pair.deadline())


async def test_the_highest_epoch_seen_is_the_least_accepted(pair):
    """A superseded writer answers from an older state."""
    await pair.client.status(pair.shard.entry(), pair.deadline())
    pair.shard.epoch += 1
    await pair.client.status(pair.shard.entry(), pair.deadline())
    pair.shard.epoch -= 1

    with pytest.raises(Unavailable) as failure:
        await pair.client.status(pair.shard.entry(), pair.deadline())
    assert failure.value.detail == "shard_superseded_epoch"


async def test_a_refused_capability_is_signed_anew_for_the_next_call(pair):
    """A shard's clock or keys may have moved; the next call must not fail for an old signature."""
    corpus = pair.shard.entry()
    first = pair.capabilities.header(corpus, "read")
    other = SigningKey.generate()
    pair.shard._keys = VerifyingKeys({other.id: ("router", other._key.public_key())})
    with pytest.raises(Unavailable) as failure:
        await pair.client.status(corpus, pair.deadline())
    await asyncio.sleep(0)

    assert failure.value.detail == "capability_denied"
    assert pair.capabilities._signed == {}
    assert first.startswith("Bearer ")


def test_a_capability_is_reused_until_it_is_due():
    """Signing takes longer than searching."""
    clock = ManualClock()
    corpus = FakeShard(KEY, INCARNATION, VerifyingKeys({}), clock=clock, tenant="acme").entry()
    capabilities = Capabilities(SigningKey.generate(), clock)
    first = capabilities.header(corpus, "read")
    clock.advance(29)
    assert capabilities.header(corpus, "read") == first
    assert capabilities.header(corpus, "write") != first

    clock.advance(1)
    assert capabilities.header(corpus, "read") != first


def test_a_capability_is_signed_anew_when_the_clock_jumped_back():
    """Else it would be "not yet valid" for as long as the jump was."""
    clock = ManualClock()
    corpus = FakeShard(KEY, INCARNATION, VerifyingKeys({}), clock=clock, tenant="acme").entry()
    capabilities = Capabilities(SigningKey.generate(), clock)
    first = capabilities.header(corpus, "read")
    clock.wall -= 3_600

    assert capabilities.header(corpus, "read") != first


async def test_redirects_are_not_followed(pair):
    """A redirect would carry the capability to wherever it points."""
    pair.shard.fault, pair.shard.redirect_to = "redirect", f"{pair.shard.entry().endpoint}/elsewhere"
    with pytest.raises(Unavailable):
        await pair.client.status(pair.shard.entry(), pair.deadline())

    assert pair.shard.paths() == ["/status"]


async def test_a_write_whose_results_are_too_few_is_unknown(pair, monkeypatch):
    """Which of the documents got in is not known, and the answer must not break the router."""
    monkeypatch.setattr(pair.shard, "_write", lambda request: internal.WriteResult(**pair.shard._version(), results=()))

    with pytest.raises(OutcomeUnknown):
        await pair.write()


async def test_a_page_that_goes_on_from_nowhere_is_no_last_page(pair, monkeypatch):
    """A listing that ends there would be taken for the whole corpus."""
    monkeypatch.setattr(
        pair.shard, "_page", lambda *_: internal.DocumentPage(**pair.shard._version(), documents=[], more=True)
    )

    with pytest.raises(Unavailable) as failure:
        await pair.client.documents(pair.shard.entry(), "", 10, pair.deadline())
    assert failure.value.detail == "shard_bad_answer"


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("9" * 5_000, None), ("٣", None), ("soon", None)])
async def test_when_to_come_back_is_read_from_a_number_only(pair, header, seconds):
    """A shard, or what answers in its place, may say anything."""
    pair.shard.fault = ShardFault(503, "overloaded", headers={"Retry-After": header})
    with pytest.raises(Unavailable) as failure:
        await pair.client.status(pair.shard.entry(), pair.deadline())

    assert failure.value.retry_after_seconds == seconds


@pytest.mark.parametrize("code", ["store_unavailable", "disk_full", "overloaded", "a_code_of_tomorrow"])
async def test_a_write_that_the_shard_says_it_did_not_do_is_no_unknown_outcome(pair, code):
    """A full disk is certain: "repeat, it may have happened" would hide the cause that somebody must mend."""
    pair.shard.fault = ShardFault(503, code, "unavailable")
    with pytest.raises(Unavailable) as failure:
        await pair.write()

    assert not isinstance(failure.value, OutcomeUnknown)
    assert failure.value.detail == ("shard_error" if code == "a_code_of_tomorrow" else code)


async def test_a_bug_in_a_write_leaves_its_outcome_unknown(pair):
    """The shard may have failed after the record was in the log."""
    pair.shard.fault = ShardFault(500, "internal_error", "bug")

    with pytest.raises(OutcomeUnknown):
        await pair.write()


@pytest.mark.parametrize(
    ("code", "up"),
    [
        ("not_ready", 0),
        ("superseded", 0),
        ("internal_error", 0),
        ("overloaded", 1),
        ("sequence_not_reached", 1),
        ("embedding_mismatch", 1),
    ],
)
async def test_a_refusal_says_whether_the_shard_is_up(pair, code, up):
    """An alert for a shard that is down must not ring because one request could not be served."""
    corpus = pair.shard.entry()
    await pair.client.status(corpus, pair.deadline())
    pair.shard.fault = ShardFault(503, code)
    with pytest.raises(Unavailable):
        await pair.client.status(corpus, pair.deadline())

    assert pair.health.count_up([corpus])["tenant"] == up


async def test_health_follows_the_last_exchange(pair):
    """The gauge of shards that are up is what this says."""
    corpus = pair.shard.entry()
    await pair.client.status(corpus, pair.deadline())
    assert pair.health.count_up([corpus])["tenant"] == 1

    pair.shard.fault = "reset"
    with pytest.raises(Unavailable):
        await pair.client.status(corpus, pair.deadline())
    assert pair.health.count_up([corpus])["tenant"] == 0


def test_what_the_directory_no_longer_names_is_forgotten():
    """Corpora come and go for years in one process."""
    health = ShardHealth()
    corpus = FakeShard(KEY, INCARNATION, VerifyingKeys({}), clock=ManualClock(), tenant="acme").entry()
    health.answered(corpus, 9)
    health.keep_only([])

    assert health.highest_epoch(corpus) == 0
