"""One `groundplane up` a data directory, held by a lock that the kernel releases with the process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groundplane.errors import InvalidInput


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a data directory. Raises InvalidInput at once if another process holds it or it cannot be made."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidInput(
                f"data directory {path.parent} is in use by another groundplane up: stop it, or choose another --data",
                code="data_directory_in_use",
            ) from error
        except OSError as error:
            raise _unusable(path, error) from error
        yield
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"lock file {path} cannot be held: {error.strerror}: mend that, or choose another --data",
        code="data_directory_unusable",
    )
