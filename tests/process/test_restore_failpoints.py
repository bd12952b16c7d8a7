"""A restore that dies at any step leaves the source as it was and nothing that could be taken for a corpus."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundplane.errors import GroundplaneError
from groundplane_shard import inspection
from groundplane_shard.log import Identity, Layout, Manifest
from groundplane_shard.log.cell import ManifestCell
from groundplane_shard.stores import LocalStore, run
from tests.shard.shard_parts import INCARNATION, LAYOUT
from tests.support.no_effects import NoEffects

pytestmark = pytest.mark.process

GOLDEN = Path(__file__).parents[1] / "shard" / "log" / "golden"
HALF = Layout(LAYOUT.corpus_key, "00000000-0000-4000-8000-00000000000b")
WHOLE = Layout(LAYOUT.corpus_key, "00000000-0000-4000-8000-00000000000c")
END = 7  # of the source's log


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """Give a store with a corpus in it: a snapshot at 3, records up to 7."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    opened = LocalStore(tmp_path / "store")
    yield opened
    opened.close()


def restore(root: Path, target: Layout, failpoint: str = "") -> int:
    """Run the restore of the corpus into `target` and return its exit code."""
    environment = {
        **os.environ,
        "GROUNDPLANE_CORPUS_KEY": target.corpus_key,
        "GROUNDPLANE_INCARNATION": target.incarnation,
        "GROUNDPLANE_STORE_DIRECTORY": str(root / "store"),
        "GROUNDPLANE_WORK_DIRECTORY": str(root / "work"),
        "GROUNDPLANE_TESTING": "1",
        "GROUNDPLANE_FAILPOINTS": failpoint,
    }
    command = [sys.executable, "-m", "groundplane_shard.tool", "restore", INCARNATION]
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode


async def manifest_of(store: LocalStore, layout: Layout) -> Manifest | None:
    """Return the MANIFEST of an incarnation; None if there is none."""
    cell = ManifestCell(Identity(layout=layout, owner=layout.incarnation, writer_id="test"))
    try:
        return await run(cell.refresh(), store, NoEffects())
    except GroundplaneError as error:
        if error.code != "no_manifest":
            raise
        return None


@pytest.mark.parametrize(
    "failpoint",
    [
        "snapshot_file_downloaded:5",
        "manifest_create_sent",
        "manifest_create_done",
        "upload_sent:3",
        "upload_done:3",
        "verify_done:3",
        "log_put_sent:2",
        "log_put_done:1",
        "barrier_sent",
        "barrier_done:2",
        "manifest_replace_sent",
        "manifest_replace_done",
    ],
)
async def test_a_restore_that_dies_leaves_no_half_corpus_that_could_be_opened(store, tmp_path, failpoint):
    """What was cut off is refused by everybody; the next restore, into another incarnation, has everything (I9)."""
    code = restore(tmp_path, HALF, failpoint)
    half = await manifest_of(store, HALF)
    is_complete = half is not None and not half.is_unfinished
    again = restore(tmp_path, WHOLE)
    whole = await manifest_of(store, WHOLE)
    faults = [
        await run(inspection.verify(layout), store, NoEffects()) for layout in (LAYOUT, WHOLE, *([HALF] * is_complete))
    ]

    assert (code, again) == (-signal.SIGKILL, 0)
    assert is_complete is (failpoint == "manifest_replace_done") or failpoint == "manifest_replace_sent"
    assert [found.faults for found in faults] == [()] * len(faults)
    assert whole is not None
    assert whole.restored_from is not None
    assert whole.restored_from.sequence == END
