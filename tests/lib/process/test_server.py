"""What every program does before and around its own work."""

import os
import stat
import subprocess
import sys

import pytest

from groundplane.errors import InvalidInput, Unavailable
from groundplane.process.server import listen, private_files, run_program

ENDLESS = """
import asyncio, contextlib, os, signal
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from starlette.applications import Starlette
from groundplane.process import server
from groundplane.process.logs import configure_logs

@contextlib.asynccontextmanager
async def lifespan(app):
    asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)
    yield
    await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), Event().wait)

configure_logs("info")
server.LONGEST_STOP_SECONDS = 0.5
server.serve(Starlette(lifespan=lifespan), host="127.0.0.1", port=0, max_connections=1)
"""


@pytest.fixture
def umask():
    kept = os.umask(0o022)
    yield
    os.umask(kept)


def refuse(_environment):
    raise InvalidInput("EXAMPLE_PORT=x: expected a number\nEXAMPLE_PATH is not set: a path")


def test_faulty_settings_end_with_two_and_every_line_of_the_fault(umask, capsys):
    """Whoever starts it by hand or by a chart sees all that is wrong, and a supervisor sees that waiting will not help."""
    with pytest.raises(SystemExit) as end:
        run_program(refuse)

    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "groundplane: EXAMPLE_PORT=x: expected a number",
        "EXAMPLE_PATH is not set: a path",
    ]


def test_a_program_gets_the_environment_and_private_files(umask, tmp_path):
    """Whatever a process writes is its user's alone, whatever the umask it was started with."""
    seen = []

    def start(environment):
        (tmp_path / "file").write_text("x")
        (tmp_path / "directory").mkdir()
        seen.append(environment["PATH"])

    run_program(start)

    assert seen == [os.environ["PATH"]]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "directory").stat().st_mode) == 0o700


def test_private_files_holds_for_what_asks_for_more(umask, tmp_path):
    """A library that opens with 0666 must not undo it."""
    private_files()
    os.close(os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY, 0o666))

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize("host", ["abc.invalid", "192.0.2.1", "", "a" * 300, "\udc00"])
def test_an_address_that_is_not_ours_is_named_with_its_settings(host):
    """ "Name or service not known" does not say which of thirty settings is wrong."""
    with pytest.raises(Unavailable, match=r"GROUNDPLANE_HOST=.* GROUNDPLANE_PORT=0: "):
        listen(host, 0)


def test_a_port_that_is_taken_is_named_with_its_settings():
    """As above; the exit code is not the one of faulty settings, since the other process may end."""
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Unavailable, match=f"GROUNDPLANE_PORT={port}: "):
            listen("127.0.0.1", port)


def test_a_stop_that_has_no_end_of_its_own_is_cut_off_and_says_so():
    """Else a program whose store is away would be killed without a word by whoever asked it to stop."""
    ended = subprocess.run([sys.executable, "-c", ENDLESS], check=False, capture_output=True, text=True, timeout=30)

    assert ended.returncode == 0, ended.stderr
    assert '"event":"stop_cut_off","seconds":0.5' in ended.stderr
