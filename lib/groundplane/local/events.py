"""What the supervisor tells whoever watches it."""

from collections.abc import Callable

import msgspec


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of the program


class Started(_Event, frozen=True, kw_only=True):
    """A process was started and is not ready yet."""


class Ready(_Event, frozen=True, kw_only=True):
    """A process answers that it is ready, `seconds` after it was started."""

    url: str
    seconds: float


class Waiting(_Event, frozen=True, kw_only=True):
    """A process is not ready after `seconds`; `answer` is what its /readyz said last."""

    seconds: float
    answer: str


class Died(_Event, frozen=True, kw_only=True):
    """A process ended by itself (`exit_code` negative: by that signal) and is started again in `delay_seconds`."""

    exit_code: int
    delay_seconds: float
    last_words: str


class Replaced(_Event, frozen=True, kw_only=True):
    """A shard that a newer writer superseded is ended, to be started again as the newest."""


class Stopping(_Event, frozen=True, kw_only=True):
    """A process was asked to end."""


class Killed(_Event, frozen=True, kw_only=True):
    """A process did not end in time and was killed."""


Event = Started | Ready | Waiting | Died | Replaced | Stopping | Killed
Report = Callable[[Event], None]
