"""Running one application in one process: private files, one event loop, an orderly stop on SIGTERM and SIGINT."""

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from groundplane.errors import GroundplaneError, InvalidInput, Unavailable
from groundplane.process.connections import BoundedHttpProtocol
from groundplane.process.logs import Log

USAGE_EXIT_CODE = 2
KEEP_ALIVE_SECONDS = 60
DRAIN_SECONDS = 10
LONGEST_STOP_SECONDS = 18.0  # `groundplane up` kills after 20, Kubernetes after 30
ARENAS = 2
BACKLOG = 1_024

_M_ARENA_MAX = -8  # of glibc's malloc.h


def private_files() -> None:
    """Make everything this process creates readable by its own user alone."""
    os.umask(0o077)


def limit_arenas() -> None:
    """Let threads share two heaps, where the C library is glibc: one heap a thread keeps 30 MB and more that nobody uses.

    The variable MALLOC_ARENA_MAX would say the same, but only to whoever starts this process.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)


class _Server(uvicorn.Server):
    """Also sees to it that the process ends: what waits for a store that does not answer may have no end of its own."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, once, and bound how long that takes."""
        if not self.should_exit:
            watchdog = threading.Timer(LONGEST_STOP_SECONDS, _cut_off)
            watchdog.daemon = True
            watchdog.start()
        super().handle_exit(sig, frame)


def _cut_off() -> None:
    """End the process as it is. Nothing is lost by that: whatever was acknowledged is stored."""
    Log("server").warning("stop_cut_off", seconds=LONGEST_STOP_SECONDS)
    os._exit(0)


def serve(app: Starlette, *, host: str, port: int, max_connections: int) -> None:
    """Serve `app` until SIGTERM or SIGINT; requests under way get 10 s to end. Returns when all of it is over.

    The process ends 18 s after the signal, even if not all of it is over then.

    Raises Unavailable if nothing can listen there.
    """
    listener = listen(host, port)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        limit_concurrency=max_connections,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=BACKLOG,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)  # uvicorn raises the signal again once it has stopped in order
    server = _Server(config)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))
    if not server.started:
        raise SystemExit(1)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`, 0 being any. Raises Unavailable that names both settings.

    Not InvalidInput: a port may be free in a moment, and a name may resolve.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        cause = getattr(error, "strerror", None) or "is no host name"
        raise Unavailable(
            f"GROUNDPLANE_HOST={host[:128]} GROUNDPLANE_PORT={port}: {cause}: expected an address of this machine and a "
            "port that nobody uses",
            code="cannot_listen",
        ) from error


def _exit(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def run_program(start: Callable[[Mapping[str, str]], None]) -> None:
    """Run an entry point with the environment.

    A fault that is known before anything is served is printed without a traceback: exit code 2 for faulty settings, all
    of them at once, 1 for anything else.
    """
    private_files()
    try:
        start(os.environ)
    except GroundplaneError as error:
        print(f"groundplane: {error.message}", file=sys.stderr)  # noqa: T201 - the log may not be configured yet
        raise SystemExit(USAGE_EXIT_CODE if isinstance(error, InvalidInput) else 1) from error
