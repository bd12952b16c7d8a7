"""What one search may cost, and what it has cost so far."""

import os
from collections.abc import Callable

import msgspec


class GrepLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one search. Reaching one of the first four makes the answer incomplete, and it says so."""

    max_seconds: float = 2.0  # from the call, waiting for a free thread included; raise it for a corpus over 400 MB
    max_bytes: int = 256 << 20  # of file contents read
    max_entries: int = 100_000  # files, directories and all else that a listing shows
    max_depth: int = 32  # directories below the root; each level holds one descriptor
    max_line_bytes: int = 2_048  # a longer line is searched piece by piece, each like a line of its own
    max_excerpt_chars: int = 1_200  # context of one hit
    max_hits_per_file: int = 5  # so that one file cannot fill the answer
    block_bytes: int = 128 << 10  # read and searched at a time; what the event loop may have to wait for
    max_waiting: int = 16  # searches that run or wait; one more is refused
    threads: int = 1  # more only helps while files come from a slow disk


class Budget:
    """The running account of one search; used by one thread."""

    def __init__(self, limits: GrepLimits, is_late: Callable[[], bool]) -> None:
        self.limits = limits
        self.is_over = False
        self.files = 0
        self.binary_files = 0
        self.unreadable = 0
        self.bytes = 0
        self.entries_left = limits.max_entries
        self._is_late = is_late

    def spend_entry(self) -> bool:
        """Account for one directory entry; False when there was nothing left to spend."""
        if self.entries_left <= 0 or self._is_late():
            self.is_over = True
        self.entries_left -= 1
        return not self.is_over

    def read(self, descriptor: int) -> bytes:
        """Return the next block of a file; shorter than `block_bytes` only at its end or when the budget is over."""
        wanted = min(self.limits.block_bytes, self.limits.max_bytes - self.bytes)
        if wanted <= 0 or self._is_late():
            self.is_over = True
            return b""
        block = os.read(descriptor, wanted)
        self.bytes += len(block)
        if len(block) == wanted < self.limits.block_bytes:  # the file may go on
            self.is_over = True
        return block
