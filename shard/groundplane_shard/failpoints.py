"""Named places at which a process under test kills itself with SIGKILL, as a power cut would end it.

    GROUNDPLANE_TESTING=1 GROUNDPLANE_FAILPOINTS=log_put_done:3       at the third time this place is reached

Without GROUNDPLANE_TESTING=1 nothing is armed, whatever the other variable says, and `reach` costs one look at a context
variable. A name that is not declared here is a fault of the settings, so that no test passes because of a typing error.

A name ending in `_sent` kills one turn of the event loop later, when the store is at work on it: what comes of it is
open. One ending in `_done` kills when the store has answered, before anything is done with the answer. Which step of a
take-over or a snapshot a place belongs to is a matter of counting: the first `manifest_replace` of a start raises the epoch.
"""

import asyncio
import enum
import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Annotated, NoReturn

import msgspec

from groundplane.errors import InvalidInput
from groundplane.process.settings import read_settings, setting
from groundplane_shard.log.operations import Create, Delete, Operation, Replace, Upload, Verify
from groundplane_shard.log.record import decode_unchained


class Failpoint(enum.StrEnum):
    """Every place there is. Those of store operations are `<operation>_sent` and `<operation>_done`."""

    STORE_CHECKED = "store_checked"
    SNAPSHOT_FILE_DOWNLOADED = "snapshot_file_downloaded"
    SNAPSHOT_RESTORED = "snapshot_restored"
    LOG_READ = "log_read"
    TAKEN_OVER = "taken_over"
    MANIFEST_CREATE_SENT = "manifest_create_sent"
    MANIFEST_CREATE_DONE = "manifest_create_done"
    MANIFEST_REPLACE_SENT = "manifest_replace_sent"
    MANIFEST_REPLACE_DONE = "manifest_replace_done"
    BARRIER_SENT = "barrier_sent"
    BARRIER_DONE = "barrier_done"
    LOG_PUT_SENT = "log_put_sent"
    LOG_PUT_DONE = "log_put_done"
    APPLIED = "applied"
    BEFORE_ACKNOWLEDGE = "before_acknowledge"
    MEMTABLE_FROZEN = "memtable_frozen"
    TABLE_MERGED = "table_merged"
    STATISTICS_WRITTEN = "statistics_written"
    BASE_SWAPPED = "base_swapped"
    TABLE_COPIED = "table_copied"
    UPLOAD_SENT = "upload_sent"
    UPLOAD_DONE = "upload_done"
    VERIFY_DONE = "verify_done"
    SNAPSHOT_PUBLISHED = "snapshot_published"
    DELETE_SENT = "delete_sent"
    DELETE_DONE = "delete_done"
    STOPPING = "stopping"
    STOPPED = "stopped"


class FailpointSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process under test ends."""

    failpoints: Annotated[
        str, setting("GROUNDPLANE_FAILPOINTS", "places at which to die, name[:nth] joined by commas; for tests only")
    ] = ""
    testing: Annotated[str, setting("GROUNDPLANE_TESTING", "1: this process belongs to a test")] = ""


class _Armed:
    """The places at which this process dies, and how often each was reached."""

    def __init__(self, turns: Mapping[Failpoint, int]) -> None:
        self._turns = turns
        self._reached: Counter[Failpoint] = Counter()

    def reach(self, point: Failpoint) -> None:
        self._reached[point] += 1
        if self._reached[point] != self._turns.get(point):
            return
        if point.endswith("_sent"):
            asyncio.get_running_loop().call_soon(_die)
        else:
            _die()


_NAMES = frozenset(Failpoint)
_ARMED: ContextVar[_Armed | None] = ContextVar("failpoints", default=None)


def arm(environment: Mapping[str, str]) -> None:
    """Arm what `environment` names, for this context and all that comes from it. Raises InvalidInput for an unknown name."""
    settings = read_settings(FailpointSettings, environment)
    if settings.testing == "1" and settings.failpoints:
        _ARMED.set(_Armed(dict(map(_parse, settings.failpoints.split(",")))))


def reach(point: Failpoint) -> None:
    """Die here if the process was told to."""
    armed = _ARMED.get()
    if armed is not None:
        armed.reach(point)


def reach_sent(operation: Operation) -> None:
    """Die soon after `operation` was given to the store, if the process was told to."""
    _reach_operation(operation, "sent")


def reach_done(operation: Operation) -> None:
    """Die when the store has answered `operation`, if the process was told to."""
    _reach_operation(operation, "done")


def _reach_operation(operation: Operation, when: str) -> None:
    armed = _ARMED.get()
    if armed is None:
        return
    name = f"{_name(operation)}_{when}"
    if name in _NAMES:
        armed.reach(Failpoint(name))


def _name(operation: Operation) -> str:
    match operation:
        case Create(key, data) if "/log/" in key:
            return "barrier" if decode_unchained(data, key=key).record.kind.is_barrier else "log_put"
        case Create():
            return "manifest_create"
        case Replace():
            return "manifest_replace"
        case Upload():
            return "upload"
        case Verify():
            return "verify"
        case Delete():
            return "delete"
        case _:
            return "read"


def _parse(text: str) -> tuple[Failpoint, int]:
    name, _, turn = text.partition(":")
    is_turn = turn == "" or (turn.isascii() and turn.isdecimal() and int(turn) > 0)
    if name not in _NAMES or not is_turn:
        raise InvalidInput(
            f"GROUNDPLANE_FAILPOINTS={text[:128]}: expected name[:nth] with one of {', '.join(Failpoint)}",
            code="invalid_settings",
        )
    return Failpoint(name), int(turn or 1)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)  # the signal came first
