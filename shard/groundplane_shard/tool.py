"""`python -m groundplane_shard.tool`: look at a corpus in its store, restore it or erase it, without a running shard.

    log | snapshots | incarnations | verify      what GROUNDPLANE_INCARNATION of GROUNDPLANE_CORPUS_KEY holds
    restore FROM [SEQUENCE]                      copy the incarnation FROM into GROUNDPLANE_INCARNATION, which must be new;
                                                 nothing is done if it is that very copy already
    erase                                        remove every object of GROUNDPLANE_INCARNATION, for good; repeat at any time

`groundplane corpus` starts this program, since the command line imports none of the shard. Its environment is the shard's
own: GROUNDPLANE_CORPUS_KEY, GROUNDPLANE_INCARNATION, where the store is, and for a restore GROUNDPLANE_WORK_DIRECTORY and
GROUNDPLANE_WITNESS_FILE, that of FROM. It writes one JSON document to stdout, and lines that begin with `progress ` to
stderr. Exit codes: 0 done, 1 failed or damaged (the reason is on stderr), 2 usage.
"""

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec

from groundplane.errors import GroundplaneError, InvalidInput
from groundplane.process.clock import SystemClock
from groundplane.process.settings import read_settings, setting
from groundplane.wire.names import parse_corpus_key, parse_incarnation
from groundplane_shard import failpoints, inspection
from groundplane_shard.erasing import erase
from groundplane_shard.log import Identity, Layout, Record, Seq, Snapshot, Steps
from groundplane_shard.log.operations import Damaged, Restored
from groundplane_shard.log.record import Position
from groundplane_shard.restoration import RestoreOrder, restore_corpus
from groundplane_shard.store_settings import StoreSettings, build_store
from groundplane_shard.stores import ObjectStore, Progress, run
from groundplane_shard.witness import WitnessFile


class ToolSettings(StoreSettings, frozen=True, kw_only=True):
    """Which corpus is looked at."""

    corpus_key: Annotated[str, setting("GROUNDPLANE_CORPUS_KEY", "storage name of the corpus", check=parse_corpus_key)]
    incarnation: Annotated[
        str, setting("GROUNDPLANE_INCARNATION", "its incarnation, a lowercase UUID", check=parse_incarnation)
    ]
    work_directory: Annotated[
        str, setting("GROUNDPLANE_WORK_DIRECTORY", "where a restore puts files on their way, in a directory of its own")
    ] = "."
    witness_file: Annotated[
        str, setting("GROUNDPLANE_WITNESS_FILE", "what a restore of the newest state must reach, if it is set")
    ] = ""


INSPECTIONS: Mapping[str, Callable[[Layout], Steps[object]]] = {
    "log": inspection.list_log,
    "snapshots": inspection.list_snapshots,
    "incarnations": inspection.list_incarnations,
    "verify": inspection.verify,
}
_USAGE = f"usage: python -m groundplane_shard.tool {{{'|'.join(INSPECTIONS)}|restore FROM [SEQUENCE]|erase}}"


class _NoEffects:
    """The effects of inspection and erasing: there are none."""

    async def restore(self, _snapshot: Snapshot | None) -> Restored | Damaged:
        """Never asked for."""
        raise TypeError("neither inspection nor erasing restores anything")

    async def apply(self, _record: Record, _position: Position) -> None:
        """Never asked for."""
        raise TypeError("neither inspection nor erasing applies anything")

    async def foresee(self, _records: Sequence[Record]) -> None:
        """Never asked for."""
        raise TypeError("inspection applies nothing")


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command and return its exit code."""
    try:
        settings = read_settings(ToolSettings, environment)
        failpoints.arm(environment)
        if settings.store_directory and not Path(settings.store_directory).is_dir():
            raise InvalidInput(
                f"store {settings.store_directory} is not a directory: expected the store of an installation"
            )
        with closing(build_store(settings, environment)) as store:
            found = asyncio.run(_perform(arguments, settings, store))
    except GroundplaneError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 1 if isinstance(found, inspection.Verification) and found.faults else 0


async def _perform(arguments: Sequence[str], settings: ToolSettings, store: ObjectStore) -> object:
    layout = Layout(settings.corpus_key, settings.incarnation)
    match tuple(arguments):
        case (name,) if name in INSPECTIONS:
            return await run(INSPECTIONS[name](layout), store, _NoEffects())
        case ("restore", source):
            return await restore_corpus(store, _order(settings, layout, source, None), SystemClock(), _tell)
        case ("restore", source, sequence) if sequence.isascii() and sequence.isdecimal():
            order = _order(settings, layout, source, Seq(int(sequence)))
            return await restore_corpus(store, order, SystemClock(), _tell)
        case ("erase",):
            identity = Identity(layout=layout, owner=layout.incarnation, writer_id=str(uuid.uuid4()))
            return await run(erase(identity), store, _NoEffects())
        case _:
            raise InvalidInput(_USAGE)


def _order(settings: ToolSettings, target: Layout, source: str, until: Seq | None) -> RestoreOrder:
    return RestoreOrder(
        target=target,
        source_incarnation=source,
        until=until,
        witness=WitnessFile(Path(settings.witness_file) if settings.witness_file else None),
        work_directory=Path(settings.work_directory),
    )


def _tell(progress: Progress) -> None:
    """Write a line that a program can tell from an error."""
    steps = (f"{step} {progress.shown(step)}" for step in ("downloaded", "uploaded", "verified"))
    sys.stderr.write(f"progress snapshot: {', '.join(steps)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:], os.environ))
