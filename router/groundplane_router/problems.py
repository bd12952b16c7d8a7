"""The router's problem documents: those of every program, with what a failed search or a dropped batch adds."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundplane.process.http import ProblemHandler, problem_of, problem_response
from groundplane_router.failures import AllDropped, RetrievalUnavailable
from groundplane_router.request_log import note_of, note_problem

CLOSING_CODES = frozenset({"body_too_slow"})
"""After these the connection is not at the beginning of a request."""


class RouterProblems(ProblemHandler):
    """The exception handler of the router."""

    async def __call__(self, request: Request, error: Exception) -> Response:
        """Return the answer for `error`."""
        query_id = note_of(request).query_id
        self.log_bug(request, error, query_id=query_id)
        problem, headers = problem_of(error)
        match error:
            case RetrievalUnavailable():
                problem = msgspec.structs.replace(problem, searched=error.searched)
            case AllDropped():
                problem = msgspec.structs.replace(problem, unavailable_detail=error.detail, results=error.results)
            case _ if problem.status == 500:
                detail = f"an error of the server: its log has it as query {query_id}"
                problem = msgspec.structs.replace(problem, detail=detail)
            case _:
                pass
        note_problem(request, problem)
        if problem.code in CLOSING_CODES:
            headers["Connection"] = "close"
        return problem_response(problem, headers)
