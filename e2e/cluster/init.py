"""The first process of a node: hides the machine's changing folders behind the node's own, then reaps orphans for ever.

It runs in new mount and process namespaces, as a file, with the standard library alone. When it is killed, the kernel
ends every process of the node and with the last of them every mount, whatever state they are in; that is why nothing
of a node can stay behind. Arguments: the folder for the node's files, then folders that must stay visible.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

# Where the kubelet, containerd, runc and CNI write at fixed places. These folders exist on any machine, so that none has to
# be made on it: /var/lib stands for /var/lib/kubelet and /var/lib/cni.
COVERED = ("/run", "/tmp", "/var/lib", "/var/log")


def main(files: Path, visible: list[Path]) -> NoReturn:
    """Prepare the mounts, then reap."""
    kept = {path: os.open(path, os.O_PATH) for path in visible}  # still reachable when something lies over them
    for place in COVERED:
        own = files / place.strip("/").replace("/", "-")
        own.mkdir(parents=True, exist_ok=True)
        mount("--bind", str(own), place)
    Path("/run/lock").mkdir(exist_ok=True)
    for path, descriptor in kept.items():
        if any(path.is_relative_to(place) for place in COVERED):
            path.mkdir(parents=True, exist_ok=True)
            mount("--bind", f"/proc/self/fd/{descriptor}", str(path), descriptor=descriptor)
    mount("--make-rshared", "/")  # what the kubelet mounts for a pod has to appear in the pod
    Path(files / "prepared").touch()
    reap_for_ever()


def reap_for_ever() -> NoReturn:
    """Collect the processes whose parents have ended, as the first process of a namespace has to."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with suppress(ChildProcessError):  # there is none just now
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        signal.sigwait({signal.SIGCHLD})


def mount(*arguments: str, descriptor: int | None = None) -> None:
    """Call mount(8); it speaks for itself in the node's log if it fails."""
    subprocess.run(["mount", *arguments], check=True, pass_fds=() if descriptor is None else (descriptor,))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
