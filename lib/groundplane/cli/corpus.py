"""`groundplane corpus`: what lies in a corpus's store, read without a running shard.

The command line imports none of the programs: it starts the shard's own tool and shows what that found.
"""

import os
import subprocess
import sys
from typing import Any

import click
import msgspec

from groundplane.cli.connection import data_option, output_option
from groundplane.cli.terminal import notes_console, print_json, print_table, warn
from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane.local.callers import find_corpus, read_directory
from groundplane.local.layout import DataDirectory
from groundplane.local.storage import read_storage
from groundplane.wire.directory import CorpusEntry

_TOOL = "groundplane_shard.tool"


@click.group()
def corpus() -> None:
    """Look into a corpus's store: its log, its snapshots, and whether every byte is right."""


def _corpus_options(command: Any) -> Any:
    for option in (
        click.option("--tenant", help="The corpus of this tenant."),
        click.option("--platform", "is_platform", is_flag=True, help="The platform's corpus."),
    ):
        command = option(command)
    return data_option(output_option(command))


@corpus.command()
@_corpus_options
def log(*, tenant: str | None, is_platform: bool, data: Any, output: str) -> None:
    """List the log records that are kept, oldest first."""
    found, _ = _run_tool("log", _corpus_of(data, tenant, is_platform=is_platform), data)
    _show(found, ("sequence", "epoch", "kind", "size"), output, right=("sequence", "epoch", "size"))


@corpus.command()
@_corpus_options
def snapshots(*, tenant: str | None, is_platform: bool, data: Any, output: str) -> None:
    """List the snapshots that are kept, oldest first."""
    found, _ = _run_tool("snapshots", _corpus_of(data, tenant, is_platform=is_platform), data)
    columns = ("sequence", "epoch", "files", "size", "upload_id")
    _show(found, columns, output, right=("sequence", "epoch", "files", "size"))


@corpus.command()
@_corpus_options
def verify(*, tenant: str | None, is_platform: bool, data: Any, output: str) -> int:
    """Check every byte: MANIFEST, the log's chain, the files of every snapshot. Exits with 1 if anything is damaged."""
    found, code = _run_tool("verify", _corpus_of(data, tenant, is_platform=is_platform), data)
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


def _corpus_of(data: Any, tenant: str | None, *, is_platform: bool) -> CorpusEntry:
    if (tenant is None) == (not is_platform):
        raise click.UsageError("say which corpus: --tenant NAME or --platform")
    return find_corpus(read_directory(DataDirectory(data)), tenant)


def _run_tool(command: str, entry: CorpusEntry, data: Any) -> tuple[Any, int]:
    """Return what the tool wrote and its exit code. Raises the kind of error that its exit code stands for."""
    settings = {
        "GROUNDPLANE_CORPUS_KEY": entry.key,
        "GROUNDPLANE_INCARNATION": entry.incarnation,
        **read_storage(DataDirectory(data)).environment(DataDirectory(data)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", _TOOL, command], env={**os.environ, **settings}, capture_output=True, check=False
    )
    if done.stdout:
        return msgspec.json.decode(done.stdout), done.returncode
    message = done.stderr.decode(errors="replace").strip()
    if "No module named" in message:
        raise Unavailable(
            f"the shard's programs are not installed: pip install 'groundplane[shard]' ({message[-128:]})"
        )
    raise InvalidInput(message) if done.returncode == 2 else CorruptData(message)


def _show(found: list[dict[str, Any]], columns: tuple[str, ...], output: str, right: tuple[str, ...]) -> None:
    if output == "json":
        print_json(found)
        return
    print_table(columns, [tuple(str(row[name]) for name in columns) for row in found], right=right)
