"""Entry point: the group of commands, and how each kind of failure ends."""

import os
import sys

import click
from rich.text import Text

from groundplane.cli.ask import ask, evidence
from groundplane.cli.corpus import corpus
from groundplane.cli.demo import demo
from groundplane.cli.documents import documents
from groundplane.cli.index import index
from groundplane.cli.memo import memo
from groundplane.cli.status import status, token
from groundplane.cli.terminal import notes_console, printable_lines
from groundplane.cli.up import up
from groundplane.client.errors import (
    NotAuthorised,
    RequestRefused,
    RetrievalUnavailable,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.errors import Denied, GroundplaneError, Unavailable
from groundplane.wire.names import Reason

EXIT_ERROR = 1
EXIT_UNAUTHORISED = 4
EXIT_UNAVAILABLE = 5
EXIT_INTERRUPTED = 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 error, 2 usage, 4 not authorised, 5 retrieval unavailable.",
)
@click.version_option(package_name="groundplane", prog_name="groundplane")
def groundplane() -> None:
    """Ground questions in a tenant's own records.

    The first tier that answers wins: an approved memo, hybrid search over the tenant's and the platform's corpus,
    keyword search in a local folder, or an honest nothing.
    """


for command in (demo, up, ask, evidence, index, documents, memo, status, token, corpus):
    groundplane.add_command(command)


def main() -> None:
    """Run the command line and exit with its code; a reader of stdout that has had enough is no failure worth a word."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        code = EXIT_ERROR
    except OSError as error:  # a full disk behind stdout, a file that went away between two looks
        _drop_stdout()
        notes_console().print(f"error: {error.filename or 'the answer'} cannot be read or written: {error.strerror}")
        code = EXIT_ERROR
    sys.exit(code)


def _drop_stdout() -> None:
    """Send what is still buffered nowhere, or the interpreter complains at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Failures are written to stderr with what to try."""
    try:
        result = groundplane.main(arguments, prog_name="groundplane", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        notes_console().print("interrupted")
        return EXIT_INTERRUPTED
    except GroundplaneError as error:
        return _fail(error)
    return result if isinstance(result, int) else 0


def _fail(error: GroundplaneError) -> int:
    console = notes_console()
    reason = f"{error.reason}: " if isinstance(error, RetrievalUnavailable) and error.reason else ""
    console.print(Text.assemble(("error: ", "bold red"), reason, printable_lines(error.message)), soft_wrap=True)
    for hint in _hints(error):
        console.print(Text.assemble(("  try: ", "cyan"), hint), soft_wrap=True)
    if isinstance(error, NotAuthorised | Denied):
        return EXIT_UNAUTHORISED
    return EXIT_UNAVAILABLE if isinstance(error, RetrievalUnavailable) else EXIT_ERROR


def _hints(error: GroundplaneError) -> list[str]:
    match error:
        case RetrievalUnavailable(detail="reindex_conflict"):
            return ["groundplane corpus reindex --abandon, if that one is not wanted any more"]
        case RetrievalUnavailable(detail="embedding_mismatch") | RetrievalUnavailable(reason=Reason.DIMENSION_MISMATCH):
            return [
                "groundplane corpus reindex (re-embeds what is stored)",
                "the embedder that the corpus was indexed with",
            ]
        case RetrievalUnavailable():
            return [
                "groundplane ask instead of evidence (falls through to the keyword tier)",
                "groundplane status (shows what is not ready)",
            ]
        case WriteOutcomeUnknown():
            return ["the same command again: a write that happened is not done twice"]
        case ServiceUnreachable(status=None):
            return ["groundplane up (starts router and shards on this machine)", "--url with the router's address"]
        case Unavailable(code="behind_witness"):
            return [
                "groundplane up once the missing objects are back in the store",
                "groundplane up --accept-data-loss TENANT=SEQUENCE, naming where the log ends: what came after it is lost",
            ]
        case NotAuthorised(status=403):
            return ["a token whose subject has this access in its TenantCorpus"]
        case RequestRefused(field=str() as field):
            return [f"another value of {printable_lines(field)}"]
        case _:
            return []
