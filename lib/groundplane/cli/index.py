"""`groundplane index`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from groundplane.cli.connection import Connection, connection_options, output_option
from groundplane.cli.indexing import Indexer, Named, Tally
from groundplane.cli.indexing import Progress as Advance
from groundplane.cli.reading import find_files, read_documents
from groundplane.cli.terminal import data_console, notes_console, print_json, printable
from groundplane.client import ClientOptions

MAX_NAMED = 100
_SECONDS_BETWEEN_LINES = 10.0


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@output_option
@connection_options
def index(connection: Connection, *, paths: tuple[Path, ...], output: str) -> int:
    """Index PATHS: text, Markdown, JSON Lines, BEIR's corpus.jsonl; directories recursively.

    A document that is there already is replaced, or left as it is where nothing changed, so the command can be repeated.
    Exits with 1 if any document failed.
    """
    tally, options = Tally(), ClientOptions()
    files, refused = find_files(paths)
    for entry in refused:
        tally.refuse(entry)
    total_bytes = sum(file.size_bytes for file in files)
    with connection.open("write", options) as client:
        try:
            with _progress(total_bytes, tally) as advance:
                Indexer(client, tally, advance, options).index_all(read_documents(files))
        finally:
            print_json(tally) if output == "json" else _print_tally(tally)
    return 1 if tally.failed else 0


def _print_tally(tally: Tally) -> None:
    console = data_console()
    console.print(
        Text.assemble((f"{'indexed':<10}", "bold"), f"{tally.indexed:>6}", (f"   {tally.chunks} chunks", "dim"))
    )
    console.print(Text.assemble((f"{'unchanged':<10}", "bold"), f"{tally.unchanged:>6}"))
    for name, style, entries in (("skipped", "yellow", tally.skipped), ("failed", "red", tally.failed)):
        console.print(Text.assemble((f"{name:<10}", f"bold {style}" if entries else "bold"), f"{len(entries):>6}"))
        for entry in entries[:MAX_NAMED]:
            console.print(_named_line(entry))
        if len(entries) > MAX_NAMED:
            console.print(Text(f"    and {len(entries) - MAX_NAMED} more: -o json names them all", "dim"))


def _named_line(entry: Named) -> Text:
    return Text.assemble(f"    {printable(entry.name)}", (f"  {printable(entry.reason)}", "dim"))


@contextmanager
def _progress(total_bytes: int, tally: Tally) -> Iterator[Advance]:
    """Show on stderr how far the source is read: a bar for people, a line now and then for logs."""
    console = notes_console()
    if not console.is_terminal:
        yield _LinesOfProgress(total_bytes, tally)
        return
    columns = (
        TextColumn("indexing"), BarColumn(), DownloadColumn(binary_units=True), TextColumn("{task.fields[documents]} documents"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("indexing", total=total_bytes, documents=0)

        def advance(size_bytes: int) -> None:
            bar.update(task, advance=size_bytes, documents=tally.indexed + tally.unchanged)

        yield advance


class _LinesOfProgress:
    """Writes at most one line in ten seconds."""

    def __init__(self, total_bytes: int, tally: Tally) -> None:
        self._total_bytes = max(1, total_bytes)
        self._tally = tally
        self._done_bytes = 0
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES

    def __call__(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        done = self._tally.indexed + self._tally.unchanged
        notes_console().print(f"indexing: {self._done_bytes / self._total_bytes:.0%}, {done} documents")
