"""What can go wrong in a call, told apart by what the caller does about it.

| error | what to do |
| --- | --- |
| RequestRefused | change the request; repeating it unchanged fails again |
| NotAuthorised | get another token, or access |
| RetrievalUnavailable | say that the corpora could not be searched; never treat it as "nothing found" |
| WriteOutcomeUnknown | repeat the call as it is: writes are idempotent |
| ServiceUnreachable | try later, or another address; nothing was written |
"""

from groundplane.errors import GroundplaneError
from groundplane.wire.names import Reason
from groundplane.wire.public import DocumentResult


class ClientError(GroundplaneError):
    """A call that brought no answer. `status` is the HTTP status, None where there was no reply."""

    default_code = "client_error"

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status


class RequestRefused(ClientError):
    """The service will not do this (HTTP 4xx). `field` is the path of what must be changed, where one is to blame.

    `results` holds one result a document where a whole batch was refused (HTTP 422).
    """

    default_code = "request_refused"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        field: str | None = None,
        results: tuple[DocumentResult, ...] = (),
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.field = field
        self.results = results


class NotAuthorised(ClientError):
    """No valid token (`status` 401), or one that grants nothing of the kind (403)."""

    default_code = "not_authorised"


class RetrievalUnavailable(ClientError):
    """The corpora could not be searched, which is never the same as finding nothing. `detail` is an open code."""

    default_code = "retrieval_unavailable"

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None,
        detail: str | None = None,
        code: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.reason = reason
        self.detail = detail


class WriteOutcomeUnknown(ClientError):
    """The write may or may not have happened. Repeat the call as it is: a second time changes nothing more."""

    default_code = "outcome_unknown"


class ServiceUnreachable(ClientError):
    """Nobody answered, or the service takes no requests now. A write that ends so did not happen."""

    default_code = "service_unreachable"
