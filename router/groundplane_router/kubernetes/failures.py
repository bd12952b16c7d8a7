"""Why the API server did not answer as it should: one `detail` each, the same in logs and in answers to callers."""

from typing import Final

from groundplane.errors import Unavailable

BAD_ANSWER: Final = "api_bad_answer"
NOT_READABLE: Final = "api_credentials"


class ResourceExpired(Unavailable):
    """The version or page that was asked for is no longer kept (410): list again."""

    default_code = "resource_expired"

    def __init__(self) -> None:
        super().__init__("the version that was asked for is no longer kept", detail="api_status_410")


def timed_out() -> Unavailable:
    """Return the failure to answer in time."""
    return Unavailable("API server did not answer in time", detail="api_timeout")


def unreachable() -> Unavailable:
    """Return the failure to connect, or of a connection that broke."""
    return Unavailable("API server could not be reached", detail="api_unreachable")


def bad_answer(what: str) -> Unavailable:
    """Return the failure of an answer that cannot be used."""
    return Unavailable(f"API server answered {what}", detail=BAD_ANSWER)


def refused(status: int, reason: str, *, retry_after_seconds: int | None) -> Unavailable:
    """Return the failure that a status other than 2xx means."""
    message = f"API server answered {status} ({reason})"
    return Unavailable(message, detail=f"api_status_{status}", retry_after_seconds=retry_after_seconds)
