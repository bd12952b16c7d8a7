"""Walking a tree by descriptors: what is listed is what is opened, even while somebody renames."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from groundplane_router.grep.beneath import OpenBeneath, is_absence, open_directory, open_regular_file
from groundplane_router.grep.budget import Budget


class OpenFile(NamedTuple):
    """A regular file beneath the root. `descriptor` is closed by the walk when it moves on."""

    path: str
    """Relative to the root, `/` between components; bytes that are not UTF-8 shown as U+FFFD."""
    descriptor: int


def walk(
    opened: OpenBeneath, directory: int, budget: Budget, *, prefix: str = "", depth: int = 0
) -> Iterator[OpenFile]:
    """Yield every regular file beneath `directory`, depth first, names in byte order, until the budget is spent.

    Links, FIFOs, sockets and devices are passed over and never opened. What cannot be read is noted in `budget`.
    Names that begin with a dot count: a mounted ConfigMap keeps its real files beneath such a directory.
    """
    for entry in _entries(directory, budget):
        if not budget.spend_entry():
            return
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk_inner(opened, directory, budget, entry.name, prefix, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield from _one_file(opened, directory, entry.name, prefix)
        except OSError as error:
            if not is_absence(error):
                budget.unreadable += 1


def _walk_inner(
    opened: OpenBeneath, directory: int, budget: Budget, name: str, prefix: str, depth: int
) -> Iterator[OpenFile]:
    if depth > budget.limits.max_depth:
        budget.is_over = True
        return
    inner = open_directory(opened, directory, name)
    try:
        yield from walk(opened, inner, budget, prefix=f"{prefix}{name}/", depth=depth)
    finally:
        os.close(inner)


def _one_file(opened: OpenBeneath, directory: int, name: str, prefix: str) -> Iterator[OpenFile]:
    descriptor = open_regular_file(opened, directory, name)
    try:
        yield OpenFile(os.fsencode(prefix + name).decode("utf-8", "replace"), descriptor)
    finally:
        os.close(descriptor)


def _entries(directory: int, budget: Budget) -> list[os.DirEntry[str]]:
    """Return the entries in byte order of their names: all of them, or one more than the budget has left."""
    with os.scandir(directory) as listing:
        found = list(islice(listing, budget.entries_left + 1))
    return sorted(found, key=lambda entry: os.fsencode(entry.name))
