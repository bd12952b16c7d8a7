"""`groundplane demo`: the whole system for two minutes, with a transcript that checks itself."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from groundplane.cli.demo_checks import STEPS, Clients, StepResult
from groundplane.cli.demo_transcript import print_step, print_summary
from groundplane.cli.terminal import data_console, notes_console
from groundplane.cli.up import EventPrinter
from groundplane.client import AsyncClient, ClientError, ClientOptions, DocumentInput
from groundplane.client.credentials import Token
from groundplane.demo import SCOPES, Scope, grep_path, load_documents
from groundplane.errors import InvalidInput
from groundplane.local.callers import local_token
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import Program, plan_router
from groundplane.local.ports import free_ports
from groundplane.local.supervisor import Supervisor
from groundplane.local.system import System, hold_data_directory, prepare_system
from groundplane.manifests import load_manifests
from groundplane.process.clock import SystemClock
from groundplane.wire.directory import Access

_EMBEDDED_DIMENSION = "384"
_OWN_VARIABLES = ("GROUNDPLANE_", "EMBEDDING_", "MODEL_EMBEDDING_", "FACE_DCI_")
_NO_RETRIES = ClientOptions(retries=0)


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, default=["examples"], show_default=True,
    type=click.Path(exists=True, path_type=Path), help="Manifests of the platform, acme and globex.",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the data here. [default: thrown away]"
)
def demo(files: tuple[Path, ...], data: Path | None) -> int:
    """Start everything, index the bundled documents, ask, and check every answer. Exits with 1 if one is wrong."""
    corpora = [found.corpus for found in load_manifests(files).corpora]
    tenants = {corpus.spec.tenant for corpus in corpora}
    if tenants != {None, "acme", "globex"}:
        raise InvalidInput(
            f"the demo needs the corpora platform, acme and globex, found {len(corpora)}: use -f examples"
        )
    with ExitStack() as stack:
        root = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundplane-demo-")))
        directory = DataDirectory(root)
        stack.enter_context(hold_data_directory(directory))
        settings = {"GROUNDPLANE_EMBEDDER": "embedded", "FACE_DCI_CORPUS_DIR": str(grep_path())}
        system = prepare_system(directory, corpora, 0, settings)
        results = asyncio.run(_run(directory, system))
    return print_summary(data_console(), results)


async def _run(data: DataDirectory, system: System) -> list[StepResult]:
    console = notes_console()
    cut_off = _router_without_embedder(data)
    supervisor = Supervisor(data, _clean(os.environ), EventPrinter(console), SystemClock())
    async with supervisor, AsyncExitStack() as stack:
        console.print(Text("starting a platform shard, two tenant shards and two routers", "bold"))
        await supervisor.start_stage(system.shards)
        await supervisor.start_stage([system.router, cut_off])
        await _index_everything(data, system.router.url, console)
        clients = Clients(
            acme=await _client(stack, system.router.url, data, "acme", "read"),
            globex=await _client(stack, system.router.url, data, "globex", "read"),
            acme_indexer=await _client(stack, system.router.url, data, "acme", "write"),
            acme_cut_off=await _client(stack, cut_off.url, data, "acme", "read"),
        )
        return await _run_steps(clients)


async def _run_steps(clients: Clients) -> list[StepResult]:
    """Run the steps one after the other; a call that fails is a step that came out wrong, not the end of the demo."""
    results = []
    for number, step in enumerate(STEPS, start=1):
        try:
            result = await step(clients)
        except ClientError as error:
            result = StepResult.failed(step.__name__, error.message)
        print_step(data_console(), result, number)
        results.append(result)
    return results


async def _index_everything(data: DataDirectory, url: str, console: Console) -> None:
    """Index the documents of all three corpora through the public API, with a progress bar."""
    columns = (TextColumn("indexing {task.description:<9}"), BarColumn(), MofNCompleteColumn(), TextColumn("documents"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        for scope in SCOPES:
            documents = _documents(scope)
            task = bar.add_task(scope, total=len(documents))
            token = local_token(data, None if scope == "platform" else scope, "write")
            async with AsyncClient(url, token, options=ClientOptions(batch_documents=10)) as client:
                async for answer in client.index_batches(documents):
                    bar.advance(task, len(answer.results))
            if not console.is_terminal:
                console.print(f"indexed {len(documents)} documents of {scope}")


def _documents(scope: Scope) -> list[DocumentInput]:
    return [
        DocumentInput(id=each.id, text=each.text, title=each.title, metadata=dict(each.metadata))
        for each in load_documents(scope)
    ]


async def _client(stack: AsyncExitStack, url: str, data: DataDirectory, tenant: str, access: Access) -> AsyncClient:
    token: Token = local_token(data, tenant, access)
    return await stack.enter_async_context(AsyncClient(url, token, options=_NO_RETRIES))


def _router_without_embedder(data: DataDirectory) -> Program:
    """Return a second router on the same shards whose embedding server does not exist.

    It is up when it lives: ready it would be only after 30 s of hoping for that server.
    """
    port, closed_port = free_ports(2)
    settings = {
        "GROUNDPLANE_EMBEDDER": "openai",
        "EMBEDDING_URL": f"http://127.0.0.1:{closed_port}",
        "MODEL_EMBEDDING_DIM": _EMBEDDED_DIMENSION,
        "FACE_DCI_CORPUS_DIR": str(grep_path()),
    }
    return msgspec.structs.replace(plan_router(data, port, name="router-cut-off", **settings), probe_path="/healthz")


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without what would change the demo."""
    return {name: value for name, value in environment.items() if not name.startswith(_OWN_VARIABLES)}
