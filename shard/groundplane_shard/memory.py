"""Giving memory back to the system after work that needed much of it for a moment.

Opening a table and flushing allocate several times what they keep. Neither Arrow's pool nor glibc returns that by
itself: measured at 10,000 chunks, 460 MB resident after opening, 265 MB once both were asked.
"""

import ctypes
import gc

import pyarrow as pa

_C = ctypes.CDLL(None)


def release_unused() -> None:
    """Return what is allocated but unused to the system. Takes some milliseconds: call it in a worker thread."""
    pa.default_memory_pool().release_unused()
    trim = getattr(_C, "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


def forget_loaded_modules() -> None:
    """Take what exists now out of the garbage collector's rounds: nearly all of it is modules that never go away.

    A full round over them holds the event loop for 70 to 160 ms, again and again while documents are written. What was
    taken out before and is garbage by now, such as the state of a writer that ended, is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
