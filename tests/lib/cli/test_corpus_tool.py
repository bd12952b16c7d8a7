"""What the shard's tool says reaches the person who asked, whatever its size and however it ends."""

import pytest

from groundplane.cli import corpus_tool
from groundplane.cli.corpus_tool import ToolCall, run_tool
from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane.local.layout import DataDirectory
from groundplane.wire.names import CorpusKey, Incarnation

CALL = ToolCall(arguments=("log",), key=CorpusKey("t-acme"), incarnation=Incarnation("0" * 36))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a program in the tool's place; return what `run_tool` returned and the progress it reported."""

    def call(program):
        (tmp_path / "some_tool.py").write_text(f"import os, sys\n{program}\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(corpus_tool, "_MODULE", "some_tool")
        progress: list[str] = []
        return run_tool(CALL, DataDirectory(tmp_path / "data"), progress.append), progress

    return call


def test_a_long_answer_and_much_progress_do_not_wait_for_each_other(run):
    """The log of a large corpus is more than a pipe holds."""
    (found, code), progress = run(
        "for n in range(9): print('progress', n, file=sys.stderr)\n"
        "print('\"' + 'x' * 1_000_000 + '\"', flush=True)\n"
        "print('progress done', file=sys.stderr)"
    )

    assert (len(found), code) == (1_000_000, 0)
    assert progress == [*map(str, range(9)), "done"]


@pytest.mark.parametrize(
    ("program", "kind", "expected"),
    [
        pytest.param("sys.exit('no such corpus')", CorruptData, "no such corpus", id="failed"),
        pytest.param("print('bad', file=sys.stderr); sys.exit(2)", InvalidInput, "bad", id="usage"),
        pytest.param("import no_such_package", Unavailable, "pip install", id="not-installed"),
        pytest.param("os.kill(os.getpid(), 9)", CorruptData, "ended with exit code -9", id="killed"),
    ],
)
def test_a_tool_that_fails_is_an_error_of_its_kind(run, program, kind, expected):
    """A failure is never an empty answer."""
    with pytest.raises(kind, match=expected):
        run(program)


def test_the_tool_is_led_to_the_store_of_the_data_directory(run, tmp_path):
    """Reading another store would list another corpus, or none."""
    (found, _), _ = run("print('\"' + os.environ['GROUNDPLANE_STORE_DIRECTORY'] + '\"')")

    assert found == str(tmp_path / "data" / "store")
