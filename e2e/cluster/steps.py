"""Commands and waits of the cluster program: said before they start, alive while they last, readable when they fail.

Everything that can take time goes through here, so that nothing waits without a limit and nothing is silent for long.
What is said goes to standard error; standard output belongs to the verbs that print something to be used.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

ALIVE_SECONDS = 10.0  # a step that lasts longer says so this often
POLL_SECONDS = 0.1
LAST_LINES = 15
TAIL_BYTES = 8192


class StepFailed(Exception):
    """The cluster cannot be made, used or removed; the text says what failed and what to do, for a person."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command to its end. Only commands with a `what` are spoken of; the others are too short for that."""

    arguments: tuple[str, ...]
    what: str = ""  # "build the base image with debootstrap"
    usual_seconds: float = 0.0  # how long it takes on two cores, for the person who waits
    limit_seconds: float = 60.0
    directory: Path | None = None
    environment: Mapping[str, str] | None = None  # None: that of this process
    standard_input: bytes = b""


def say(text: str) -> None:
    """Tell the person in front of the terminal; one line, flushed."""
    print(f"groundplane: {text}", file=sys.stderr, flush=True)


def end_tidily_when_asked() -> None:
    """Let SIGTERM unwind this program as Ctrl-C does, so that the command it runs ends with it. For entry points."""

    def stop(number: int, _frame: object) -> None:
        sys.exit(128 + number)  # as a shell says it

    signal.signal(signal.SIGTERM, stop)


def run(command: Command) -> str:
    """Return the standard output of a command that succeeded.

    While it runs, a line every ten seconds tells how long it has been running and what it wrote last. Raises StepFailed
    with the last lines of its output if it fails, cannot be started or outlasts its limit; then its whole process group
    is ended.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        if command.what:
            say(f"{command.what}{_usually(command.usual_seconds)}")
        code = _run_to_the_end(command, output, errors)
        if code != 0:
            raise StepFailed(_failure(command, f"ended with {code}", last_lines(output), last_lines(errors)))
        if command.what and time.monotonic() - started > ALIVE_SECONDS:
            say(f"{command.what}: done in {time.monotonic() - started:.0f} s")
        output.seek(0)
        return output.read().decode(errors="replace")


def succeeds(command: Command) -> bool:
    """Whether a command ends with 0 within its limit; nothing is said of why not."""
    try:
        run(command)
    except StepFailed:
        return False
    return True


def wait_until(is_true: Callable[[], bool], *, what: str, limit_seconds: float, explain: Callable[[], str]) -> None:
    """Return as soon as `is_true()`; it is asked ten times a second.

    `what` completes "waiting until ...". Raises StepFailed after `limit_seconds`, with `explain()` for the reason; an
    `is_true` that cannot become true any more raises StepFailed itself.
    """
    started = time.monotonic()
    next_word = started + ALIVE_SECONDS
    while not is_true():
        now = time.monotonic()
        if now - started > limit_seconds:
            raise StepFailed(f"waited {limit_seconds:.0f} s in vain until {what}: {explain()}")
        if now > next_word:
            say(f"  waiting until {what}: {now - started:.0f} s of at most {limit_seconds:.0f} s")
            next_word = now + ALIVE_SECONDS
        time.sleep(POLL_SECONDS)


def last_lines(stream: IO[bytes]) -> str:
    """Return the last lines of what was written to a file so far; the offset, which the writer may share, stays."""
    size = os.fstat(stream.fileno()).st_size
    written = os.pread(stream.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")
    return "\n".join(written.strip().splitlines()[-LAST_LINES:])


def _run_to_the_end(command: Command, output: IO[bytes], errors: IO[bytes]) -> int:
    process = _start(command, output, errors)
    try:
        return _wait(process, command, output, errors)
    finally:
        if process.poll() is None:  # the limit was reached, or the person gave up
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(command: Command, output: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as standard_input:  # a file, not a pipe: the command may read it when it likes
        standard_input.write(command.standard_input)
        standard_input.seek(0)
        try:
            return subprocess.Popen(
                command.arguments,
                stdin=standard_input,
                stdout=output,
                stderr=errors,
                cwd=command.directory,
                env=command.environment,
                start_new_session=True,  # so that its children can be ended with it
            )
        except OSError as error:
            raise StepFailed(f"cannot start {command.arguments[0]}: {error.strerror}") from error


def _wait(process: subprocess.Popen[bytes], command: Command, output: IO[bytes], errors: IO[bytes]) -> int:
    started = time.monotonic()
    while True:
        left = command.limit_seconds - (time.monotonic() - started)
        try:
            return process.wait(min(ALIVE_SECONDS, max(left, 0.0)))
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - started
            written = (last_lines(output), last_lines(errors))
            if seconds >= command.limit_seconds:
                raise StepFailed(
                    _failure(command, f"was ended after {command.limit_seconds:.0f} s", *written)
                ) from None
            newest = [text.splitlines()[-1] for text in written if text][-1:]
            say(f"  {command.what or command.arguments[0]}: {seconds:.0f} s{': ' + newest[0][:90] if newest else ''}")


def _failure(command: Command, how: str, *written: str) -> str:
    lines = [line for text in written for line in text.splitlines()][-LAST_LINES:]
    shown = " ".join(command.arguments)
    head = f"{command.what}: {shown[:300]} {how}" if command.what else f"{shown[:300]} {how}"
    return "\n  | ".join((head, *lines))


def _usually(seconds: float) -> str:
    if not seconds:
        return ""
    return f" (usually {seconds:.0f} s)" if seconds < 120 else f" (usually {seconds / 60:.0f} minutes)"
