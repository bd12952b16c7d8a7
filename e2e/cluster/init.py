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
    own = {Path(place): files / place.strip("/").replace("/", "-") for place in COVERED}
    for folder in own.values():
        folder.mkdir(parents=True, exist_ok=True)
    hidden = {path: path for path in visible if any(path.is_relative_to(place) for place in own)}
    # Opened before anything is covered: they are reached through these, whatever comes to lie over their paths.
    descriptors = {place: os.open(folder, os.O_PATH) for place, folder in (own | hidden).items()}
    for place, descriptor in descriptors.items():  # the covers first, then what has to be seen through them
        place.mkdir(parents=True, exist_ok=True)
        bind(descriptor, place)
    Path("/run/lock").mkdir(exist_ok=True)
    subprocess.run(["mount", "--make-rshared", "/"], check=True)  # what the kubelet mounts for a pod appears in the pod
    Path(files / "prepared").touch()
    reap_for_ever()


def bind(folder: int, place: Path) -> None:
    """Mount an open folder at `place`; mount(8) speaks for itself in the node's log if it fails."""
    # without --no-canonicalize it would look the folder up by its path, which may be covered by now
    command = ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{folder}", str(place)]
    subprocess.run(command, check=True, pass_fds=(folder,))


def reap_for_ever() -> NoReturn:
    """Collect the processes whose parents have ended, as the first process of a namespace has to."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with suppress(ChildProcessError):  # there is none just now
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
