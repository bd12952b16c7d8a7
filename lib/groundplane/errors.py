"""The five kinds of failure, told apart by what the receiver does about them.

Kind and `code` are API and stay stable; the text is for people. Anything that is not a `GroundplaneError` is a bug.
Texts are lower case without a final stop: object, value found, value expected, next step. They never carry tokens,
keys, queries or document text.
"""


class GroundplaneError(Exception):
    """A failure with a stable `code`. Only its five kinds below are raised."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class InvalidInput(GroundplaneError):
    """The request, manifest or setting must be changed; repeating it unchanged fails again (HTTP 4xx).

    `field` is the path of the faulty part, such as `documents[3].id`. `status` is the HTTP status, 400 by default.
    """

    default_code = "invalid_input"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None, status: int = 400) -> None:
        super().__init__(message, code=code)
        self.field = field
        self.status = status


class Unavailable(GroundplaneError):
    """The thing cannot be done now; the same request may succeed later (HTTP 503 with Retry-After).

    `reason` is one of `groundplane.wire.Reason` where retrieval is what failed, `detail` an open code that says more.
    """

    default_code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.reason = reason
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds


class OutcomeUnknown(Unavailable):
    """A write may or may not have happened. Writes are idempotent: repeat the call as it is."""

    default_code = "outcome_unknown"


class Superseded(GroundplaneError):
    """A newer writer owns this incarnation: this process acknowledges nothing more and never contends again."""

    default_code = "superseded"


class CorruptData(GroundplaneError):
    """Stored bytes failed their check. Restore from an older snapshot; nothing is skipped."""

    default_code = "corrupt_data"


class Denied(GroundplaneError):
    """The caller may not do this. `status` 401: no valid token; 403: a valid one that grants nothing here."""

    default_code = "denied"

    def __init__(self, message: str, *, code: str | None = None, status: int = 401) -> None:
        super().__init__(message, code=code)
        self.status = status
