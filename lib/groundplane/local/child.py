"""One process of ours: started in a group of its own, its output in a log file, ended politely and then for certain."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from groundplane.local.plan import Program, child_environment

MAX_LOG_BYTES = 16 * 1024 * 1024


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


def last_line(log: Path) -> str:
    """Return the last line that is not empty in a log, cut to 300 characters; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16 * 1024))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1].strip()[:300] if lines else ""
