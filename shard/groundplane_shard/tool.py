"""`python -m groundplane_shard.tool`: look at a corpus in its store, without a running shard.

`groundplane corpus` starts this program, since the command line imports none of the shard. It takes the shard's own
environment (GROUNDPLANE_CORPUS_KEY, GROUNDPLANE_INCARNATION, and where the store is) and one command, and writes one JSON
document to stdout. Exit codes: 0 done, 1 failed or damaged (the reason is on stderr), 2 usage.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec

from groundplane.errors import GroundplaneError, InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane_shard import inspection
from groundplane_shard.log import Layout, Record, Snapshot, Steps
from groundplane_shard.log.operations import Damaged, Restored
from groundplane_shard.log.record import Position
from groundplane_shard.store_settings import StoreSettings, build_store
from groundplane_shard.stores import run


class ToolSettings(StoreSettings, frozen=True, kw_only=True):
    """Which corpus is looked at."""

    corpus_key: Annotated[str, setting("GROUNDPLANE_CORPUS_KEY", "storage name of the corpus", min_length=1)]
    incarnation: Annotated[str, setting("GROUNDPLANE_INCARNATION", "its incarnation, a lowercase UUID", min_length=36)]


COMMANDS: Mapping[str, Callable[[Layout], Steps[object]]] = {
    "log": inspection.list_log,
    "snapshots": inspection.list_snapshots,
    "verify": inspection.verify,
}


class _ReadOnly:
    """The effects of inspection: there are none."""

    async def restore(self, _snapshot: Snapshot | None) -> Restored | Damaged:
        """Never asked for."""
        raise TypeError("inspection restores nothing")

    async def apply(self, _record: Record, _position: Position) -> None:
        """Never asked for."""
        raise TypeError("inspection applies nothing")


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command and return its exit code."""
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        return _fail(InvalidInput(f"usage: python -m groundplane_shard.tool {{{'|'.join(COMMANDS)}}}"))
    try:
        settings = read_settings(ToolSettings, environment)
        if settings.store_directory and not Path(settings.store_directory).is_dir():
            raise InvalidInput(
                f"store {settings.store_directory} is not a directory: expected the store of an installation"
            )
        layout = Layout(settings.corpus_key, settings.incarnation)
        with closing(build_store(settings, environment)) as store:
            found = asyncio.run(run(COMMANDS[arguments[0]](layout), store, _ReadOnly()))
    except GroundplaneError as error:
        return _fail(error)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 1 if isinstance(found, inspection.Verification) and found.faults else 0


def _fail(error: GroundplaneError) -> int:
    sys.stderr.write(f"{error.message}\n")
    return 2 if isinstance(error, InvalidInput) else 1


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:], os.environ))
