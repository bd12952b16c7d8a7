"""One process of ours: started in a group of its own, its output in a log file, ended politely and then for certain."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from groundplane.local.plan import Program, child_environment

MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_TAIL_BYTES = 16 * 1024
MAX_WORDS = 600
REFUSAL_PREFIX = "groundplane: "


class Child:
    """A running process. Its group is its own, so that Ctrl-C in a terminal reaches `up` alone, which stops in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, program: Program, log: Path, inherited: Mapping[str, str]) -> "Child":
        """Start `program`; it appends what it prints to `log` and gets SIGTERM if this process dies."""
        output = _open_log(log)
        try:
            arguments = (sys.executable, "-P", "-m", "groundplane.local.launch", str(os.getpid()), program.module)
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment(program, inherited),
                process_group=0,
            )
        finally:
            os.close(output)
        return cls(process)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Return the exit code when the process has ended."""
        return await self._process.wait()

    async def stop(self, grace_seconds: float) -> bool:
        """End the process with SIGTERM, and with SIGKILL after `grace_seconds`. True if it went by itself."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        except TimeoutError:
            self.kill()
            await self._process.wait()
            return False
        return True

    def kill(self) -> None:
        """End the process and what it started at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return


def _open_log(log: Path) -> int:
    """Return a descriptor that appends to `log`; a large one of earlier starts is put aside first."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def last_words(log: Path) -> str:
    """Return the last line of a log if it says why its process ended, "" if nothing does.

    A JSON line counts if it is a warning or an error, and is shown as its event and fields; any other line counts as
    it is: the end of a traceback, or what a program prints about its settings.
    """
    lines = _tail(log)
    return _words_of(lines[-1].strip())[:MAX_WORDS] if lines else ""


def refusal(log: Path) -> str:
    """Return what a program that refused its settings printed: one line a fault, the last time it did so."""
    lines = _tail(log)
    starts = [number for number, line in enumerate(lines) if line.startswith(REFUSAL_PREFIX)]
    return "\n".join(lines[starts[-1] :]).removeprefix(REFUSAL_PREFIX) if starts else last_words(log)


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MAX_TAIL_BYTES))
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def _words_of(line: str) -> str:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return line
    if fields.pop("level", "") not in {"warning", "error"}:
        return ""
    shown = [
        f"{name}={value}" for name, value in fields.items() if name not in {"time", "component", "event", "traceback"}
    ]
    return " ".join([str(fields.get("event", "")), *shown])
