"""Callers by the API server's word: its doubts are refusals, its absence is never one."""

import base64
import json

import msgspec
import pytest

from groundplane.errors import Denied, Unavailable
from groundplane_router.kubernetes.objects import ReviewedUser, TokenReviewStatus
from groundplane_router.kubernetes.token_review import TokenReviewVerifier, reviewed_subject

AGENT = "system:serviceaccount:agents:acme-agent"


def token(signature="c2lnbmF0dXJl", **claims):
    """A token as the cluster signs them; here the API server's word is what counts."""
    body = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["groundplane"],
        "exp": 1_900_000_000,
        "sub": AGENT,
    } | claims
    body = {name: value for name, value in body.items() if value is not None}
    parts = [json.dumps({"alg": "RS256", "kid": "k"}).encode(), json.dumps(body).encode()]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), signature])


@pytest.fixture
def verifier(server, api):
    server.review = lambda token: AGENT
    return TokenReviewVerifier(api)


async def test_a_service_account_is_named(server, verifier):
    """By namespace and name, as TenantCorpora grant access."""
    caller = await verifier.verify(token())

    assert (caller.subject, caller.expires_at) == (AGENT, 1_900_000_000)
    assert server.reviewed == [token()]


@pytest.mark.parametrize("audiences", [None, [], ["https://kubernetes.default.svc"], ["groundplane-other"]])
async def test_an_answer_without_our_audience_is_a_refusal(server, verifier, audiences):
    """An API server that knows no audiences vouches for every token, also one meant for another service."""
    server.audiences = audiences
    with pytest.raises(Denied):
        await verifier.verify(token())


async def test_an_answer_that_does_not_vouch_is_a_refusal(server, verifier):
    """Expired, revoked, of a deleted account or pod: the API server knows."""
    server.review = lambda token: None
    with pytest.raises(Denied):
        await verifier.verify(token())


VOUCHED = TokenReviewStatus(authenticated=True, user=ReviewedUser(username=AGENT), audiences=("groundplane",))


@pytest.mark.parametrize(
    "doubt",
    [
        pytest.param({"authenticated": False}, id="not-authenticated"),
        pytest.param({"error": "token expired"}, id="with-an-error"),
        pytest.param({"audiences": None}, id="without-audiences"),
        pytest.param({"audiences": ("other",)}, id="for-another-audience"),
        pytest.param({"user": ReviewedUser()}, id="nobody"),
    ],
)
def test_each_doubt_alone_is_a_refusal(doubt):
    """An answer counts only if every part of it says yes."""
    assert reviewed_subject(VOUCHED) == AGENT
    with pytest.raises(Denied):
        reviewed_subject(msgspec.structs.replace(VOUCHED, **doubt))


@pytest.mark.parametrize(
    "username",
    [
        "", "system:anonymous", "system:node:n", "kubernetes-admin", "system:serviceaccount:agents",
        "system:serviceaccount:agents:", "system:serviceaccount:a:b:c", "system:serviceaccount:A:b",
        "x:system:serviceaccount:a:b", "system:serviceaccount:a:b\n",
    ],
)  # fmt: skip
async def test_only_service_accounts_are_callers(server, verifier, username):
    """A user whose name merely looks like a subject must not become one."""
    server.review = lambda token: username
    with pytest.raises(Denied):
        await verifier.verify(token())


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("opaque", id="opaque"),
        pytest.param("a.b", id="two-parts"),
        pytest.param("a.!.c", id="not-base64"),
        pytest.param(token(aud=None), id="no-audience"),
        pytest.param(token(aud=["https://kubernetes.default.svc"]), id="other-audience"),
        pytest.param(token(aud="groundplane-other"), id="audience-that-begins-like-ours"),
        pytest.param(token(aud={"groundplane": 1}), id="odd-audience"),
        pytest.param(token(exp="soon"), id="odd-end"),
        pytest.param(token(aud="x", deep=json.loads("[" * 900 + "]" * 900)), id="deep"),
        pytest.param(f"{token()}\n", id="line-break"),
    ],
)
async def test_what_cannot_be_for_us_is_refused_without_asking(server, verifier, bad):
    """A flood of nonsense must not become one of API calls."""
    with pytest.raises(Denied):
        await verifier.verify(bad)

    assert server.reviewed == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 429, 500, 503])
async def test_an_api_server_that_does_not_answer_is_no_refusal(server, verifier, status):
    """401 would tell a good caller to throw its token away, also where it is the router that lacks a right."""
    server.status = status
    with pytest.raises(Unavailable) as failure:
        await verifier.verify(token())

    assert failure.value.detail == f"api_status_{status}"


async def test_an_api_server_that_is_away_is_no_refusal(server, verifier):
    """Callers come again."""
    await server.stop()
    with pytest.raises(Unavailable):
        await verifier.verify(token())


async def test_the_question_is_what_the_api_server_knows(server, api):
    """Group, version, kind, and our audience."""
    asked = []

    class Recorder:
        async def create(self, path, body, kind):
            asked.append((path, msgspec.json.decode(msgspec.json.encode(body))))
            return await api.create(path, body, kind)

    server.review = lambda token: AGENT
    await TokenReviewVerifier(Recorder()).verify(token())  # type: ignore[arg-type]  # what it calls of an ApiServer

    path, body = asked[0]
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
    assert body["spec"] == {"token": token(), "audiences": ["groundplane"]}
