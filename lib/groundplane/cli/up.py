"""`groundplane up`: the whole system on one machine, until Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from groundplane.api.v1alpha1 import TenantCorpus
from groundplane.cli.connection import data_option
from groundplane.cli.terminal import notes_console, printable, warn
from groundplane.local.events import Died, Event, Killed, Ready, Replaced, Started, Stopping, Waiting
from groundplane.local.layout import DataDirectory, Running
from groundplane.local.plan import notes_of
from groundplane.local.readiness import Readiness
from groundplane.local.storage import Storage, choose_storage
from groundplane.local.supervisor import Supervisor
from groundplane.local.system import System, announce, hold_data_directory, prepare_system
from groundplane.manifests import Manifests, load_manifests
from groundplane.process.clock import SystemClock
from groundplane.wire.names import CorpusKey

_EMBEDDER = "GROUNDPLANE_EMBEDDER"
_PLATFORM = "platform"


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, required=True, type=click.Path(exists=True, path_type=Path),
    help="TenantCorpus manifests: YAML files or directories of them.",
)  # fmt: skip
@data_option
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8_080, show_default=True, help="Port of the router; 0: any."
)
@click.option(
    "--embedder", type=click.Choice(["embedded", "openai", "none"]),
    help="Where vectors come from. [default: openai if EMBEDDING_URL is set, else embedded]",
)  # fmt: skip
@click.option(
    "--object-store", metavar="URL", envvar="GROUNDPLANE_OBJECT_STORE",
    help="Keep every corpus in this bucket: s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION]; its keys come from "
    "GROUNDPLANE_S3_… variables. Remembered by the data directory. [env: GROUNDPLANE_OBJECT_STORE]",
)  # fmt: skip
@click.option(
    "--accept-data-loss", "losses", multiple=True, metavar="TENANT=SEQUENCE",
    help="Go on with a log that ends at SEQUENCE although more had been acknowledged: what came after is lost. "
    "platform=SEQUENCE for the platform's corpus.",
)  # fmt: skip
def up(
    *,
    files: tuple[Path, ...],
    data: Path,
    port: int,
    embedder: str | None,
    object_store: str | None,
    losses: tuple[str, ...],
) -> None:
    """Run router and shards for the corpora of manifests, until Ctrl-C.

    What was indexed stays in the data directory, or in the bucket of --object-store.

    Other settings of router and shard are taken from the environment, as in a cluster. Manifests are read at start:
    restart to apply an edit.
    """
    manifests, directory = load_manifests(files), DataDirectory(data)
    corpora = [found.corpus for found in manifests.corpora]
    accepted = parse_losses(losses, corpora)
    with hold_data_directory(directory):
        storage = msgspec.structs.replace(_storage(directory, object_store), accepted_losses=accepted)
        for warning in [*manifests.warnings, *notes_of(corpora, has_bucket=bool(storage.object_store))]:
            warn(warning)
        system = prepare_system(directory, corpora, port, embedder_settings(embedder, os.environ), storage)
        asyncio.run(_run(directory, system, manifests))
    notes_console().print(f"stopped; what was indexed stays in {storage.shown(directory)}", soft_wrap=True)


def _storage(data: DataDirectory, object_store: str | None) -> Storage:
    with data.named_faults():
        return choose_storage(data, object_store)


def parse_losses(losses: Iterable[str], corpora: Iterable[TenantCorpus]) -> dict[CorpusKey, int]:
    """Return the accepted end of each log that `losses` (TENANT=SEQUENCE) name. Raises click.UsageError."""
    named: dict[str, list[CorpusKey]] = {}
    for corpus in corpora:
        named.setdefault(corpus.spec.tenant or _PLATFORM, []).append(corpus.spec.corpus_key)
    accepted: dict[CorpusKey, int] = {}
    for loss in losses:
        name, _, sequence = loss.rpartition("=")
        keys = named.get(name, [])
        if len(keys) != 1 or not sequence.isascii() or not sequence.isdecimal() or keys[0] in accepted:
            known = ", ".join(sorted(named))
            raise click.UsageError(
                f"--accept-data-loss {loss[:64]!r}: expected TENANT=SEQUENCE once for a tenant, of {known}"
            )
        accepted[keys[0]] = int(sequence)
    return accepted


def embedder_settings(chosen: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the router's setting of the embedder: the one chosen, else the environment's, else the embedded one."""
    if chosen is not None:
        return {_EMBEDDER: chosen}
    return {} if environment.get(_EMBEDDER) or environment.get("EMBEDDING_URL") else {_EMBEDDER: "embedded"}


class EventPrinter:
    """Writes what the supervisor reports to stderr, one line an event."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, event: Event) -> None:
        """Write one event; a start is only worth a line when it takes long."""
        if not isinstance(event, Started):
            self._console.print(_event_line(event), soft_wrap=True)


def _event_line(event: Ready | Waiting | Died | Replaced | Stopping | Killed) -> Text:
    name = f"{event.name:<20} "
    match event:
        case Ready():
            return Text.assemble(("✓ ", "green"), name, f"ready in {event.seconds:.1f} s  ", (event.url, "dim"))
        case Waiting():
            return Text.assemble(
                ("… ", "yellow"), name, f"not ready after {event.seconds:.0f} s: {printable(event.answer)}"
            )
        case Died():
            ended = f"exit code {event.exit_code}" if event.exit_code >= 0 else f"signal {-event.exit_code}"
            why = f": {printable(event.last_words)}" if event.last_words else ""
            text = f"ended with {ended}, started again in {event.delay_seconds:g} s{why}"
            return Text.assemble(("✗ ", "red"), name, text)
        case Replaced():
            return Text.assemble(("✗ ", "red"), name, "another writer took over its corpus: replaced by a new process")
        case Stopping():
            return Text.assemble(("- ", "dim"), name, "stopping")
        case Killed():
            return Text.assemble(("✗ ", "red"), name, "did not stop in time: killed")


async def _run(data: DataDirectory, system: System, manifests: Manifests) -> None:
    console = notes_console()
    stop = asyncio.Event()
    async with Supervisor(data, os.environ, EventPrinter(console), SystemClock()) as supervisor:
        _stop_on_signals(stop, supervisor)
        console.print(Text.assemble(("groundplane up", "bold"), f"  {data.root}"), soft_wrap=True)
        started = asyncio.create_task(_start(supervisor, system))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((started, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            return
        stopped.cancel()
        started.result()
        announce(data, Running(url=system.router.url, pid=os.getpid()))
        await _print_grounding(console, system.router.url)
        _print_welcome(console, data, manifests)
        await stop.wait()


async def _start(supervisor: Supervisor, system: System) -> None:
    await supervisor.start_stage(system.shards)
    await supervisor.start_stage([system.router])


def _stop_on_signals(stop: asyncio.Event, supervisor: Supervisor) -> None:
    """Stop in order on the first Ctrl-C or SIGTERM, at once on the second."""

    def on_signal() -> None:
        if stop.is_set():
            supervisor.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)


async def _print_grounding(console: Console, router_url: str) -> None:
    """Say whether questions are searched by meaning, which a running router alone does not tell."""
    readiness = Readiness()
    is_semantic = await readiness.is_semantic(router_url)
    await readiness.close()
    if is_semantic:
        console.print(Text.assemble(("✓ ", "green"), f"{'semantic grounding':<20} active"))
    elif is_semantic is False:
        text = "inactive: questions reach the memo and keyword tiers only; the router's log says why"
        console.print(Text.assemble(("✗ ", "yellow"), f"{'semantic grounding':<20} {text}"), soft_wrap=True)


def _print_welcome(console: Console, data: DataDirectory, manifests: Manifests) -> None:
    specs = [found.corpus.spec for found in manifests.corpora]
    tenants = [spec.tenant for spec in specs if spec.tenant is not None and not spec.suspended]
    who = f"--tenant {tenants[0]}" if tenants else "--platform"
    console.print()
    for command in (f"index PATH… {who}", f'ask {who} "…"', "status"):
        console.print(f"  groundplane {command} --data {data.root}", soft_wrap=True)
    console.print(f"\nlogs in {data.logs}; restart to apply an edit of the manifests; Ctrl-C stops", soft_wrap=True)
