"""The command line: data on stdout, the rest on stderr, and exit codes that scripts can use."""

import socket
import subprocess
import sys
import time

import msgspec
import pytest

from groundplane.cli.main import run
from groundplane.local.identity import prepare_keys
from groundplane.local.layout import DataDirectory, write_private
from groundplane.wire.directory import CorpusEntry, Directory, Grant, Subject
from groundplane.wire.filters import Eq
from groundplane.wire.names import CorpusKey, Incarnation, Reason, Scope, TenantId
from groundplane.wire.public import (
    Basis,
    EvidenceRequest,
    GroundRequest,
    MemoAnswer,
    ScopeReport,
    Searched,
    Unavailability,
)
from tests.fakes.answers import evidence_answer, ground_answer, hit
from tests.fakes.router import problem, running_router


@pytest.fixture
def router(monkeypatch):
    monkeypatch.setenv("GROUNDPLANE_TOKEN", "token")
    monkeypatch.delenv("GROUNDPLANE_TOKEN_FILE", raising=False)
    with running_router() as router:
        monkeypatch.setenv("GROUNDPLANE_URL", router.url)
        yield router


def test_an_answer_shows_tier_scope_scores_and_text(router, capsys):
    """Everything that tells how much a hit is worth stands beside it."""
    assert run(["ask", "why"]) == 0

    shown = capsys.readouterr().out
    for part in (
        "grounded · hybrid search",
        "0.830  tenant",
        "Refunds",
        "doc-1",
        "dense 0.71 (#1)",
        "bm25 9.40 (#3)",
        "by meaning and keywords",
    ):
        assert part in shown
    assert "A manager may approve refunds" in shown
    assert "scores compare only within this answer" in shown


def test_json_is_the_routers_answer(router, capsys):
    """Scripts read the wire format, and nothing else stands on stdout."""
    assert run(["ask", "why", "-o", "json"]) == 0

    assert msgspec.json.decode(capsys.readouterr().out) == msgspec.json.decode(msgspec.json.encode(ground_answer()))


def test_the_options_of_a_question_are_sent(router):
    """An option that is not sent is a lie."""
    condition = '{"op": "eq", "key": "topic", "value": "travel"}'
    run(
        [
            "ask",
            "why",
            "-k",
            "7",
            "--filter",
            condition,
            "--memo",
            "n",
            "f",
            "--fresh",
            "--explain",
            "--min-position",
            "p",
        ]
    )

    assert msgspec.json.decode(router.requests[0][2], type=GroundRequest) == GroundRequest(
        query="why", k=7, filter=Eq(key="topic", value="travel"), name="n", fingerprint="f", fresh=True, explain=True,
        min_position="p",
    )  # fmt: skip


def test_partial_evidence_is_asked_for_only_when_said(router):
    """Half an answer is never taken by default."""
    run(["evidence", "why"])
    run(["evidence", "why", "--partial"])

    sent = [msgspec.json.decode(body, type=EvidenceRequest).partial for _, _, body in router.requests]
    assert sent == [None, "allow"]


NOTES = [
    pytest.param(
        ground_answer(status="nothing", tier="none", hits=[]), 0, "an absence in these corpora, not a finding", id="nothing"
    ),
    pytest.param(
        ground_answer(status="grounded", tier="grep", hits=[hit(scope=Scope.LOCAL, match="keyword")]), 0,
        "these are keyword matches", id="grep",
    ),
    pytest.param(
        ground_answer(
            status="degraded", tier="grep", hits=[hit(scope=Scope.LOCAL, match="keyword")],
            unavailable=Unavailability(reason=Reason.EMBED_ERROR, detail="unreachable"),
        ),
        0, "the embedder failed (embed_error: unreachable)", id="degraded-with-hits",
    ),
    pytest.param(
        ground_answer(status="degraded", tier="none", hits=[], unavailable=Unavailability(reason=Reason.SEARCH_FAILED)), 5,
        'this is not "nothing found"', id="degraded-without-hits",
    ),
    pytest.param(
        ground_answer(tier="memo", hits=[], memo=MemoAnswer(response=msgspec.Raw(b'"30 days"'), stale=True, basis=Basis())), 0,
        "stale: the corpora have changed since", id="stale-memo",
    ),
    pytest.param(ground_answer(hits=[hit(match="keyword")]), 0, "establishes that the words stand there", id="keyword-hit"),
    pytest.param(ground_answer(semantic=False), 0, "meaning was not searched", id="not-semantic"),
    pytest.param(
        ground_answer(searched=Searched(memo=ScopeReport(ok=False, detail="overloaded"))), 0,
        "memo: not searched (overloaded)", id="failed-memo",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "code", "note"), NOTES)
def test_what_an_answer_does_not_establish_is_said(router, capsys, answer, code, note):
    """A reader must not take a keyword match, an absence or a failure for more than it is."""
    router.ground = answer

    assert run(["ask", "why"]) == code
    assert note in capsys.readouterr().out


def test_a_hit_in_a_file_shows_its_line(router, capsys):
    """The reader goes there to see what the words mean."""
    router.ground = ground_answer(tier="grep", hits=[hit(scope=Scope.LOCAL, doc_id="a.txt", chunk_id="a.txt#L7")])

    run(["ask", "why"])

    assert "a.txt#L7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("heading", "shown"),
    [pytest.param("Trains", "First class.", id="shown-beside"), pytest.param(None, "# Trains First class.", id="text")],
)
def test_a_heading_is_shown_once(router, capsys, heading, shown):
    """A line that only begins with # may be the very line that matched."""
    router.ground = ground_answer(hits=[hit(heading=heading, text="# Trains\nFirst class.")])

    run(["ask", "why"])

    assert f"    {shown}\n" in capsys.readouterr().out


def test_evidence_without_hits_is_an_absence(router, capsys):
    """Nothing found is an answer, with exit code 0."""
    router.evidence = evidence_answer(hits=[])

    assert run(["evidence", "why"]) == 0
    assert "nothing found" in capsys.readouterr().out


CODES = [
    pytest.param(["evidence", "why"], problem(503, "no_embedder", reason=Reason.NO_EMBEDDER), 5, "error: no_embedder: detail", id="unavailable"),
    pytest.param(["ask", "why"], problem(401, "denied"), 4, "detail of denied", id="no-valid-token"),
    pytest.param(["documents", "delete", "a"], problem(403, "denied"), 4, "access in its TenantCorpus", id="no-access"),
    pytest.param(["ask", "why"], problem(400, "invalid_body", field="query"), 1, "another value of query", id="refused"),
    pytest.param(["documents", "show", "a"], problem(404, "document_not_found"), 1, "detail of", id="not-there"),
    pytest.param(["documents", "delete", "a"], problem(503, "outcome_unknown"), 1, "the same command again", id="unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "failure", "code", "hint"), CODES)
def test_failures_have_their_exit_code_and_say_what_to_try(router, capsys, arguments, failure, code, hint):
    """Scripts branch on the code, people read the hint, and stdout stays empty."""
    router.problems = [failure]

    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert hint in shown.err


USAGE = [
    pytest.param(["ask"], "Missing argument", id="no-question"),
    pytest.param(["ask", "why", "-k", "0"], "1<=x<=50", id="no-hits-wanted"),
    pytest.param(["ask", "why", "--filter", "{}"], "expected a filter such as", id="no-filter"),
    pytest.param(["ask", "why", "--tenant", "a", "--platform"], "exclude each other", id="two-callers"),
    pytest.param(["ask", "why", "--tenant", "a", "--token-file", "t"], "already says who asks", id="two-tokens"),
    pytest.param(["memo", "put", "n", "f", "{"], "no JSON", id="memo-without-json"),
    pytest.param(["token"], "whose token", id="nobodys-token"),
    pytest.param(["nonsense"], "No such command", id="no-command"),
]


@pytest.mark.parametrize(("arguments", "text"), USAGE)
def test_wrong_usage_exits_with_2(router, capsys, arguments, text):
    """A typing error is told apart from a failure."""
    assert run(arguments) == 2
    assert text in capsys.readouterr().err


def test_nobody_asking_is_wrong_usage(router, capsys, monkeypatch):
    """Without a token and without a tenant there is no corpus to ask."""
    monkeypatch.delenv("GROUNDPLANE_TOKEN")

    assert run(["ask", "why"]) == 2
    assert "--tenant NAME or --platform" in capsys.readouterr().err


def test_a_router_that_is_not_there_is_an_error_with_a_way_on(capsys, monkeypatch):
    """The first thing that goes wrong for everybody."""
    monkeypatch.setenv("GROUNDPLANE_TOKEN", "token")

    assert run(["ask", "why", "--url", "http://127.0.0.1:1"]) == 1
    assert "try: groundplane up" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ask", "evidence"])
def test_a_caller_says_how_long_it_waits(capsys, monkeypatch, command):
    """A script in a pipeline has its own deadline."""
    monkeypatch.setenv("GROUNDPLANE_TOKEN", "token")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes the connection; nobody answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        code = run([command, "why", "--url", url, "--timeout", "0.2"])

    assert code == 1
    assert time.monotonic() - started < 2.0
    assert "did not answer" in capsys.readouterr().err


def test_a_tenant_that_is_typed_means_this_machine(router, capsys, tmp_path):
    """A token of this machine must not travel to the cluster that the environment names."""
    assert run(["ask", "why", "--tenant", "acme", "--data", str(tmp_path)]) == 1

    assert "holds no installation" in capsys.readouterr().err
    assert router.requests == []


def test_status_of_this_machine_does_not_ask_the_router_of_the_environment(router, capsys, tmp_path, monkeypatch):
    """Without a token `status` signs one for each corpus of this machine, and those stay here."""
    monkeypatch.delenv("GROUNDPLANE_TOKEN")
    data = DataDirectory(tmp_path)
    data.prepare()
    prepare_keys(data)
    grant = Grant(subject=Subject(namespace="agents", service_account="a"), access=("read",))
    acme = CorpusEntry(
        key=CorpusKey("t-acme"), name="default/acme", tenant=TenantId("acme"), endpoint=None, state="ready",
        incarnation=Incarnation("0b8f7a52-4a55-4f7e-9f3e-0d2c5f3a7f11"), grants=(grant,),
    )  # fmt: skip
    write_private(data.directory, msgspec.json.encode(Directory(corpora=(acme,))))

    assert run(["status", "--data", str(tmp_path)]) == 1
    assert router.requests == []

    assert run(["status", "--data", str(tmp_path), "--url", router.url]) == 0
    assert capsys.readouterr().out.startswith("tenant acme\tready")


def test_no_data_directory_is_an_error_with_a_way_on(capsys, tmp_path, monkeypatch):
    """Asking as a tenant before `up` ever ran."""
    monkeypatch.delenv("GROUNDPLANE_URL", raising=False)

    assert run(["ask", "why", "--tenant", "acme", "--data", str(tmp_path)]) == 1
    assert "start groundplane up" in capsys.readouterr().err


def test_a_document_cannot_steer_the_terminal(router, capsys):
    """Indexed text is not trusted: an escape sequence in it must not reach the screen."""
    evil = "\x1b]0;owned\x07 \x9b31m red \u202e gnp"
    router.ground = ground_answer(hits=[hit(title=evil, doc_id=evil, uri=evil, text=evil, heading=evil)])

    run(["ask", "why"])
    shown = capsys.readouterr().out

    assert not set("\x1b\x07\x9b\u202e") & set(shown)
    assert "owned" in shown


def test_text_that_looks_like_markup_is_shown_as_it_is(router, capsys):
    """Brackets are common in documents."""
    router.ground = ground_answer(hits=[hit(title="[red]a[/red] :smile:")])

    run(["ask", "why"])

    assert "[red]a[/red] :smile:" in capsys.readouterr().out


def test_documents_are_listed_shown_and_deleted(router, capsys):
    """The round trip of one document, by an id that needs quoting."""
    assert run(["memo", "put", "n", "f", '{"days": 30}']) == 0
    router.answer("POST", "/v1/documents", b'{"documents": [{"id": "a/b?c", "text": "line 1\\nline 2"}]}')
    capsys.readouterr()

    assert run(["documents", "list"]) == 0
    assert capsys.readouterr().out == "a/b?c\t\t1\t1\n"
    assert run(["documents", "show", "a/b?c"]) == 0
    assert "line 1\nline 2" in capsys.readouterr().out
    assert run(["documents", "delete", "a/b?c"]) == 0
    assert run(["documents", "delete", "a/b?c"]) == 1


def test_a_memo_is_stored_fetched_and_deleted(router, capsys):
    """The response comes back as the JSON that was put."""
    assert run(["memo", "put", "n", "f", '{"days":30}']) == 0
    capsys.readouterr()
    assert run(["memo", "get", "n", "f"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == {"days": 30}
    assert run(["memo", "delete", "n", "f"]) == 0
    assert run(["memo", "delete", "n", "f"]) == 1


def test_status_shows_what_the_corpus_holds(router, capsys):
    """One line a corpus for scripts."""
    assert run(["status"]) == 0

    shown = capsys.readouterr()
    assert shown.out == "own\tready\t0\t\t\t62 s\t\t\n"
    assert router.url in shown.err


def test_the_token_goes_to_the_router_and_nowhere_else(router, capsys):
    """A token on the screen ends up in a ticket."""
    run(["ask", "why", "--explain"])

    shown = capsys.readouterr()
    assert router.tokens == {"Bearer token"}
    assert "Bearer" not in shown.out + shown.err


def test_an_answer_that_cannot_be_written_is_an_error_with_its_cause():
    """A full disk behind `>` must be told apart from a bug, and never end with 0."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ended = subprocess.run(
            [sys.executable, "-c", "from groundplane.cli.main import main; main()", "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (
        1,
        "error: the answer cannot be read or written: No space left on device\n",
    )
