"""One opened writer: what it refuses, whom it makes wait, and how the first write fixes what the corpus is."""

import asyncio
import threading
from typing import cast

import msgspec
import pytest

from groundplane.errors import InvalidInput, Superseded, Unavailable
from groundplane.wire.internal import KnownRequest
from groundplane_shard import preparing
from groundplane_shard.arrivals import Arrivals
from groundplane_shard.committer import WriteLimits
from groundplane_shard.corpus import Corpus
from groundplane_shard.engines import Made
from groundplane_shard.preparing import prepare_all
from groundplane_shard.rows import prepare_operation
from groundplane_shard.stores import MemoryStore, run
from tests.fakes.virtual_clock import VirtualClock
from tests.shard.corpus_model import ANALYSER, DIMENSION, replace, vector_bytes
from tests.shard.shard_parts import (
    INCARNATION,
    LAYOUT,
    delete,
    document,
    identity,
    kill_at_the_end,
    local_state,
    make_shard,
    memo,
    outcome,
    parts,
    replica,
    running,
    search_request,
    serving_of,
    settled,
    until,
    write_request,
)
from tests.support.failing_store import FailingStore, failing, nothing, waiting

OTHER = identity(DIMENSION, 7)


@pytest.fixture
def store():
    return FailingStore(MemoryStore())


@pytest.fixture
async def shard(store, tmp_path, monkeypatch):
    monkeypatch.setattr("groundplane_shard.stores.driver._pause_seconds", lambda _: 0.0)
    shard = make_shard(store, tmp_path / "work", clock=VirtualClock())
    async with running(shard):
        yield shard


async def test_two_first_writes_of_one_embedding_are_both_stored(shard):
    """Two routers start at once; neither may be told that the other was first."""
    results = await asyncio.gather(*(shard.write(write_request(document(name))) for name in ("a", "b")))

    assert [each.results[0].changed for each in results] == [True, True]
    assert shard.status().embedding == identity()


async def test_of_two_first_writes_of_different_embeddings_one_is_refused(shard):
    """Vectors of two models never mix: I19. The loser learns which one the corpus has."""
    won, lost = await asyncio.gather(
        outcome(shard.write(write_request(document("a")))),
        outcome(shard.write(write_request(document("b"), embedding=OTHER))),
    )

    assert won.results[0].changed
    assert (type(lost), lost.code, lost.status) == (InvalidInput, "embedding_mismatch", 409)


@pytest.mark.parametrize("asked", [{"embedding": None}, {"embedding": OTHER}, {"embedding_id": None}], ids=str)
async def test_a_first_write_without_its_identity_is_asked_for_it(shard, asked):
    """The id alone does not say how many numbers a vector has."""
    error = await outcome(shard.write(msgspec.structs.replace(write_request(document("a")), **asked)))

    assert (error.code, error.status) == ("embedding_unknown", 409)


async def test_later_writes_need_the_id_alone(shard):
    """The identity travels once."""
    await shard.write(write_request(document("a")))
    done = await shard.write(msgspec.structs.replace(write_request(document("b")), embedding=None))

    assert done.results[0].changed


async def test_an_identity_whose_answer_was_lost_is_the_one_that_counts(shard, store):
    """It is in MANIFEST: the next writer of another one is refused with 409, not taken on, and the first goes on."""
    changes = []

    def from_the_second_change_on(call):
        changes.extend([call] if call.verb == "replace" else [])
        return "lost" if len(changes) > 1 else None

    store.rule = from_the_second_change_on
    first = await outcome(shard.write(write_request(document("a"))))
    store.rule = nothing
    other = await outcome(shard.write(write_request(document("b"), embedding=OTHER)))
    again = await shard.write(write_request(document("a")))

    assert isinstance(first, Unavailable)
    assert (other.code, other.status) == ("embedding_mismatch", 409)
    assert again.results[0].changed


async def test_what_manifest_says_of_an_id_wins_over_what_a_request_says(shard, store):
    """One id with two dimensions would let vectors of the wrong size into the log."""
    store.rule = failing("refused", "create", key=LAYOUT.log)
    await outcome(shard.write(write_request(document("a"))))
    store.rule = nothing
    serving = serving_of(shard)
    serving.corpus.made = Made()  # as if the answer to the registration had been lost
    wide = msgspec.structs.replace(identity(), dimension=5)
    error = await outcome(
        shard.write(write_request(replace("b", ["pump"], [(1.0, 0.0, 0.0, 0.0, 0.0)]), embedding=wide))
    )

    assert error.code == "dimension_mismatch"
    assert serving.corpus.dimension == DIMENSION


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"analyser": "words-1-german"}, "analyser_mismatch", id="analyser"),
        pytest.param({"incarnation": "00000000-0000-4000-8000-00000000000b"}, "wrong_incarnation", id="incarnation"),
    ],
)
async def test_a_request_for_something_else_is_refused_whether_it_reads_or_writes(shard, change, code):
    """It would be answered from, or stored into, the wrong index."""
    await shard.write(write_request(document("a")))
    errors = [
        await outcome(shard.search(search_request(**change))),
        await outcome(shard.write(write_request(document("b"), **change))),
    ]

    assert [(each.code, each.status) for each in errors] == [(code, 409)] * 2


async def test_a_vector_of_another_embedding_is_not_compared(shard):
    """Its cosines would be noise that looks like scores."""
    await shard.write(write_request(document("a")))
    vector = vector_bytes(1, 0, 0)
    error = await outcome(shard.search(search_request(vector=vector, embedding_id=OTHER.id)))
    answer = await shard.search(search_request(vector=vector, embedding_id=identity().id))

    assert error.code == "embedding_mismatch"
    assert len(answer.candidates) == 1


async def test_memos_and_deletes_need_no_embedding(shard):
    """A corpus without an embedder keeps memos."""
    done = await shard.write(write_request(memo("m"), delete("never"), embedding_id=None))
    status = await shard.snapshot()

    assert [each.changed for each in done.results] == [True, False]
    assert (status.embedding, status.snapshot_sequence) == (None, done.sequence)
    assert shard.memo("m", "f").response == b"1"


async def test_a_search_waits_for_the_sequence_it_asks_for(shard):
    """Read your own write, through another router: I18."""
    first = await shard.write(write_request(document("a")))
    searching = [
        asyncio.create_task(shard.search(search_request(min_sequence=first.sequence + number, deadline_ms=60_000)))
        for number in (1, 1, 2)
    ]
    await until(lambda: shard._state.arrivals.count == 3)
    await shard.write(write_request(document("b")))
    await until(lambda: shard._state.arrivals.count == 1)
    await shard.write(write_request(document("c")))
    answers = await asyncio.gather(*searching)

    assert [each.statistics.documents >= wanted for each, wanted in zip(answers, (2, 2, 3), strict=True)] == [True] * 3


async def test_a_search_is_woken_by_a_write_whose_caller_left(shard, store):
    """The write is applied; nobody is there to say so but the log."""
    first = await shard.write(write_request(document("a")))
    searching = asyncio.create_task(shard.search(search_request(min_sequence=first.sequence + 1, deadline_ms=60_000)))
    release = asyncio.Event()
    store.rule = waiting(release, "create", key=LAYOUT.log)
    asked = len(store.calls)
    writing = asyncio.create_task(shard.write(write_request(document("b"))))
    await until(lambda: any(call.verb == "create" for call in store.calls[asked:]))
    writing.cancel()
    await settled()
    release.set()

    assert (await searching).statistics.documents == 2


async def test_a_search_that_gives_up_leaves_nothing_behind(shard):
    """A caller may ask for a sequence that never comes, again and again."""
    await shard.write(write_request(document("a")))
    timed_out = await outcome(shard.search(search_request(min_sequence=10**12, deadline_ms=1)))
    searching = asyncio.create_task(shard.search(search_request(min_sequence=10**12, deadline_ms=60_000)))
    await until(lambda: shard._state.arrivals.count == 1)
    searching.cancel()
    await settled()

    assert timed_out.code == "sequence_not_reached"
    assert shard._state.arrivals.count == 0
    assert serving_of(shard)._searches == 0


async def test_arrivals_wake_those_who_are_due_and_no_others():
    """One bookkeeping for many who wait, some of whom left."""
    arrivals, corpus = Arrivals(), cast("Corpus", _StandingAt(3))
    waits = {number: asyncio.create_task(arrivals.reach(number, corpus)) for number in range(2, 8)}
    await settled()
    waits[5].cancel()
    arrivals.moved(6)
    await settled()

    assert [number for number, task in waits.items() if task.done()] == [2, 3, 4, 5, 6]
    arrivals.abandon()
    assert isinstance(await outcome(waits[7]), Unavailable)
    assert arrivals.count == 0


class _StandingAt:
    def __init__(self, sequence: int):
        self.sequence = sequence

    def view(self):
        return self


async def test_more_searches_than_allowed_are_shed(store, tmp_path):
    """A queue without an end answers nobody in time: I20."""
    shard = make_shard(store, tmp_path / "work", max_searches=2)
    async with running(shard):
        waiting_searches = [
            asyncio.create_task(shard.search(search_request(min_sequence=100, deadline_ms=60_000))) for _ in range(2)
        ]
        await until(lambda: shard._state.arrivals.count == 2)
        error = await outcome(shard.search(search_request()))
        for each in waiting_searches:
            each.cancel()
        await settled()
        answer = await shard.search(search_request())

    assert (error.code, error.retry_after_seconds) == ("overloaded", 1)
    assert answer.candidates == []


async def test_a_write_that_has_no_room_is_refused_before_it_is_prepared(store, tmp_path, monkeypatch):
    """Analysing a megabyte only to refuse it is how an overload feeds itself."""
    shard = make_shard(store, tmp_path / "work", write_limits=WriteLimits(max_queued=10, max_memtable_bytes=1))
    monkeypatch.setattr(preparing, "prepare_operation", None)
    async with running(shard):
        serving_of(shard)._committer._pending_bytes = 1  # of a request that is on its way
        error = await outcome(shard.write(write_request(memo("m"))))

    assert error.code == "overloaded"


async def test_a_search_over_its_time_says_so(shard, monkeypatch):
    """The router has other things to do than wait; an answer that comes too late is none."""
    await shard.write(write_request(document("a")))

    async def endless(_view, _request):
        await asyncio.Event().wait()

    monkeypatch.setattr(serving_of(shard).corpus, "search", endless)
    error = await outcome(shard.search(search_request(deadline_ms=1)))

    assert (type(error), error.code) == (Unavailable, "overloaded")


@pytest.mark.parametrize(
    ("large", "is_threaded"),
    [
        pytest.param(document("d", *(["pump"] * 65)), True, id="many-chunks"),
        pytest.param(document("d", "pump " * 4_000), True, id="long-text"),
        pytest.param(replace("d", ["pump"] * 20, [[1.0] * 4_096] * 20), True, id="wide-vectors"),
        pytest.param(document("d"), False, id="small"),
        pytest.param(memo("m"), False, id="memo"),
    ],
)
async def test_large_documents_are_prepared_beside_the_event_loop(monkeypatch, large, is_threaded):
    """A few long chunks take as long as many short ones; searches must not wait for either."""
    threads = []

    def noting(*arguments):
        threads.append(threading.get_ident())
        return prepare_operation(*arguments)

    monkeypatch.setattr(preparing, "prepare_operation", noting)
    dimension = len(large.chunks[0].vector) // 4 if hasattr(large, "chunks") else DIMENSION
    await prepare_all([large], ANALYSER, identity(dimension), VirtualClock())

    assert (threads[0] != threading.get_ident()) is is_threaded


async def test_gauges_show_what_is_so_now(store, tmp_path):
    """At start, after a write whose caller left, after a snapshot: a gauge that needs an event to move is wrong between."""
    made = parts()
    metrics = made.metrics
    async with running(make_shard(store, tmp_path / "first")) as first:
        await first.write(write_request(document("a")))
        kill_at_the_end(first)
    shard = make_shard(store, tmp_path / "second", metrics=metrics)
    shard.observe()
    unready = metrics.documents._value.get()
    async with running(shard):
        shard.observe()
        at_start = metrics.documents._value.get(), metrics.log_lag_records._value.get()
        sequence = metrics.sequence._value.get()
        status = await shard.snapshot()
        shard.observe()
        after = metrics.log_lag_records._value.get(), metrics.log_lag_bytes._value.get()

    assert (unready, at_start, after) == (0, (1, 1), (0, 0))
    assert sequence == status.sequence
    assert metrics.last_snapshot._value.get() > 0


async def test_every_answer_carries_life_epoch_and_sequence(shard):
    """The router refuses a foreign life and an older epoch by them."""
    done = await shard.write(write_request(document("a"), memo("m")))
    answers = [
        await shard.search(search_request()),
        await shard.documents("", 10),
        await shard.document("a"),
        await shard.document("never"),
        shard.memo("m", "f"),
        shard.memo("never", "f"),
        shard.status(),
    ]

    assert {(each.incarnation, each.epoch, each.sequence) for each in answers} == {
        (LAYOUT.incarnation, done.epoch, done.sequence)
    }


async def test_known_is_what_is_stored_just_so(shard):
    """The router embeds nothing for it: another text, and a document that is not there, must be embedded."""
    await shard.write(write_request(document("a"), document("b", "pump", "valve")))
    corpus = serving_of(shard).corpus
    digests = [(doc_id, corpus.content_hash(doc_id) or b"") for doc_id in "ab"] + [("a", b"other"), ("c", b"")]
    answer = await shard.known(KnownRequest(incarnation=INCARNATION, documents=tuple(digests)))

    assert answer.chunks == (1, 2, None, None)
    assert answer.sequence == shard.status().sequence


async def test_nothing_is_known_to_a_shard_that_was_superseded(shard):
    """`unchanged` acknowledges: the writer of now may have deleted the document (I5)."""
    await shard.write(write_request(document("a")))
    digest = serving_of(shard).corpus.content_hash("a") or b""
    other = replica()
    state = local_state(shard._store, shard._work_directory / "newer")
    await run(other.open(), shard._store, state)
    await run(other.take_over(), shard._store, state)
    request = KnownRequest(incarnation=INCARNATION, documents=(("a", digest),))

    assert isinstance(await outcome(shard.known(request)), Superseded)
