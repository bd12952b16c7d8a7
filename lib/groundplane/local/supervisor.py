"""Keeps the processes of one data directory up: starts them in order, restarts what dies, stops them in reverse.

A stage is started when every process of the stages before it is ready: shards first, then routers. A process that
ends by itself is started again on the same port after a pause that doubles up to half a minute. What no restart can mend
ends the start: a process that was never ready and refuses its settings (exit code 2), or has died five times, or finds
less in its store than was witnessed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from groundplane.errors import Unavailable
from groundplane.local.child import Child, last_words, refusal
from groundplane.local.events import Died, Killed, Ready, Replaced, Report, Started, Stopping, Waiting
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import Program
from groundplane.local.readiness import Readiness
from groundplane.process.clock import Clock

USAGE_EXIT_CODE = 2
SUPERSEDED = "superseded"
BEHIND_WITNESS = "behind_witness"
COULD_NOT_START = 126  # as shells say it


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the supervisor waits, in seconds."""

    start_seconds: float = 120.0  # until the processes of one stage are ready
    remind_seconds: float = 5.0  # between two reports that it still waits
    poll_seconds: float = 0.1  # between two questions to a process that is not ready
    watch_seconds: float = 5.0  # between two questions to one that is
    grace_seconds: float = 20.0  # from SIGTERM to SIGKILL
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    healthy_seconds: float = 60.0  # a process that lived that long starts over with the first pause
    early_deaths: int = 5  # of a process that was never ready, then the start is given up


class Supervisor:
    """The processes of one data directory, while this context is open."""

    def __init__(
        self,
        data: DataDirectory,
        inherited: Mapping[str, str],
        report: Report,
        clock: Clock,
        patience: Patience = Patience(),  # noqa: B008 - frozen
    ) -> None:
        self._data = data
        self._inherited = inherited
        self._report = report
        self._patience = patience
        self._clock = clock
        self._readiness = Readiness()
        self._stages: list[list[str]] = []
        self._children: dict[str, Child] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._answers: dict[str, str] = {}
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start_stage(self, programs: Sequence[Program]) -> None:
        """Start `programs` and return when all of them are ready.

        Raises Unavailable that names what was waited for, and where its log is, if that takes too long or cannot be.
        """
        self._stages.append([program.name for program in programs])
        for program in programs:
            self._ready[program.name] = asyncio.Event()
            self._keepers[program.name] = asyncio.create_task(self._keep(program), name=program.name)
        began = self._clock.monotonic()
        waiting = {program.name: asyncio.create_task(self._ready[program.name].wait()) for program in programs}
        try:
            await self._await_ready(waiting, began)
        finally:
            for task in waiting.values():
                task.cancel()

    async def stop(self) -> None:
        """End every process, the last stage first, and return when all are gone."""
        self._stopping.set()
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._stop_one(name) for name in stage))
        await self._readiness.close()

    def kill(self) -> None:
        """End every process at once, without asking."""
        self._stopping.set()
        for child in self._children.values():
            child.kill()

    def pid_of(self, name: str) -> int:
        """Return the process id of a program that was started."""
        return self._children[name].pid

    async def _await_ready(self, waiting: Mapping[str, asyncio.Task[bool]], began: float) -> None:
        pending = {name for name, task in waiting.items() if not task.done()}
        while pending:
            tasks = [waiting[name] for name in pending] + [self._keepers[name] for name in waiting]
            await asyncio.wait(tasks, timeout=self._patience.remind_seconds, return_when=asyncio.FIRST_COMPLETED)
            for name in waiting:
                if self._keepers[name].done():
                    self._keepers[name].result()
            self._give_up_if_behind(sorted(pending))
            before, pending = pending, {name for name in pending if not waiting[name].done()}
            elapsed = self._clock.monotonic() - began
            if pending and elapsed > self._patience.start_seconds:
                raise Unavailable(self._late_text(sorted(pending), elapsed), code="start_timeout")
            if before == pending:
                for name in sorted(pending):
                    self._report(Waiting(name=name, seconds=elapsed, answer=self._answers.get(name, "")))

    async def _keep(self, program: Program) -> None:
        """Start `program` whenever it is not running, until the supervisor stops."""
        pause, deaths = self._patience.first_pause_seconds, 0
        while True:
            began = self._clock.monotonic()
            try:
                exit_code = await self._run_once(program)
                words = last_words(self._data.log_of(program.name))
            except OSError as error:  # no memory, no descriptor, no log file: as if it had died, since that may pass
                exit_code, words = COULD_NOT_START, f"cannot be started: {error.strerror}"
            if self._stopping.is_set():
                return
            deaths += 1
            self._give_up_if_hopeless(program.name, exit_code, deaths, words)
            if self._clock.monotonic() - began > self._patience.healthy_seconds:
                pause = self._patience.first_pause_seconds
            self._report(Died(name=program.name, exit_code=exit_code, delay_seconds=pause, last_words=words))
            await self._clock.sleep(pause)
            pause = min(2 * pause, self._patience.longest_pause_seconds)

    async def _run_once(self, program: Program) -> int:
        """Start `program`, report when it is ready, and return its exit code when it has ended."""
        began = self._clock.monotonic()
        child = await Child.start(program, self._data.log_of(program.name), self._inherited)
        self._children[program.name] = child
        self._report(Started(name=program.name))
        watcher = asyncio.create_task(self._watch(program, child, began))
        try:
            return await child.wait()
        finally:
            watcher.cancel()

    def _give_up_if_hopeless(self, name: str, exit_code: int, deaths: int, words: str) -> None:
        if self._ready[name].is_set():
            return
        log = self._data.log_of(name)
        if exit_code == USAGE_EXIT_CODE:
            raise Unavailable(f"{name} refuses its settings: {refusal(log)}", code="settings_refused")
        if deaths >= self._patience.early_deaths:
            text = f"{name} ended {deaths} times before it was ready: {words or 'without a word'}; see {log}"
            raise Unavailable(text, code="start_failed")

    def _give_up_if_behind(self, names: Sequence[str]) -> None:
        """Raise Unavailable if a store has lost writes: only a person can say what is to become of them."""
        for name in names:
            if BEHIND_WITNESS in self._answers.get(name, ""):
                words = last_words(self._data.log_of(name))
                raise Unavailable(f"{name} is not started: {words}", code=BEHIND_WITNESS)

    async def _watch(self, program: Program, child: Child, began: float) -> None:
        """Report when `child` is ready, and afterwards end it if another writer has superseded it."""
        is_ready = False
        while True:
            now_ready, answer = await self._readiness.ask(program.probe_url)
            self._answers[program.name] = answer
            if now_ready and not is_ready:
                is_ready = True
                seconds = self._clock.monotonic() - began
                self._report(Ready(name=program.name, url=program.url, seconds=seconds))
                self._ready[program.name].set()
            elif is_ready and not now_ready and SUPERSEDED in answer:
                self._report(Replaced(name=program.name))
                await child.stop(self._patience.grace_seconds)
                return
            await self._clock.sleep(self._patience.watch_seconds if is_ready else self._patience.poll_seconds)

    async def _stop_one(self, name: str) -> None:
        child = self._children.get(name)
        if child is None or child.exit_code is not None:
            return
        self._report(Stopping(name=name))
        if not await child.stop(self._patience.grace_seconds):
            self._report(Killed(name=name))

    def _late_text(self, names: Sequence[str], elapsed: float) -> str:
        lines = [f"not ready after {elapsed:.0f} s: {', '.join(names)}"]
        for name in names:
            log = self._data.log_of(name)
            words = last_words(log)
            said = f"{name} last answered: {self._answers.get(name) or 'nothing'}; see {log}"
            lines.append(f"{said}: {words}" if words else said)
        return "\n".join(lines)
