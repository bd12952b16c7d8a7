"""Free TCP ports of this machine."""

import socket
from contextlib import ExitStack

from groundplane.errors import InvalidInput

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nobody listens on now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def claim_port(port: int) -> int:
    """Return `port` if nobody listens there, any free one for 0. Raises InvalidInput."""
    if port == 0:
        return free_ports(1)[0]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise InvalidInput(
                f"port {port} cannot be used: {error.strerror}: choose another with --port, or --port 0 for any"
            ) from error
    return port
