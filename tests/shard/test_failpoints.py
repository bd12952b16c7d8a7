"""Failpoints: a test's process dies where it was told to, and no other process ever does."""

import os
import signal
import subprocess
import sys

import pytest

from groundplane.errors import InvalidInput
from groundplane_shard import failpoints

PROGRAM = """
import asyncio, os
from groundplane_shard.failpoints import Failpoint, arm, reach

async def main():
    for turn in range(3):
        reach(Failpoint.APPLIED)
        reach(Failpoint.LOG_PUT_SENT)
        print("passed", turn, flush=True)
        await asyncio.sleep(0)

arm(os.environ)
asyncio.run(main())
"""


def run_program(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("points", "passed"),
    [
        pytest.param("applied", 0, id="first-time"),
        pytest.param("applied:3", 2, id="third-time"),
        pytest.param("table_merged,applied:2", 1, id="one-of-two"),
        pytest.param("log_put_sent:2", 2, id="one-turn-later"),
    ],
)
def test_a_process_dies_where_it_was_told_to(points, passed):
    """By SIGKILL, in which nothing is tidied up."""
    finished = run_program(GROUNDPLANE_TESTING="1", GROUNDPLANE_FAILPOINTS=points)

    assert finished.returncode == -signal.SIGKILL
    assert len(finished.stdout.splitlines()) == passed


@pytest.mark.parametrize("testing", ["", "0", "true"])
def test_nothing_is_armed_outside_of_tests(testing):
    """A variable that was left over must not end a process in production, whatever it says."""
    finished = run_program(GROUNDPLANE_TESTING=testing, GROUNDPLANE_FAILPOINTS="applied,no_such_place")

    assert (finished.returncode, len(finished.stdout.splitlines())) == (0, 3)


@pytest.mark.parametrize("points", ["no_such_place", "applied:0", "applied:x", "applied,", "applied:-1"])
def test_a_place_that_does_not_exist_is_a_fault_of_the_settings(points):
    """A test with a typing error in it would pass."""
    with pytest.raises(InvalidInput, match="GROUNDPLANE_FAILPOINTS"):
        failpoints.arm({"GROUNDPLANE_TESTING": "1", "GROUNDPLANE_FAILPOINTS": points})
