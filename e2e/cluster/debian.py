"""Programs that come from Debian: those which are missing are installed, and it is said which."""

import os
import shutil
from collections.abc import Mapping

from e2e.cluster.steps import Command, StepFailed, run

LIMIT_SECONDS = 600.0
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # an ordinary user's PATH lacks sbin
APT = ("apt-get", "--quiet", "--yes", "--option", "DPkg::Lock::Timeout=120")


def missing_programs(packages: Mapping[str, str]) -> list[str]:
    """Return those programs that this machine lacks, sorted; the keys of `packages` are names or whole paths."""
    return sorted(program for program in packages if not shutil.which(program, path=SEARCH_PATH))


def require_programs(packages: Mapping[str, str]) -> None:
    """Install the Debian packages of the programs that this machine lacks; the usual case is that it lacks none.

    packages: program -> name of the Debian package that has it. Raises StepFailed where nothing can be installed, with
    the command that would do it.
    """
    missing = missing_programs(packages)
    if not missing:
        return
    wanted = sorted({packages[program] for program in missing})
    install = (*APT, "install", "--no-install-recommends", *wanted)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StepFailed(
            f"missing on this machine: {', '.join(missing)}; as root on Debian: apt-get update && {' '.join(install)}"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments, what in (
        ((*APT, "update"), "read Debian's package lists"),
        (install, f"install Debian's {', '.join(wanted)}, because this machine lacks {', '.join(missing)}"),
    ):
        run(
            Command(
                arguments=arguments, what=what, usual_seconds=10, limit_seconds=LIMIT_SECONDS, environment=environment
            )
        )
    still_missing = missing_programs(packages)
    if still_missing:
        raise StepFailed(f"{', '.join(wanted)} were installed and {', '.join(still_missing)} are still missing")
