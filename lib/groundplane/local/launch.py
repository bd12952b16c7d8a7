"""Starts a program in a child that does not outlive its parent: `python -m groundplane.local.launch PARENT MODULE`.

The kernel sends the child SIGTERM when its parent ends in whatever way, so that a killed `up` leaves nothing behind
that holds ports and corpora. It is set here, after exec, because code between fork and exec may not take locks.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Run the module of the command line as a program, unless the parent is already gone."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        return
    sys.argv[:] = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
