"""`groundplane status` and `groundplane token`."""

import sys
import time

import click
import msgspec

from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.terminal import notes_console, print_json, print_table, warn
from groundplane.client.errors import NotAuthorised, RetrievalUnavailable
from groundplane.errors import Denied
from groundplane.local.callers import find_corpus, find_subject, read_directory
from groundplane.local.layout import DataDirectory
from groundplane.tokens import SigningKey
from groundplane.wire.public import CorpusAnswer, CorpusReport

_COLUMNS = ("corpus", "state", "documents", "chunks", "sequence", "age", "semantic", "detail")
_PLATFORM = "platform"


class CorpusStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the router says to one caller about its corpus and the platform's."""

    who: str
    answer: CorpusAnswer


@click.command()
@output_option
@connection_options
def status(connection: Connection, *, output: str) -> None:
    """Show whether the corpora can be searched, and what they hold. On this machine without a tenant: all of them."""
    asked = _ask_all(connection) if not connection.is_local and not connection.has_token else [_ask_one(connection)]
    if output == "json":
        print_json(asked)
        return
    rows = {name: report for one in asked for name, report in _reports(one)}
    print_table(
        _COLUMNS,
        [_row(name, report) for name, report in rows.items()],
        right=("documents", "chunks", "sequence", "age"),
    )
    notes = notes_console()
    notes.print(f"router {connection.router_url()}", soft_wrap=True)
    if not all(one.answer.semantic_active for one in asked):
        warn("semantic grounding is inactive: the embedder does not answer as it must; see the router's log")


@click.command()
@click.option(
    "--seconds", type=click.IntRange(1, 86_400), default=3_600, show_default=True, help="How long it is valid."
)
@click.option(
    "--access", type=click.Choice(["read", "write"]), default="read", show_default=True, help="What it must allow."
)
@connection_options
def token(connection: Connection, *, seconds: int, access: str) -> None:
    """Print a caller's token of this machine, for curl and other clients."""
    if not connection.is_local:
        raise click.UsageError("say whose token: --tenant NAME or --platform")
    data = DataDirectory(connection.data)
    corpus = find_corpus(read_directory(data), connection.tenant)
    subject = find_subject(corpus, "write" if access == "write" else "read")
    signed = SigningKey.load(data.caller_key).sign_caller(subject.name, now=time.time(), seconds=seconds)
    sys.stdout.write(f"{signed}\n")


def _ask_one(connection: Connection) -> CorpusStatus:
    with connection.open("read") as client:
        return CorpusStatus(who=_who(connection), answer=client.corpus())


def _ask_all(connection: Connection) -> list[CorpusStatus]:
    asked = []
    for corpus in read_directory(DataDirectory(connection.data)).corpora:
        try:
            asked.append(_ask_one(connection.as_tenant(corpus.tenant)))
        except (Denied, NotAuthorised, RetrievalUnavailable) as error:
            warn(f"{corpus.name}: {error.message}")
    return asked


def _who(connection: Connection) -> str:
    """Return the name of the corpus that a connection acts on; a tenant may be called platform too."""
    if connection.tenant is not None:
        return f"tenant {connection.tenant}"
    return _PLATFORM if connection.is_platform else "own"


def _reports(one: CorpusStatus) -> list[tuple[str, CorpusReport]]:
    own = [(one.who, one.answer.corpus)]
    return own if one.answer.platform is None else [*own, (_PLATFORM, one.answer.platform)]


def _row(name: str, report: CorpusReport) -> tuple[str, ...]:
    def shown(value: int | None) -> str:
        return "" if value is None else str(value)

    semantic = {True: "active", False: "inactive", None: ""}[report.semantic]
    state = "ready" if report.ready else "not ready"
    return (
        name,
        state,
        shown(report.documents),
        shown(report.chunks),
        shown(report.sequence),
        "" if report.age_seconds is None else f"{report.age_seconds:.0f} s",
        semantic,
        _detail(report),
    )


def _detail(report: CorpusReport) -> str:
    if report.reindexed_documents is None or report.documents is None:
        return report.detail or ""
    return f"reindexing {report.reindexed_documents:,} of {report.documents:,} documents"
