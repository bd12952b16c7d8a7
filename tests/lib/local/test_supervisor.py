"""The supervisor keeps what it started up, in order, and leaves nothing behind."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from groundplane.errors import Unavailable
from groundplane.local.events import Died, Event, Killed, Ready, Replaced, Waiting
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import Program
from groundplane.local.ports import free_ports
from groundplane.local.supervisor import Patience, Supervisor
from groundplane.process.clock import SystemClock

FAKES = Path(__file__).resolve().parents[2] / "fakes"
PATH_WITH_FAKES = os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")])
QUICK = Patience(
    start_seconds=20,
    remind_seconds=0.2,
    poll_seconds=0.02,
    watch_seconds=0.05,
    grace_seconds=5,
    first_pause_seconds=0.05,
)

pytestmark = pytest.mark.process


class Bench:
    """A data directory, a journal that the fake programs write, and every event that was reported."""

    def __init__(self, root: Path) -> None:
        self.data = DataDirectory(root / "data")
        self.data.prepare()
        self.journal = root / "journal"
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def program(self, name: str, **environment: str) -> Program:
        (port,) = free_ports(1)
        own = {"GROUNDPLANE_PORT": str(port), "FAKE_NAME": name, "FAKE_JOURNAL": str(self.journal), **environment}
        return Program(name=name, module="fake_program", url=f"http://127.0.0.1:{port}", environment=own)

    def supervisor(self, patience: Patience = QUICK) -> Supervisor:
        return Supervisor(
            self.data, {**os.environ, "PYTHONPATH": PATH_WITH_FAKES}, self.report, SystemClock(), patience
        )

    def report(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds, looked at after each event."""
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def of(self, kind: type[Event]) -> list[str]:
        return [event.name for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def test_stages_start_in_order_and_stop_in_reverse(bench):
    """The router must find its shards, and must not ask shards that are going down."""
    async with bench.supervisor() as supervisor:
        await supervisor.start_stage([bench.program("shard")])
        await supervisor.start_stage([bench.program("router")])

    assert bench.journal.read_text().split("\n")[:4] == [
        "shard started",
        "router started",
        "router stopped",
        "shard stopped",
    ]


async def test_a_program_that_dies_is_started_again_on_its_port(bench):
    """A crash costs seconds, not the evening; the directory still names the right port."""
    program = bench.program("shard")
    async with bench.supervisor() as supervisor:
        await supervisor.start_stage([program])
        os.kill(supervisor.pid_of("shard"), signal.SIGKILL)
        await bench.until(lambda: len(bench.of(Ready)) == 2)

    died = next(event for event in bench.events if isinstance(event, Died))
    assert died.exit_code == -signal.SIGKILL
    assert {event.url for event in bench.events if isinstance(event, Ready)} == {program.url}


async def test_a_program_that_keeps_dying_is_started_ever_more_rarely(bench):
    """A broken program must not eat the machine."""
    async with bench.supervisor() as supervisor:
        starting = asyncio.create_task(supervisor.start_stage([bench.program("shard", FAKE_EXIT_CODE="1")]))
        await bench.until(lambda: len(bench.of(Died)) == 3)
        starting.cancel()

    died = [event for event in bench.events if isinstance(event, Died)]
    assert [event.delay_seconds for event in died[:3]] == [0.05, 0.1, 0.2]
    assert died[0].last_words == "groundplane: told to end"


async def test_a_program_that_never_gets_ready_is_given_up(bench):
    """A missing library is reported after seconds, with the program's own words, not after the whole time limit."""
    async with bench.supervisor() as supervisor:
        with pytest.raises(Unavailable, match="shard ended 5 times before it was ready: groundplane: told to end"):
            await supervisor.start_stage([bench.program("shard", FAKE_EXIT_CODE="1")])

    assert len(bench.of(Died)) == 4


async def test_a_program_that_cannot_be_started_again_at_once_is_tried_until_it_can(bench):
    """A full disk or no memory for a moment must not leave a corpus without its shard for ever, and nobody told."""
    log = bench.data.log_of("shard")
    async with bench.supervisor() as supervisor:
        await supervisor.start_stage([bench.program("shard")])
        log.unlink()
        log.mkdir()
        os.kill(supervisor.pid_of("shard"), signal.SIGKILL)
        await bench.until(lambda: len(bench.of(Died)) == 2)
        log.rmdir()
        await bench.until(lambda: len(bench.of(Ready)) == 2)

    died = [event for event in bench.events if isinstance(event, Died)]
    assert died[1].last_words == "cannot be started: Is a directory"


async def test_a_start_that_the_system_refuses_is_given_up_with_its_words(bench):
    """A log directory that cannot be written is the user's to mend; a traceback does not say so."""
    bench.data.log_of("shard").mkdir()
    async with bench.supervisor() as supervisor:
        with pytest.raises(Unavailable, match=r"shard ended 5 times .* cannot be started: Is a directory"):
            await supervisor.start_stage([bench.program("shard")])


async def test_refused_settings_end_the_start_with_the_programs_own_words(bench):
    """No restart mends a wrong setting, and the user has to read which one."""
    async with bench.supervisor() as supervisor:
        with pytest.raises(Unavailable, match="shard refuses its settings: told to end"):
            await supervisor.start_stage([bench.program("shard", FAKE_EXIT_CODE="2")])

    assert bench.of(Died) == []


async def test_a_start_that_takes_too_long_names_what_it_waited_for(bench, tmp_path):
    """ "Timeout" alone helps nobody."""
    (tmp_path / "answer").write_text("restoring")
    patience = Patience(start_seconds=1, remind_seconds=0.2, poll_seconds=0.02)
    async with bench.supervisor(patience) as supervisor:
        with pytest.raises(Unavailable, match="slow last answered: restoring") as caught:
            await supervisor.start_stage(
                [bench.program("quick"), bench.program("slow", FAKE_ANSWER=str(tmp_path / "answer"))]
            )

    assert "not ready after 1 s: slow\n" in caught.value.message
    assert "slow" in bench.of(Waiting)


async def test_a_program_that_will_not_stop_is_killed(bench):
    """Ctrl-C ends everything within the grace time."""
    patience = Patience(poll_seconds=0.02, grace_seconds=0.2)
    async with bench.supervisor(patience) as supervisor:
        await supervisor.start_stage([bench.program("shard", FAKE_STUBBORN="1")])
        pid = supervisor.pid_of("shard")

    assert bench.of(Killed) == ["shard"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_superseded_shard_is_replaced(bench, tmp_path):
    """It never serves again by itself, so the corpus would stay unavailable."""
    answer = tmp_path / "answer"
    answer.write_text("ok")
    async with bench.supervisor() as supervisor:
        await supervisor.start_stage([bench.program("shard", FAKE_ANSWER=str(answer))])
        answer.write_text("superseded")
        await bench.until(lambda: bench.of(Replaced) == ["shard"])
        answer.write_text("ok")
        await bench.until(lambda: len(bench.of(Ready)) == 2)


PARENT = """
import asyncio, os, sys
from pathlib import Path
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import Program
from groundplane.local.supervisor import Supervisor
from groundplane.process.clock import SystemClock

async def main(root, port, journal):
    own = {"GROUNDPLANE_PORT": port, "FAKE_NAME": "shard", "FAKE_JOURNAL": journal}
    program = Program(name="shard", module="fake_program", url=f"http://127.0.0.1:{port}", environment=own)
    data = DataDirectory(Path(root))
    data.prepare()
    async with Supervisor(data, os.environ, lambda event: None, SystemClock()) as supervisor:
        await supervisor.start_stage([program])
        print(supervisor.pid_of("shard"), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def test_children_end_when_their_parent_is_killed(tmp_path):
    """A killed `up` must leave nothing that holds ports and corpora."""
    (port,) = free_ports(1)
    arguments = [sys.executable, "-c", PARENT, str(tmp_path / "data"), str(port), str(tmp_path / "journal")]
    environment = {**os.environ, "PYTHONPATH": PATH_WITH_FAKES}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    with os.fdopen(child) as ended:
        assert select.select([ended], [], [], 10)[0]
