"""Builds that leave nothing behind: neither processes nor mounts, however they or we end."""

# Our end ends `unshare`, and its end everything in the process and mount namespaces that it made.
_CONTAINED = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def contained(*command: str) -> tuple[str, ...]:
    """Return the arguments that run `command` as root in namespaces of its own."""
    return (*_CONTAINED, *command)
