"""Failures that carry more than a reason: the part of an answer that was reached before it failed."""

from groundplane.errors import InvalidInput, Unavailable
from groundplane.wire.public import DocumentResult, Searched
from groundplane_router.embedders.fit import UNAVAILABLE_CODE


class RetrievalUnavailable(Unavailable):
    """The corpora could not be searched; `searched` says how far each scope went (HTTP 503)."""

    default_code = UNAVAILABLE_CODE

    def __init__(self, failure: Unavailable, searched: Searched) -> None:
        super().__init__(
            failure.message,
            reason=failure.reason,
            detail=failure.detail,
            retry_after_seconds=failure.retry_after_seconds,
        )
        self.searched = searched


class AllDropped(InvalidInput):
    """Every document was dropped for its vectors' size: one fault of the configuration, not of the documents (HTTP 422)."""

    default_code = "dimension_mismatch"

    def __init__(self, message: str, detail: str | None, results: list[DocumentResult]) -> None:
        super().__init__(message, status=422)
        self.detail = detail
        self.results = results
