"""Commands end, fail readably and never run for ever; waits say what they wait for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.processes import start_ticks
from e2e.cluster.steps import Command, StepFailed, last_lines, run, succeeds, wait_until


def shell(script: str, **options) -> Command:
    """Return a command that runs a shell script."""
    return Command(arguments=("sh", "-c", script), **options)


def test_a_command_gives_its_output_and_takes_its_input():
    """kubectl takes manifests on standard input, and its answer must not be mixed with its warnings."""
    assert run(shell("cat; echo a warning >&2", standard_input=b"manifest")) == "manifest"


def test_a_failed_command_is_told_with_the_last_lines_of_both_outputs():
    """The person sees why at once, without knowing where logs lie."""
    with pytest.raises(StepFailed, match=r"make it: sh -c .* ended with 3\n  \| out\n  \| err"):
        run(shell("echo out; echo err >&2; exit 3", what="make it"))


def test_a_program_that_does_not_exist_is_named():
    """The commonest failure on a new machine."""
    with pytest.raises(StepFailed, match="cannot start no-such-program: No such file or directory"):
        run(Command(arguments=("no-such-program",)))


def test_a_command_that_outlasts_its_limit_ends_with_its_children(tmp_path: Path):
    """A build that hangs must neither hang the run nor go on behind its back."""
    children = tmp_path / "child"
    with pytest.raises(StepFailed, match=r"was ended after 0 s\n  \| begun"):
        run(shell(f"sleep 60 & echo $! > {children}; echo begun; wait", limit_seconds=0.3))

    child = int(children.read_text())
    wait_until(lambda: start_ticks(child) is None, what="the child has ended", limit_seconds=5, explain=lambda: "no")


def test_success_is_told_without_an_exception():
    """Probes ask whether, not why."""
    assert (succeeds(shell("exit 0")), succeeds(shell("exit 1"))) == (True, False)


def test_a_wait_in_vain_says_for_what_and_why():
    """A time limit without a reason sends people to read the source."""
    with pytest.raises(StepFailed, match="waited 0 s in vain until the sun rises: it is night"):
        wait_until(lambda: False, what="the sun rises", limit_seconds=0, explain=lambda: "it is night")


def test_a_wait_ends_with_its_condition():
    """What is true already costs no time."""
    answers = iter([False, True])

    wait_until(lambda: next(answers), what="the second answer", limit_seconds=5, explain=lambda: "never")

    assert next(answers, "used up") == "used up"


def test_last_lines_leave_the_writers_offset_alone(tmp_path: Path):
    """The log of a running command is read while the command writes it through the same open file."""
    with (tmp_path / "log").open("w+b") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(100)))
        file.flush()
        before = os.lseek(file.fileno(), 0, os.SEEK_CUR)

        lines = last_lines(file).splitlines()

        assert (lines[0], lines[-1], len(lines)) == ("line 85", "line 99", 15)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == before


def test_a_program_that_is_asked_to_end_ends_what_it_runs(tmp_path: Path):
    """Continuous integration asks first; a build that goes on alone would be in the way of the next."""
    children = tmp_path / "child"
    program = f"""
from e2e.cluster.steps import Command, end_tidily_when_asked, run
end_tidily_when_asked()
run(Command(arguments=("sh", "-c", "echo $$ > {children}.new; mv {children}.new {children}; exec sleep 60")))
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3]) as asked:
        wait_until(children.exists, what="it runs something", limit_seconds=10, explain=lambda: "it does not")
        asked.terminate()

        assert asked.wait(10) == 143
    assert start_ticks(int(children.read_text())) is None
