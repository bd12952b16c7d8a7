"""Callers by the API server's word: `POST authentication.k8s.io/v1 tokenreviews`.

The API server knows what no key can tell: that the ServiceAccount, and the pod that a token is bound to, still exist. It is
asked for audience `groundplane`, and an answer without that audience is a refusal: an API server that knows no audiences would
otherwise vouch for every token of the cluster. A subject is named by namespace and name; of an account that was deleted and
created again under its name, the old tokens are no longer authenticated.

A token that does not even claim our audience is refused without asking. Errors: Denied (401); Unavailable for whatever keeps
the API server from answering, also that the router itself may not ask it (401, 403).
"""

from typing import Final

from groundplane.errors import Denied
from groundplane.tokens import AUDIENCE, CallerToken
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.objects import (
    TokenReviewAnswer,
    TokenReviewRequest,
    TokenReviewSpec,
    TokenReviewStatus,
)
from groundplane_router.kubernetes.service_accounts import claims_of, parse_subject

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenReviewVerifier:
    """Asks the API server about each token."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def verify(self, token: str) -> CallerToken:
        """Return the ServiceAccount that `token` names. Raises Denied, Unavailable."""
        claims = claims_of(token)
        question = TokenReviewRequest(spec=TokenReviewSpec(token=token, audiences=(AUDIENCE,)))
        answer = await self._api.create(PATH, question, TokenReviewAnswer)
        return CallerToken(subject=reviewed_subject(answer.status), expires_at=claims.exp)


def reviewed_subject(status: TokenReviewStatus) -> str:
    """Return the ServiceAccount that the API server vouches for. Raises Denied if it vouches for none, or not for us."""
    if not status.authenticated or status.error or AUDIENCE not in (status.audiences or ()):
        raise Denied("API server does not vouch for this token and audience groundplane")
    return parse_subject(status.user.username)
