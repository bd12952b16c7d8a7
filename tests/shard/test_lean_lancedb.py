"""A shard loads LanceDB without the part that talks to REST catalogues, and whoever else loads it gets all of it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

FIRST_LINES = """
import sys
from groundplane_shard.lean_lancedb import UNUSED, leave_out_catalogue_client
"""
LOADED = "print(sum(name.startswith(UNUSED) for name in sys.modules))"


def loaded(*lines: str) -> int:
    """Return how many modules of the client a fresh process has after `lines`."""
    program = "\n".join((FIRST_LINES, *lines, LOADED))
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_the_catalogue_client_is_left_out():
    """It is most of the time that loading LanceDB takes, at every start of every shard."""
    modules = loaded("leave_out_catalogue_client()", "leave_out_catalogue_client()", "import lancedb")

    assert 0 < modules < 20


def test_a_table_works_without_it():
    """What a shard does with LanceDB must not need what is left out."""
    program = (
        "leave_out_catalogue_client()",
        "import asyncio, tempfile",
        "from pathlib import Path",
        "from groundplane_shard.table import Table",
        "with tempfile.TemporaryDirectory() as directory:",
        "    table = asyncio.run(Table.create(Path(directory) / 'table', 8))",
        "    assert table.dimension == 8",
    )

    assert loaded(*program) < 20


def test_what_was_loaded_before_stays_whole():
    """A program that uses LanceDB for itself beside a shard's code must not lose half of it."""
    modules = loaded("import lancedb", "leave_out_catalogue_client()", "import lancedb.namespace")

    assert modules > 100
