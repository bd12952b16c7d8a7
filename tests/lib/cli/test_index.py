"""`groundplane index`: one bad document holds back no other, and the counts are right."""

import msgspec
import pytest

from groundplane.cli.indexing import PAUSES_SECONDS, Indexer, Tally
from groundplane.cli.main import run
from groundplane.cli.reading import ReadDocument
from groundplane.client import Client, ClientOptions, DocumentInput, ServiceUnreachable
from groundplane.wire.names import Reason
from groundplane.wire.public import DocumentResult
from tests.fakes.router import problem, running_router


@pytest.fixture
def router(monkeypatch):
    monkeypatch.setenv("GROUNDPLANE_TOKEN", "token")
    monkeypatch.delenv("GROUNDPLANE_TOKEN_FILE", raising=False)
    with running_router() as router:
        monkeypatch.setenv("GROUNDPLANE_URL", router.url)
        yield router


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(f'{{"_id": "d{number}", "text": "text {number}"}}\n' for number in range(12)))
    return path


def test_everything_is_indexed_and_a_second_run_changes_nothing(router, lines, capsys):
    """Running it again after an interruption is the way to go on."""
    assert run(["index", str(lines), "-o", "json"]) == 0
    first = msgspec.json.decode(capsys.readouterr().out)
    assert run(["index", str(lines), "-o", "json"]) == 0
    second = msgspec.json.decode(capsys.readouterr().out)

    assert (first["indexed"], first["unchanged"], first["position"]) == (12, 0, "p1")
    assert (second["indexed"], second["unchanged"]) == (0, 12)


def test_documents_that_are_refused_fail_by_name_and_the_others_are_indexed(router, lines, capsys):
    """The router refuses a whole request; whoever indexes ten thousand documents wants the other 9,998."""
    router.refused_ids = frozenset({"d0", "d7"})

    assert run(["index", str(lines)]) == 1

    shown = capsys.readouterr().out
    assert set(router.documents) == {f"d{number}" for number in range(12)} - {"d0", "d7"}
    assert "notes.jsonl:1  detail of invalid_body" in shown
    assert "notes.jsonl:8  detail of invalid_body" in shown


def test_a_refusal_that_names_no_document_is_narrowed_down(router, lines):
    """A body that is too large says nothing about which document made it so."""
    router.problems = [problem(413, "body_too_large")]

    assert run(["index", str(lines)]) == 0
    assert len(router.documents) == 12
    assert len(router.requests) == 3


def test_a_batch_that_was_dropped_whole_fails_by_name(router, lines, capsys):
    """A wrong embedder is one fault of the configuration; the documents are named all the same."""
    results = [DocumentResult(id=f"d{number}", outcome="dropped", reason="dimension_mismatch") for number in range(12)]
    router.problems = [problem(422, "dimension_mismatch", results=results)]

    assert run(["index", str(lines)]) == 1
    assert "notes.jsonl:12  dimension_mismatch" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["outcome_unknown", "overloaded"])
def test_a_batch_is_sent_again_where_its_outcome_is_unknown_or_the_router_is_busy(router, code):
    """Documents are replaced, so twice is as good as once; a long ingest must survive a busy minute."""
    router.problems = [problem(503, code)] * len(PAUSES_SECONDS)
    pauses: list[float] = []
    tally = Tally()
    read = ReadDocument(document=DocumentInput(id="a", text="x"), place="a", size_bytes=1)
    with Client(router.url, "token") as client:
        Indexer(client, tally, lambda _: None, ClientOptions(), pauses.append).index_all([read])

    assert tally.indexed == 1
    assert pauses == list(PAUSES_SECONDS)


def test_a_router_that_stays_busy_ends_the_run(router):
    """Waiting has an end, and the counts then say where to go on."""
    router.problems = [problem(503, "overloaded")] * 10
    read = ReadDocument(document=DocumentInput(id="a", text="x"), place="a", size_bytes=1)
    with Client(router.url, "token") as client, pytest.raises(ServiceUnreachable):
        Indexer(client, Tally(), lambda _: None, ClientOptions(), lambda _: None).index_all([read])


def test_an_end_in_the_middle_still_says_what_was_done(router, lines, capsys):
    """The counts are what one needs to decide whether to go on."""
    router.problems = [problem(503, "no_embedder", reason=Reason.NO_EMBEDDER)]

    assert run(["index", str(lines), "-o", "json"]) == 5
    assert msgspec.json.decode(capsys.readouterr().out)["indexed"] == 0


def test_a_path_that_does_not_exist_is_wrong_usage(router, capsys):
    """A typing error must not look like an empty directory."""
    assert run(["index", "/nowhere/at/all"]) == 2
