"""The whole router in a cluster: its directory and its callers come from the API server, whose loss disturbs nobody it knows."""

import base64
import json

import pytest

from groundplane.process.clock import SystemClock
from tests.fakes.cluster_router import NAMESPACE, ClusterRouter, corpus_status
from tests.support.corpora import condition

AUDIENCE = ["groundplane"]


def token_of(account, *, seconds=3_600):
    body = {"aud": AUDIENCE, "exp": SystemClock().now() + seconds, "sub": f"system:serviceaccount:agents:{account}"}
    parts = (json.dumps({"alg": "RS256"}), json.dumps(body))
    return ".".join([*(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), "c2ln"])


def reviewed(token):
    """Vouch for every account whose name does not begin with `bad`, as its token says."""
    payload = token.split(".")[1]
    subject = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"]
    return None if ":bad" in subject else subject


async def apply(server, running, name, **fields):
    status = corpus_status(name, running.shards[name], **fields)
    metadata = {"name": name, "namespace": NAMESPACE, "uid": status["incarnation"]}
    await server.apply({"metadata": metadata, "spec": {}, "status": status})


@pytest.fixture
async def router(server, tmp_path):
    server.review = reviewed
    directory = tmp_path / "router"
    directory.mkdir()
    async with ClusterRouter(directory, server.access) as running:
        for name in running.shards:
            await apply(server, running, name)
        await running.until(running.is_ready)
        yield running


async def test_a_service_account_is_answered_from_its_own_corpus_and_the_platforms(router):
    """Nothing but its own token: the promise of the whole installation."""
    answer = await router.ask(token_of("acme-agent"))

    assert answer.status_code == 200
    assert answer.json()["searched"]["tenant"]["ok"]
    assert answer.json()["searched"]["platform"]["ok"]
    assert "/search" not in router.shards["globex"].paths()


async def test_an_account_without_a_corpus_is_forbidden(router):
    """It is known, and nothing is declared for it."""
    answer = await router.ask(token_of("stranger"))

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("token", [token_of("bad-agent"), "x", "a.b.c"], ids=["not-vouched-for", "word", "no-token"])
async def test_every_other_token_gets_one_text(router, token):
    """Whoever tries tokens learns nothing."""
    answer, nobody = await router.ask(token), await router.http.post("/v1/evidence", json={"query": "x"})

    assert answer.status_code == 401
    assert answer.json() == nobody.json()


async def test_it_is_ready_only_after_the_first_list(server, tmp_path):
    """Before it, every caller would be refused."""
    server.status = 403
    directory = tmp_path / "router"
    directory.mkdir()
    async with ClusterRouter(directory, server.access) as running:
        answer = await running.http.get("/readyz")
        assert (answer.status_code, answer.json()["waits_for"]) == (503, "directory")
        server.status = None

        await running.until(running.is_ready)


async def test_a_caller_is_not_refused_before_the_first_list(server, tmp_path):
    """403 would mean that nothing is declared for it; nobody knows that yet."""
    server.review = reviewed
    server.hangs = True
    directory = tmp_path / "router"
    directory.mkdir()
    async with ClusterRouter(directory, server.access) as running:
        await running.until(lambda: _called(server))
        server.hangs = False
        answer = await running.ask(token_of("acme-agent"))

    assert (answer.status_code, answer.json()["code"]) == (503, "identity_unavailable")
    assert answer.json()["unavailable_detail"] == "directory_not_loaded"


async def _called(server):
    return bool(server.seen)


async def test_grounding_goes_on_without_the_api_server(server, router):
    """Known callers for a minute, unknown ones with 503 and never 401."""
    known = token_of("acme-agent")
    await router.ask(known)
    await server.stop()
    unknown = await router.ask(token_of("globex-agent"))

    assert (await router.ask(known)).status_code == 200
    assert (unknown.status_code, unknown.json()["code"]) == (503, "identity_unavailable")
    assert unknown.json()["unavailable_detail"] == "api_unreachable"
    assert int(unknown.headers["retry-after"]) >= 1
    assert await router.is_ready()


async def test_callers_are_known_again_when_the_api_server_is_back(server, router):
    """At once: not knowing is not remembered."""
    await server.stop()
    assert (await router.ask(token_of("acme-agent"))).status_code == 503
    await server.start()

    assert (await router.ask(token_of("acme-agent"))).status_code == 200


async def test_a_router_that_may_not_ask_is_no_reason_to_refuse_anybody(server, router):
    """A missing role is the operator's affair, not the caller's."""
    server.status = 403
    answer = await router.ask(token_of("acme-agent"))

    assert (answer.status_code, answer.json()["unavailable_detail"]) == (503, "api_status_403")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        pytest.param({"conditions": [condition("Suspended")]}, "corpus_suspended", id="suspended"),
        pytest.param({"conditions": [condition("Ready", "False")]}, "corpus_not_ready", id="not-ready"),
        pytest.param({"endpoint": None}, "no_endpoint", id="no-endpoint"),
    ],
)
async def test_a_corpus_that_cannot_be_searched_says_why(server, router, fields, detail):
    """503 with a reason, within two seconds of the operator's word."""
    await apply(server, router, "acme", **fields)
    token = token_of("acme-agent")

    async def is_told():
        answer = await router.ask(token)
        return answer.status_code == 503 and answer.json()["unavailable_detail"] == detail

    await router.until(is_told, seconds=2)
    assert (await router.ask(token)).json()["reason"] == "no_corpus"


async def test_a_corpus_that_is_being_deleted_is_no_longer_declared(server, router):
    """Its shard may be half gone; whatever it still answers is nobody's."""
    stored = server.objects[NAMESPACE, "acme"]
    stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await server.apply(stored)

    async def is_forbidden():
        return (await router.ask(token_of("acme-agent"))).status_code == 403

    await router.until(is_forbidden, seconds=2)


async def test_age_and_faults_of_the_directory_are_measured(server, router):
    """Whoever is on call sees that changes no longer arrive."""
    await apply(server, router, "globex", storageKey="?")

    async def is_counted():
        return await router.metric("grounding_directory_faults") == 1

    await router.until(is_counted)
    await server.stop()
    age = await router.metric("grounding_directory_age_seconds")

    async def has_grown():
        return await router.metric("grounding_directory_age_seconds") > age + 0.1

    await router.until(has_grown)
