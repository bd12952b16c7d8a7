"""The command line as a user runs it: single commands, and a `groundplane up` with real shards and a real router."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
READY = "Ctrl-C stops"


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without what would reach the programs, and `variables`."""
    own = ("GROUNDPLANE_", "EMBEDDING_", "MODEL_EMBEDDING_", "FACE_DCI_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(own)}, **variables}


def command(*arguments: str) -> list[str]:
    """Return the command line of the installed `groundplane`."""
    return [sys.executable, "-c", "from groundplane.cli.main import main; main()", *arguments]


def groundplane(data: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run one command on this data directory and return exit code, stdout and stderr."""
    arguments = (*command(*arguments), "--data", str(data))
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, env=environment(**variables))
    return done.returncode, done.stdout, done.stderr


def answer(data: Path, *arguments: str, **variables: str) -> Any:
    """Run one command that succeeds, or says that retrieval is not available, and return its JSON."""
    code, out, err = groundplane(data, *arguments, "-o", "json", **variables)
    assert code in {0, 5}, err
    return msgspec.json.decode(out)


class Up:
    """A running `groundplane up`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def await_line(self, text: str) -> str:
        """Return the next line of its progress that holds `text`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"up ended before it said {text!r}: {''.join(self.lines)}")

    def children(self) -> list[int]:
        """Return the process ids of router and shards."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@contextmanager
def started_up(data: Path, *options: str, manifests: Sequence[Path] = (EXAMPLES,), **variables: str) -> Iterator[Up]:
    """Start `up` with `options` and kill it at the end of the block, if it runs still."""
    files = [part for path in manifests for part in ("-f", str(path))]
    arguments = command("up", *files, "--port", "0", "--data", str(data), *options)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment(**variables)) as process:
        try:
            yield Up(process)
        finally:
            process.kill()


@contextmanager
def running_up(data: Path, *options: str, manifests: Sequence[Path] = (EXAMPLES,), **variables: str) -> Iterator[Up]:
    """Run `up` until the block ends, then stop it with SIGINT and see that it ends well."""
    with started_up(data, *options, manifests=manifests, **variables) as up:
        up.await_line(READY)
        yield up
        children = up.children()
        up.process.send_signal(signal.SIGINT)
        assert up.process.stderr is not None
        up.process.stderr.read()
        assert up.process.wait(timeout=60) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
