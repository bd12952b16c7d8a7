"""Opening files beneath a directory without ever leaving it.

A name is resolved by the kernel as one step (openat2, Linux 5.6) or, where that call is missing or forbidden, component
by component. Both refuse links of every kind, absolute names and `..`, so that a directory swapped for a link between
two calls ends in an error and not outside. The result is a descriptor: nothing here is ever opened twice by name.

Raised: OSError only. `is_absence` tells "nothing of ours stands there" from "it could not be read".
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from typing import Any, Final

OpenBeneath = Callable[[int, str, int], int]
"""(directory descriptor, relative name, open flags) -> new descriptor, close-on-exec."""

_OPENAT2: Final = 437  # the number is the same on every architecture: the call is younger than their common table
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08  # RESOLVE_* of <linux/openat2.h>
_CLOSED: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
_ABSENCE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENXIO, errno.ENODEV})


class _OpenHow(ctypes.Structure):
    """`struct open_how` of <linux/openat2.h>."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def choose_open(directory: int) -> OpenBeneath:
    """Return the strictest way of opening that this kernel and its filters allow; `directory` is only tried."""
    opened = try_openat2()
    if opened is None:
        return open_by_component
    try:
        os.close(opened(directory, ".", os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EPERM, errno.EINVAL}:  # old kernel; container filter; emulation
            return open_by_component
        raise
    return opened


def try_openat2() -> OpenBeneath | None:
    """Return an opener that calls openat2, None where the C library offers no way to call it."""
    try:
        syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long

    def open_by_openat2(directory: int, name: str, flags: int) -> int:
        how = _OpenHow(flags | _CLOSED, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
        size = ctypes.c_size_t(ctypes.sizeof(how))
        opened = syscall(_OPENAT2, ctypes.c_int(directory), os.fsencode(name), ctypes.byref(how), size)
        if opened < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), name)
        return int(opened)

    return open_by_openat2


def open_by_component(directory: int, name: str, flags: int) -> int:
    """Open `name` one component after another, each without following a link."""
    *parents, last = _components(name)
    current = directory
    try:
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | _CLOSED, dir_fd=current)
            if current != directory:
                os.close(current)
            current = inner
        return os.open(last, flags | _CLOSED, dir_fd=current)
    finally:
        if current != directory:
            os.close(current)


def open_directory(opened: OpenBeneath, directory: int, name: str) -> int:
    """Return a descriptor of the directory `name` in `directory`."""
    return opened(directory, name, os.O_RDONLY | os.O_DIRECTORY)


def open_regular_file(opened: OpenBeneath, directory: int, name: str) -> int:
    """Return a descriptor of the regular file `name`; never waits, whatever has come to stand there.

    A FIFO without a writer, or a file under a lease, would block a plain open for ever.
    """
    descriptor = opened(directory, name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENODEV, "not a regular file", name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_absence(error: OSError) -> bool:
    """Say whether `error` means that no file of ours has this name: gone, a link, or not a regular file."""
    return error.errno in _ABSENCE


def _components(name: str) -> list[str]:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, "leads out of the directory", name)
    return [part for part in parts if part not in {"", "."}] or ["."]
