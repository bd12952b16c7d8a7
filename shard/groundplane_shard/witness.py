"""The witness: the highest durable epoch and sequence of a corpus, kept outside its store (I12).

    {"epoch": 7, "sequence": 94}

The log says what it holds, but not what it has lost: a store that forgot its last objects, or was put back whole from an
old copy, looks like any other. So each opening compares it with this file (see `log.replica`). In a cluster it is a
mounted ConfigMap that the operator writes; on one machine the shard writes it itself, at the start, every ten seconds
while it changes, and at every orderly stop. What was acknowledged in the last seconds before a kill is not witnessed.

The file never goes back: of two writers' entries the higher epoch stands, then the higher sequence. After an accepted
loss the sequence is lower and the epoch higher. A file that cannot be written costs protection, not the service.
Errors of reading: `CorruptData` (`witness_damaged`), `Unavailable` (`witness_unreadable`).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from groundplane.errors import CorruptData, GroundplaneError, Unavailable
from groundplane.process.clock import Clock
from groundplane.process.logs import Log
from groundplane_shard.log import Witness
from groundplane_shard.stores import files

WRITE_SECONDS = 10.0


class WitnessFile:
    """The witness of one incarnation; without a path there is none, and nothing is ever behind it."""

    def __init__(self, path: Path | None = None, *, may_write: bool = False) -> None:
        self._path = path
        self._may_write = may_write and path is not None
        self._log = Log("witness")

    async def read(self) -> Witness | None:
        """Return what was witnessed, None before the first time. Raises CorruptData, Unavailable."""
        return None if self._path is None else await asyncio.to_thread(_read, self._path)

    @asynccontextmanager
    async def kept(self, durable: Callable[[], Witness], clock: Clock) -> AsyncIterator[None]:
        """Write what `durable` returns: now, every ten seconds while it changes, and at the end of the block.

        The block does not wait for the first: a slow disk must not keep a shard from being ready.
        """
        if not self._may_write:
            yield
            return
        keeper = asyncio.create_task(self._keep(durable, clock))
        try:
            yield
        finally:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
            await self._write(durable())

    async def _keep(self, durable: Callable[[], Witness], clock: Clock) -> None:
        written: Witness | None = None
        while True:
            if durable() != written:
                written = await self._write(durable())
            await clock.sleep(WRITE_SECONDS)

    async def _write(self, witness: Witness) -> Witness | None:
        """Return the witness if it stands in the file now, or a higher one does; None if it could not be written."""
        if self._path is None:
            return None
        try:
            await asyncio.to_thread(write_witness, self._path, witness)
        except GroundplaneError as error:
            self._log.warning("witness_not_written", code=error.code, message=error.message)
            return None
        return witness


def write_witness(path: Path, witness: Witness) -> None:
    """Put `witness` into the file, durable when this returns, unless a higher one stands there. Raises as reading does."""
    try:
        path.parent.mkdir(mode=files.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        with files.exclusive_lock(path.with_name(f".{path.name}.lock")):
            known = _read(path)
            if known is None or (witness.epoch, witness.sequence) > (known.epoch, known.sequence):
                _replace(path, msgspec.json.encode(witness))
    except OSError as error:
        raise Unavailable(
            f"witness {path} cannot be written: {error.strerror}; free or repair its disk", code="witness_unwritable"
        ) from error


def _replace(path: Path, content: bytes) -> None:
    with files.temporary_file(path.parent) as (file, temporary):
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        temporary.rename(path)
    files.sync_directory(path.parent)


def _read(path: Path) -> Witness | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Witness)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(
            f"witness {path} cannot be read: {error.strerror}; repair the file's mount or mode",
            code="witness_unreadable",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(
            f'witness {path} is damaged: expected {{"epoch": …, "sequence": …}}; restore it from a copy, or remove it to go '
            "on with whatever the store holds",
            code="witness_damaged",
        ) from error
