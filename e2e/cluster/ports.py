"""Ports of 127.0.0.1 for a control plane that has no network of its own."""

import random
import socket
from contextlib import ExitStack, suppress

from e2e.cluster.state import Ports

RANGE = (12_000, 32_000)  # below those that Linux gives to connections, so that none is taken before it is used


def free_ports() -> Ports:
    """Return four different ports that nothing listens on now."""
    chosen: list[int] = []
    numbers = random.SystemRandom()
    with ExitStack() as held:
        while len(chosen) < len(Ports.__struct_fields__):
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", numbers.randrange(*RANGE)))
                chosen.append(probe.getsockname()[1])
    return Ports(**dict(zip(Ports.__struct_fields__, chosen, strict=True)))
