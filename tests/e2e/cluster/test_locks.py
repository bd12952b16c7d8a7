"""Two runs do not fight over a cluster or a build."""

from pathlib import Path

import pytest

from e2e.cluster.locks import lock
from e2e.cluster.steps import StepFailed


def test_a_second_holder_is_told_who_is_first(tmp_path: Path):
    """The person can decide whether that process is to be waited for or ended."""
    path = tmp_path / "deeper" / "lock"
    with (
        lock(path, what="we may", limit_seconds=1),
        pytest.raises(StepFailed, match=r"in vain until the other lets go: process \d+ holds .*lock"),
        lock(path, what="the other lets go", limit_seconds=0),
    ):
        pass


def test_a_lock_is_free_after_its_block(tmp_path: Path):
    """A failure inside must not block the run that repairs it."""
    path = tmp_path / "lock"
    with pytest.raises(StepFailed, match="inside"), lock(path, what="we may", limit_seconds=0):
        raise StepFailed("inside")

    with lock(path, what="we may again", limit_seconds=0):
        pass
