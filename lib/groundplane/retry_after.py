"""When a server asks to be asked again."""

from typing import Final

_MAX_DIGITS: Final = 5
"""A day has 86,400 seconds; int() of thousands of digits takes time."""


def try_retry_after(header: str, *, most_seconds: float) -> int | None:
    """Return the seconds of a Retry-After header; None for none, a date, nonsense, or more than `most_seconds`.

    Source: RFC 9110, section 10.2.3. Dates are left out: they rest on two clocks.
    """
    if not header.isascii() or not header.isdigit() or len(header) > _MAX_DIGITS:
        return None
    seconds = int(header)
    return seconds if seconds <= most_seconds else None
