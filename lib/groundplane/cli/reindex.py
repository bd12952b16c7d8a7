"""`groundplane corpus reindex`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.indexing import PAUSES_SECONDS
from groundplane.cli.terminal import notes_console, print_json, print_table, warn
from groundplane.client import (
    Client,
    ClientError,
    RetrievalUnavailable,
    ServiceUnreachable,
    WriteOutcomeUnknown,
)
from groundplane.wire.public import DocumentResult, ReindexAnswer, ReindexState

MAX_PASSES = 3
MAX_NAMED = 100
LASTING_DETAILS = frozenset({"reindex_conflict", "embedding_mismatch"})

_SECONDS_BETWEEN_LINES = 10.0

Tell = Callable[[ReindexAnswer, float], None]
"""Called after each call with its answer and the chunks per second since the first."""


class Reindexed(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended; `failed` are the documents that have no vector under the new embedding."""

    state: ReindexState
    documents: int
    total_documents: int
    chunks: int
    failed: list[DocumentResult]


class Reindexing:
    """Calls a router until a corpus is re-embedded. `sleep` waits while router or shard do not answer."""

    def __init__(self, client: Client, tell: Tell, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._tell = tell
        self._sleep = sleep

    def run(self) -> Reindexed:
        """Return how it ended. Raises a ClientError; running again goes on where this ended."""
        for _ in range(MAX_PASSES):
            answer, failed = self._pass()
            if answer.state != "incomplete" or failed:
                break  # else documents were written behind the cursor: another pass finds them
        return Reindexed(
            state=answer.state,
            documents=answer.documents,
            total_documents=answer.total_documents,
            chunks=answer.chunks,
            failed=failed,
        )

    def _pass(self) -> tuple[ReindexAnswer, list[DocumentResult]]:
        failed: list[DocumentResult] = []
        started: tuple[float, int] | None = None
        cursor: str | None = None
        while True:
            answer = self._advance(cursor)
            failed += answer.failed
            now = time.monotonic()
            since, chunks = started = started or (now, answer.chunks)
            self._tell(answer, (answer.chunks - chunks) / (now - since) if now > since else 0.0)
            if answer.state != "running":
                return answer, failed
            cursor = answer.cursor

    def _advance(self, cursor: str | None) -> ReindexAnswer:
        """Make one call, again after a pause where that may help: what was done of it is not done twice."""
        for pause_seconds in PAUSES_SECONDS:
            try:
                return self._client.reindex(cursor=cursor)
            except (WriteOutcomeUnknown, ServiceUnreachable, RetrievalUnavailable) as error:
                if _is_lasting(error):
                    raise
                self._sleep(pause_seconds)
        return self._client.reindex(cursor=cursor)


@click.command()
@click.option("--abandon", is_flag=True, help="Give up an unfinished one: the corpus keeps the embedding it has.")
@output_option
@connection_options
def reindex(connection: Connection, *, abandon: bool, output: str) -> int:
    """Re-embed a corpus after a change of the embedding model.

    Its stored text goes through the router's embedder. Until that is finished the corpus answers by words alone and takes
    no documents. Interrupted by whatever, run it again: it goes on. Exits with 1 if a document has no vector; the corpus
    then stays as it was until that document is deleted.
    """
    with connection.open("write") as client:
        if abandon:
            ended = _ended(client.reindex(abandon=True))
        else:
            with _progress() as tell:
                ended = Reindexing(client, tell).run()
    if output == "json":
        print_json(ended)
    else:
        rows = [(name, str(getattr(ended, name))) for name in ("state", "documents", "chunks")]
        print_table(("what", "value"), [*rows, ("failed", str(len(ended.failed)))])
    for each in ended.failed[:MAX_NAMED]:
        warn(f"{each.id}: {each.reason}; delete it, or abandon the reindex")
    return 1 if ended.state == "incomplete" else 0


def _ended(answer: ReindexAnswer) -> Reindexed:
    return Reindexed(
        state=answer.state,
        documents=answer.documents,
        total_documents=answer.total_documents,
        chunks=answer.chunks,
        failed=answer.failed,
    )


def _is_lasting(error: ClientError) -> bool:
    """Whether waiting changes nothing: nobody listens at the address, or another model is there than must be."""
    if isinstance(error, RetrievalUnavailable):
        return error.detail in LASTING_DETAILS or error.reason not in {"search_failed", "embed_error"}
    return isinstance(error, ServiceUnreachable) and error.status is None


@contextmanager
def _progress() -> Iterator[Tell]:
    """Show on stderr how far it is: a bar for people, a line now and then for logs."""
    console = notes_console()
    if not console.is_terminal:
        yield _LinesOfProgress()
        return
    columns = (
        TextColumn("reindexing"), BarColumn(), MofNCompleteColumn(), TextColumn("documents, {task.fields[rate]} chunks/s"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("reindexing", total=None, rate="0")

        def tell(answer: ReindexAnswer, rate: float) -> None:
            bar.update(task, total=answer.total_documents, completed=answer.documents, rate=f"{rate:.0f}")

        yield tell


class _LinesOfProgress:
    """Writes at most one line in ten seconds, the first one at once."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, answer: ReindexAnswer, rate: float) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        notes_console().print(
            f"reindexing: {answer.documents:,} of {answer.total_documents:,} documents, {rate:.0f} chunks/s"
        )
