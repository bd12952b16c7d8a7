"""`groundplane corpus`: what lies in a corpus's store, read or restored without a running shard; and re-embedding it."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from groundplane.cli.connection import data_option, output_option
from groundplane.cli.corpus_tool import ToolCall, run_tool
from groundplane.cli.reindex import reindex
from groundplane.cli.terminal import notes_console, print_json, print_table, warn
from groundplane.errors import InvalidInput
from groundplane.local.callers import find_corpus, read_directory
from groundplane.local.identity import read_incarnation, switch_incarnation
from groundplane.local.layout import DataDirectory, write_witness
from groundplane.local.system import hold_data_directory
from groundplane.wire.directory import CorpusEntry
from groundplane.wire.names import Incarnation, parse_incarnation


@click.group()
def corpus() -> None:
    """Look into a corpus's store: its log, its snapshots, whether every byte is right; bring a corpus back; re-embed it."""


corpus.add_command(reindex)


def _corpus_options(command: Any) -> Any:
    for option in (
        click.option("--tenant", help="The corpus of this tenant."),
        click.option("--platform", "is_platform", is_flag=True, help="The platform's corpus."),
    ):
        command = option(command)
    return data_option(output_option(command))


@corpus.command()
@_corpus_options
def log(*, tenant: str | None, is_platform: bool, data: Path, output: str) -> None:
    """List the log records that are kept, oldest first."""
    found, _ = _inspect("log", _corpus_of(data, tenant, is_platform=is_platform), data)
    _show(found, ("sequence", "epoch", "kind", "size"), output, right=("sequence", "epoch", "size"))


@corpus.command()
@_corpus_options
def snapshots(*, tenant: str | None, is_platform: bool, data: Path, output: str) -> None:
    """List the snapshots that are kept, oldest first."""
    found, _ = _inspect("snapshots", _corpus_of(data, tenant, is_platform=is_platform), data)
    rows = [{**each, "taken_at": _utc(each["taken_at"])} for each in found]
    columns = ("sequence", "epoch", "files", "size", "taken_at", "upload_id")
    _show(rows, columns, output, right=("sequence", "epoch", "files", "size"))


@corpus.command()
@_corpus_options
def verify(*, tenant: str | None, is_platform: bool, data: Path, output: str) -> int:
    """Check every byte: MANIFEST, the log's chain, the files of every snapshot. Exits with 1 if anything is damaged."""
    found, code = _inspect("verify", _corpus_of(data, tenant, is_platform=is_platform), data)
    if output == "json":
        print_json(found)
    else:
        rows = [(name, str(found[name])) for name in ("sequence", "records", "snapshots", "files", "size")]
        print_table(("what", "count"), [*rows, ("faults", str(len(found["faults"])))], right=("count",))
    for fault in found["faults"]:
        warn(f"{fault['key']}: {fault['message']}")
    if not found["faults"]:
        notes_console().print("every byte is as it was written")
    return code


@corpus.command()
@_corpus_options
def incarnations(*, tenant: str | None, is_platform: bool, data: Path, output: str) -> None:
    """List the lives of a corpus that its store holds; the current one is what a start opens."""
    entry = _corpus_of(data, tenant, is_platform=is_platform)
    found, _ = _inspect("incarnations", entry, data)
    current = read_incarnation(DataDirectory(data), entry.key)
    rows = [{**each, "current": "yes" if each["incarnation"] == current else ""} for each in found]
    columns = ("incarnation", "current", "state", "epoch", "sequence", "snapshots", "restored_from")
    _show(rows, columns, output, right=("epoch", "sequence", "snapshots"))


@corpus.command()
@click.option("--from", "source", required=True, metavar="INCARNATION", help="What is copied; see `incarnations`.")
@click.option("--sequence", type=click.IntRange(0), help="The last write to be copied. [default: the newest]")
@_corpus_options
def restore(
    *, source: str, sequence: int | None, tenant: str | None, is_platform: bool, data: Path, output: str
) -> None:
    """Make a new incarnation of a corpus from the snapshot and log of another one. groundplane up must be stopped.

    The next start opens the new one; the others stay in the store. Without --sequence the copy must hold all that was
    ever witnessed of its source.
    """
    entry = _corpus_of(data, tenant, is_platform=is_platform)
    directory = DataDirectory(data)
    with hold_data_directory(directory):
        restored = _restore(entry, parse_incarnation(source), sequence, directory)
    if output == "json":
        print_json(restored)
    else:
        print_table(("what", "value"), [(name, str(value)) for name, value in restored.items()])
    _note(f"{entry.name} is now {restored['incarnation']}, restored up to {restored['sequence']}: start groundplane up")


@corpus.command()
@click.argument("incarnation")
@click.option("--complete", "may_be_complete", is_flag=True, help="Also a whole corpus, not only half a restore.")
@_corpus_options
def erase(
    *, incarnation: str, may_be_complete: bool, tenant: str | None, is_platform: bool, data: Path, output: str
) -> None:
    """Remove an incarnation from the store for good, such as a restore that was cut off. groundplane up must be stopped.

    Never the current one. Cut off itself, it may be repeated.
    """
    entry = _corpus_of(data, tenant, is_platform=is_platform)
    directory = DataDirectory(data)
    with hold_data_directory(directory):
        doomed = parse_incarnation(incarnation)
        _check_erasable(_inspect("incarnations", entry, data)[0], doomed, may_be_complete=may_be_complete)
        if doomed == read_incarnation(directory, entry.key):
            raise InvalidInput(
                f"incarnation {doomed} is the current one of {entry.name}: expected another, since a start would find nothing"
            )
        erased, _ = run_tool(ToolCall(arguments=("erase",), key=entry.key, incarnation=doomed), directory, _note)
    if output == "json":
        print_json(erased)
    else:
        print_table(("what", "value"), [(name, str(value)) for name, value in erased.items()])


def _check_erasable(found: list[dict[str, Any]], doomed: Incarnation, *, may_be_complete: bool) -> None:
    state = next((each["state"] for each in found if each["incarnation"] == doomed), None)
    if state is None:
        raise InvalidInput(
            f"incarnation {doomed} is not in the store: expected one of `groundplane corpus incarnations`"
        )
    if state == "complete" and not may_be_complete:
        raise InvalidInput(
            f"incarnation {doomed} is complete: expected an unfinished restore; --complete removes a whole corpus, for good"
        )


def _utc(seconds: float | None) -> str | None:
    """Return a time as people read it; None: it was not recorded."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _corpus_of(data: Path, tenant: str | None, *, is_platform: bool) -> CorpusEntry:
    if (tenant is None) == (not is_platform):
        raise click.UsageError("say which corpus: --tenant NAME or --platform")
    return find_corpus(read_directory(DataDirectory(data)), tenant)


def _inspect(command: str, corpus: CorpusEntry, data: Path) -> tuple[Any, int]:
    """Return what an inspection of the corpus's present incarnation found, and its exit code."""
    directory = DataDirectory(data)
    call = ToolCall(arguments=(command,), key=corpus.key, incarnation=read_incarnation(directory, corpus.key))
    return run_tool(call, directory, _note)


def _restore(corpus: CorpusEntry, source: Incarnation, sequence: int | None, directory: DataDirectory) -> Any:
    """Copy `source` into a fresh incarnation, and make that the corpus's one once it is complete and witnessed."""
    target = Incarnation(str(uuid.uuid4()))
    call = ToolCall(
        arguments=("restore", source, *(() if sequence is None else (str(sequence),))),
        key=corpus.key,
        incarnation=target,
        settings={
            "GROUNDPLANE_WORK_DIRECTORY": str(directory.work / corpus.key),
            "GROUNDPLANE_WITNESS_FILE": str(directory.witness_of(corpus.key, source)),
        },
    )
    restored, _ = run_tool(call, directory, _note)
    with directory.named_faults():
        write_witness(directory.witness_of(corpus.key, target), restored["epoch"], restored["sequence"])
        switch_incarnation(directory, corpus.key, target)
    return restored


def _note(line: str) -> None:
    notes_console().print(line, soft_wrap=True)


def _show(found: list[dict[str, Any]], columns: tuple[str, ...], output: str, right: tuple[str, ...]) -> None:
    if output == "json":
        print_json(found)
        return
    print_table(columns, [tuple(_cell(row[name]) for name in columns) for row in found], right=right)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
