"""A program for tests of the supervisor: answers /readyz, and dies or stays as FAKE_* in its environment say.

It stands for router and shard: GROUNDPLANE_PORT is where it listens, and it writes one line to FAKE_JOURNAL when it
starts and one when it is asked to stop.
"""

import http.server
import os
import signal
import sys
from pathlib import Path
from types import FrameType


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer = Path(os.environ["FAKE_ANSWER"]).read_text() if "FAKE_ANSWER" in os.environ else "ok"
        self.send_response(200 if answer == "ok" else 503)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def main() -> None:
    """Serve until SIGTERM, or end at once with FAKE_EXIT_CODE."""
    _note("started")
    if "FAKE_EXIT_CODE" in os.environ:
        print("groundplane: told to end", file=sys.stderr)
        sys.exit(int(os.environ["FAKE_EXIT_CODE"]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "FAKE_STUBBORN" in os.environ else _stop)
    http.server.HTTPServer(("127.0.0.1", int(os.environ["GROUNDPLANE_PORT"])), _Handler).serve_forever()


def _stop(_number: int, _frame: FrameType | None) -> None:
    _note("stopped")
    sys.exit(0)


def _note(event: str) -> None:
    with Path(os.environ["FAKE_JOURNAL"]).open("a") as journal:
        journal.write(f"{os.environ['FAKE_NAME']} {event}\n")


if __name__ == "__main__":
    main()
