"""Locks between processes: whoever holds one is named, and nobody waits for one for ever."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.steps import wait_until


@contextmanager
def lock(path: Path, *, what: str, limit_seconds: float) -> Iterator[None]:
    """Hold a lock while the block runs; it ends with this process, however that ends.

    `what` completes "waiting until ..." and says who else may hold it. Raises StepFailed after `limit_seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:

        def is_ours() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_until(is_ours, what=what, limit_seconds=limit_seconds, explain=lambda: _holder(path))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _holder(path: Path) -> str:
    return f"process {path.read_text().strip() or 'of unknown number'} holds {path}"
