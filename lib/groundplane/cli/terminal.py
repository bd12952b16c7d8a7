"""How the command line writes: two consoles, text made safe for a terminal, tables and JSON."""

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 100_000  # lines of a pipe are not wrapped


def data_console() -> Console:
    """Return the console of stdout: what was asked for, nothing else."""
    return _console(sys.stdout)


def notes_console() -> Console:
    """Return the console of stderr: progress, warnings, errors."""
    return _console(sys.stderr)


def printable(text: str) -> str:
    """Return `text` on one line without what could steer a terminal: documents are not trusted."""
    visible = "".join(character if unicodedata.category(character)[0] != "C" else " " for character in text)
    return " ".join(visible.split())


def printable_lines(text: str) -> str:
    """Return `text` with its line breaks, each line without what could steer a terminal."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(
        "".join(c if c == "\t" or unicodedata.category(c)[0] != "C" else " " for c in line) for line in lines
    )


def print_json(value: Any) -> None:
    """Write `value` to stdout as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Write rows to stdout: a table for people, lines with tabs for pipes. Columns named in `right` are numbers."""
    console = data_console()
    if not console.is_terminal:
        for row in rows:
            sys.stdout.write("\t".join(printable(cell) for cell in row) + "\n")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header in headers:
        is_number = header in right
        table.add_column(header, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def warn(text: str) -> None:
    """Write one warning to stderr."""
    notes_console().print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)


def _console(stream: TextIO) -> Console:
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    width = None if is_terminal else PLAIN_WIDTH
    return Console(file=stream, highlight=False, width=width, force_terminal=is_terminal, emoji=False, markup=False)
