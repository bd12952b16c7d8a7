"""What LanceDB raises for a full disk or broken files, turned into our own kinds of error.

LanceDB 0.40 raises RuntimeError or ValueError for nearly everything, so only the text tells. A text that is not known
here passes through unchanged and is a bug: a wrong query must not look like a broken disk.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from groundplane.errors import CorruptData, Unavailable

_DISK_FULL = re.compile(r"os error (28|122)\b|No space left|Disk quota exceeded")
_BROKEN_FILES = re.compile(
    r"^lance error: (Not found|LanceError\((IO|Index|Schema)\)|Encountered corrupt)"
    r"|^Table '\w+' was not found|\(invalid magic|panicked"
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise Unavailable (`disk_full`) or CorruptData in place of what LanceDB or the file system raised inside."""
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        text = str(error)
        if _DISK_FULL.search(text):
            raise Unavailable("no space is left for the table: free some or enlarge it", code="disk_full") from error
        if _BROKEN_FILES.search(text):
            raise CorruptData(f"files of the table are missing or broken: {text[:256]}; restore a snapshot") from error
        raise
