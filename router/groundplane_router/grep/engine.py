"""The grep tier: keyword search in the files beneath one directory, beside the event loop, within bounds.

A hit says that words stand near each other in a file, nothing more. The directory is the same for every caller.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from groundplane.errors import InvalidInput
from groundplane_router.grep.beneath import OpenBeneath, choose_open
from groundplane_router.grep.budget import Budget, GrepLimits
from groundplane_router.grep.keywords import Keywords, parse_keywords
from groundplane_router.grep.ranking import Found, GrepHit
from groundplane_router.grep.scan import scan_file
from groundplane_router.grep.walk import OpenFile, walk

ROOT_SETTING = "FACE_DCI_CORPUS_DIR"
OVER_BUDGET = "grep_over_budget"  # the rest was not searched
ROOT_UNREADABLE = "grep_root_unreadable"  # nothing was searched
FILE_UNREADABLE = "grep_file_unreadable"  # some files or directories were not searched
BUSY = "grep_busy"  # nothing was searched: too many searches wait
NO_KEYWORDS = "grep_no_keywords"  # the question has only stop words: complete, there was nothing to search for

_ROOT_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class GrepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, best first, and whether it saw everything."""

    hits: tuple[GrepHit, ...] = ()
    complete: bool = True
    """False: something was not searched, so no hits do not mean that there are none."""
    detail: str | None = None
    """Why it is incomplete, or `grep_no_keywords`."""
    files: int = 0
    """Regular files opened, binary ones included."""
    bytes: int = 0
    """Read from them."""
    binary_files: int = 0
    """Passed over: a NUL byte near the beginning."""


class GrepEngine:
    """Searches the files beneath one directory. Made once, closed at the end."""

    def __init__(self, root: str, limits: GrepLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raise InvalidInput if `root` is not a directory that can be read now. `monotonic` returns seconds."""
        self._root = root
        self._limits = limits
        self._monotonic = monotonic
        self._open_beneath = try_root(root)
        self._executor = ThreadPoolExecutor(max_workers=limits.threads, thread_name_prefix="grep")
        self._waiting = 0

    async def search(self, query: str, k: int) -> GrepAnswer:
        """Return the best `k` places for the keywords of `query`. Never raises for what stands beneath the root.

        The result is deterministic while the files stay the same and the budget suffices. Cancelling stops the thread
        at its next block.
        """
        keywords = parse_keywords(query)
        if not keywords.items:
            return GrepAnswer(detail=NO_KEYWORDS)
        if self._waiting >= self._limits.max_waiting:
            return GrepAnswer(complete=False, detail=BUSY)
        stop = threading.Event()
        deadline = self._monotonic() + self._limits.max_seconds
        budget = Budget(self._limits, lambda: stop.is_set() or self._monotonic() >= deadline)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._search, keywords, k, budget)
        finally:
            self._waiting -= 1
            stop.set()

    def close(self) -> None:
        """Let go of the thread; a search that still runs ends by its own bounds."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _search(self, keywords: Keywords, k: int, budget: Budget) -> GrepAnswer:
        found = Found(keywords)
        try:
            root = os.open(self._root, _ROOT_FLAGS)  # every time: the directory may have been replaced since
        except OSError:
            return GrepAnswer(complete=False, detail=ROOT_UNREADABLE)
        try:
            for file in walk(self._open_beneath, root, budget):
                _search_file(file, found, keywords, budget)
        except OSError:  # the walk notes what fails below; only listing the root itself ends here
            return GrepAnswer(complete=False, detail=ROOT_UNREADABLE)
        finally:
            os.close(root)
        return _answer(found.best(k), budget)


def _search_file(file: OpenFile, found: Found, keywords: Keywords, budget: Budget) -> None:
    budget.files += 1
    try:
        found.add(file.path, scan_file(lambda: budget.read(file.descriptor), keywords, budget))
    except OSError:  # a bad disk, a file server that went away
        budget.unreadable += 1


def _answer(hits: tuple[GrepHit, ...], budget: Budget) -> GrepAnswer:
    detail = OVER_BUDGET if budget.is_over else FILE_UNREADABLE if budget.unreadable else None
    return GrepAnswer(
        hits=hits,
        complete=detail is None,
        detail=detail,
        files=budget.files,
        bytes=budget.bytes,
        binary_files=budget.binary_files,
    )


def try_root(root: str) -> OpenBeneath:
    """Return how files beneath `root` are opened here. Raises InvalidInput if it cannot be read."""
    try:
        directory = os.open(root, _ROOT_FLAGS)
        try:
            return choose_open(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise InvalidInput(
            f"{ROOT_SETTING}={root}: {error.strerror}: expected a directory that can be read; create it, or unset the "
            "variable to run without keyword search in files",
            field=ROOT_SETTING,
        ) from error
