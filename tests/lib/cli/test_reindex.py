"""`groundplane corpus reindex`: patient, resumable, and plain about what it could not do."""

import msgspec
import pytest

from groundplane.cli.main import run
from groundplane.cli.reindex import MAX_PASSES, Reindexing
from groundplane.client import Client, RetrievalUnavailable
from groundplane.wire.names import Reason
from groundplane.wire.public import DocumentResult, ReindexAnswer, ReindexRequest
from tests.fakes.router import problem, running_router


@pytest.fixture
def router(monkeypatch):
    monkeypatch.setenv("GROUNDPLANE_TOKEN", "token")
    monkeypatch.delenv("GROUNDPLANE_TOKEN_FILE", raising=False)
    with running_router() as router:
        monkeypatch.setenv("GROUNDPLANE_URL", router.url)
        yield router


def answer(state, documents=3, **more):
    return ReindexAnswer(state=state, documents=documents, total_documents=3, chunks=2 * documents, **more)


def cursors(router):
    return [msgspec.json.decode(body, type=ReindexRequest).cursor for _, _, body in router.requests]


def test_it_calls_until_it_is_finished_and_shows_how_far_it_is(router, capsys):
    """One call works for some seconds; a corpus takes many."""
    router.reindex = [answer("running", 1, cursor="a"), answer("running", 2, cursor="b"), answer("finished")]

    assert run(["corpus", "reindex", "-o", "json"]) == 0

    shown = capsys.readouterr()
    assert cursors(router) == [None, "a", "b"]
    assert msgspec.json.decode(shown.out)["state"] == "finished"
    assert "reindexing: 1 of 3 documents" in shown.err


def test_a_document_without_a_vector_is_named(router, capsys):
    """Somebody has to decide whether it goes."""
    failed = [DocumentResult(id="odd", outcome="skipped", reason="zero_vector")]
    router.reindex = [answer("incomplete", 2, failed=failed)]

    assert run(["corpus", "reindex"]) == 1
    assert "odd: zero_vector" in capsys.readouterr().err


def test_documents_written_behind_the_cursor_are_found_by_another_pass(router):
    """A router with the old model may go on writing; passes have an end all the same."""
    router.reindex = [answer("incomplete", 2)] * MAX_PASSES

    assert run(["corpus", "reindex"]) == 1
    assert cursors(router) == [None] * MAX_PASSES


@pytest.mark.parametrize(
    "fault",
    [
        problem(503, "outcome_unknown"),
        problem(503, "overloaded"),
        problem(503, "retrieval_unavailable", reason=Reason.SEARCH_FAILED, unavailable_detail="shard_unreachable"),
    ],
    ids=["unknown", "busy", "shard"],
)
def test_what_passes_is_waited_for(router, fault):
    """A shard that is replaced on the way must not end hours of work."""
    router.problems = [fault, fault]
    router.reindex = [answer("finished")]
    pauses: list[float] = []
    with Client(router.url, "token") as client:
        ended = Reindexing(client, lambda *_: None, pauses.append).run()

    assert (ended.state, len(pauses)) == ("finished", 2)


@pytest.mark.parametrize(
    ("reason", "detail"),
    [(Reason.SEARCH_FAILED, "reindex_conflict"), (Reason.NO_EMBEDDER, "not_configured")],
    ids=["conflict", "no-embedder"],
)
def test_what_lasts_is_said_at_once(router, reason, detail):
    """Waiting for another model would look like work."""
    router.problems = [problem(503, "retrieval_unavailable", reason=reason, unavailable_detail=detail)]
    with Client(router.url, "token") as client, pytest.raises(RetrievalUnavailable):
        Reindexing(client, lambda *_: None, lambda _: pytest.fail("waited")).run()


def test_abandoning_is_one_call(router, capsys):
    """The corpus stays as it was."""
    router.reindex = [answer("abandoned")]

    assert run(["corpus", "reindex", "--abandon"]) == 0
    assert msgspec.json.decode(router.requests[0][2], type=ReindexRequest).abandon
    assert "abandoned" in capsys.readouterr().out
