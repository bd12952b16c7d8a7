"""Who is calling, by the word of a real API server: real tokens, real TokenReviews, real published keys."""

import uuid

import pytest

from groundplane.errors import Denied, Unavailable
from groundplane.process.clock import SystemClock
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.jwks import JwksVerifier
from groundplane_router.kubernetes.token_review import TokenReviewVerifier
from tests.support.kubernetes_api import administrator
from tests.support.service_accounts import API_AUDIENCE, REVIEW_TOKENS, ServiceAccounts


@pytest.fixture(scope="module")
def admin(control_plane):
    with administrator(control_plane) as calls:
        yield calls


@pytest.fixture
def accounts(admin, control_plane):
    name = f"callers-{uuid.uuid4().hex[:12]}"
    admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    made = ServiceAccounts(admin, control_plane, name)
    made.create("agent")
    return made


@pytest.fixture
async def review(accounts, tmp_path):
    accounts.create("router", cluster_rules=[REVIEW_TOKENS])
    async with ApiServer(accounts.mount("router", tmp_path / "mounted"), SystemClock()) as api:
        yield TokenReviewVerifier(api)


@pytest.fixture
async def keys(accounts, tmp_path):
    accounts.create("reader")
    async with ApiServer(accounts.mount("reader", tmp_path / "reader"), SystemClock()) as api:
        yield JwksVerifier(api, SystemClock())


@pytest.fixture(params=["review", "keys"])
def verifier(request):
    return request.getfixturevalue(request.param)


async def test_a_projected_token_names_its_account(verifier, accounts):
    """What an agent's pod has mounted, and nothing else, is enough."""
    caller = await verifier.verify(accounts.token("agent", seconds=900))

    assert caller.subject == f"system:serviceaccount:{accounts.namespace}:agent"
    assert 800 < caller.expires_at - SystemClock().now() <= 900


@pytest.mark.parametrize("audience", [API_AUDIENCE, "groundplane-other"])
async def test_a_token_for_somebody_else_is_refused(verifier, accounts, audience):
    """Another service that was shown it could otherwise show it to us."""
    with pytest.raises(Denied):
        await verifier.verify(accounts.token("agent", audience))


async def test_a_changed_token_is_refused(verifier, accounts):
    """Whoever wrote it."""
    header, payload, signature = accounts.token("agent").split(".")
    other = accounts.token("router" if isinstance(verifier, TokenReviewVerifier) else "reader").split(".")[1]
    with pytest.raises(Denied):
        await verifier.verify(f"{header}.{other}.{signature}")
    with pytest.raises(Denied):
        await verifier.verify(f"{header}.{payload}.{signature[::-1]}")


async def test_a_token_of_a_deleted_account_is_refused(review, accounts):
    """Only the API server can tell: the signature is still good."""
    token = accounts.token("agent")
    accounts.delete("agent")
    with pytest.raises(Denied):
        await review.verify(token)


async def test_an_account_created_again_under_its_name_is_served_by_new_tokens_alone(review, accounts):
    """Its old tokens may be in other hands."""
    old = accounts.token("agent")
    accounts.delete("agent")
    accounts.create("agent")
    with pytest.raises(Denied):
        await review.verify(old)

    assert await review.verify(accounts.token("agent"))


async def test_a_router_that_may_not_review_refuses_nobody(accounts, tmp_path):
    """Its own missing right is no fault of the caller's."""
    accounts.create("powerless")
    async with ApiServer(accounts.mount("powerless", tmp_path / "mounted"), SystemClock()) as api:
        with pytest.raises(Unavailable) as failure:
            await TokenReviewVerifier(api).verify(accounts.token("agent"))

    assert failure.value.detail == "api_status_403"


async def test_a_router_whose_own_token_is_refused_refuses_nobody(accounts, tmp_path):
    """As it would be after the account of the router was created again."""
    accounts.create("gone", cluster_rules=[REVIEW_TOKENS])
    access = accounts.mount("gone", tmp_path / "mounted")
    accounts.delete("gone")
    async with ApiServer(access, SystemClock()) as api:
        with pytest.raises(Unavailable) as failure:
            await TokenReviewVerifier(api).verify(accounts.token("agent"))

    assert failure.value.detail == "api_status_401"
