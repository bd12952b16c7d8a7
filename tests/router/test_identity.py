"""Who is calling comes from one verified token; what is wrong with a bad one is nobody's business."""

import json

import jwt
import pytest
from starlette.datastructures import Headers

from groundplane.errors import Denied
from groundplane.process.metrics import new_registry
from groundplane.tokens import CallerToken, SigningKey
from groundplane_router.directory import DirectoryFile
from groundplane_router.identity import Authenticator
from groundplane_router.metrics import RouterMetrics
from groundplane_router.token_checks import CACHE_SECONDS, TokenChecks
from tests.fakes.clock import ManualClock

ACME = {
    "key": "t-acme",
    "name": "acme",
    "tenant": "acme",
    "incarnation": "20000000-0000-4000-8000-000000000000",
    "endpoint": "http://shard:1",
    "state": "ready",
    "grants": [{"subject": {"namespace": "agents", "service_account": "acme-reader"}, "access": ["read"]}],
}
READER = "system:serviceaccount:agents:acme-reader"


class CountingVerifier:
    """Accepts `good-*` as the reader; counts how often it is asked."""

    def __init__(self, clock, seconds=600):
        self.calls = 0
        self.clock = clock
        self.seconds = seconds

    async def verify(self, token):
        self.calls += 1
        if not token.startswith("good"):
            raise Denied("x")
        return CallerToken(subject=READER, expires_at=self.clock.now() + self.seconds)


class Setup:
    def __init__(self, tmp_path):
        self.clock = ManualClock()
        self.path = tmp_path / "directory.json"
        self.write([ACME])
        self.directory = DirectoryFile(self.path, self.clock)
        self.directory.refresh()
        self.verifier = CountingVerifier(self.clock)
        self.checks = TokenChecks(self.verifier, self.clock, RouterMetrics(new_registry(), self.clock), max_waiting=64)
        self.authenticator = Authenticator(self.checks, self.directory)

    def write(self, corpora):
        self.path.write_text(json.dumps({"corpora": corpora}))

    async def identify(self, token="good", needed="read"):
        return await self.authenticator.identify(headers(f"Bearer {token}"), needed)


def headers(*authorization):
    return Headers(raw=[(b"authorization", value.encode()) for value in authorization])


@pytest.fixture
def setup(tmp_path):
    return Setup(tmp_path)


async def test_a_verified_subject_reaches_its_own_corpus(setup):
    """The one way in."""
    grants = await setup.identify()

    assert (grants.own.key, grants.scope, grants.platform) == ("t-acme", "tenant", None)


async def test_a_token_is_verified_once_a_minute(setup):
    """TokenReview costs a call to the API server; a revoked token must not live longer than a minute."""
    await setup.identify()
    setup.clock.advance(CACHE_SECONDS - 1)
    await setup.identify()
    assert setup.verifier.calls == 1

    setup.clock.advance(1)
    await setup.identify()
    assert setup.verifier.calls == 2


async def test_a_cached_token_ends_when_it_expires(setup):
    """A cache must not make a short-lived token live longer."""
    setup.verifier.seconds = 5
    await setup.identify()
    setup.clock.advance(5)

    await setup.identify()
    assert setup.verifier.calls == 2


async def test_a_refused_token_is_remembered_but_not_for_ever(setup):
    """A flood of one bad token costs one verification a minute; a token that becomes valid works a minute later."""
    for _ in range(3):
        with pytest.raises(Denied):
            await setup.identify("bad")
    assert setup.verifier.calls == 1

    setup.clock.advance(CACHE_SECONDS)
    with pytest.raises(Denied):
        await setup.identify("bad")
    assert setup.verifier.calls == 2


async def test_a_clock_that_jumps_back_makes_no_entry_immortal(setup):
    """No safety rule rests on the clock."""
    await setup.identify()
    setup.clock.wall -= 3_600

    await setup.identify()
    assert setup.verifier.calls == 2


async def test_a_flood_of_bad_tokens_does_not_push_out_good_ones(setup):
    """One attacker must not slow everybody else down."""
    await setup.identify()
    for number in range(5_000):
        with pytest.raises(Denied):
            await setup.identify(f"bad-{number}")
    calls = setup.verifier.calls

    await setup.identify()
    assert setup.verifier.calls == calls
    assert len(setup.checks._refused._entries) <= 4_096


async def test_a_withdrawn_grant_counts_at_the_next_request(setup):
    """The cache holds who somebody is, never what they may do."""
    await setup.identify()
    setup.write([ACME | {"grants": []}])
    setup.directory.refresh()

    with pytest.raises(Denied) as denied:
        await setup.identify()
    assert denied.value.status == 403


async def test_no_corpus_and_no_access_read_the_same(setup):
    """Whoever probes must not learn which subjects exist."""
    with pytest.raises(Denied) as no_access:
        await setup.identify(needed="write")
    setup.write([ACME | {"grants": []}])
    setup.directory.refresh()
    with pytest.raises(Denied) as no_corpus:
        await setup.identify()

    assert (str(no_access.value), no_access.value.code) == (str(no_corpus.value), no_corpus.value.code)


async def test_two_authorization_headers_are_refused_before_any_token_is_read(setup):
    """A proxy and a server that pick different ones disagree about who is calling."""
    with pytest.raises(Denied):
        await setup.authenticator.identify(headers("Bearer good", "Bearer good"), "read")

    assert setup.verifier.calls == 0


def forged(claims=None, *, algorithm="EdDSA", key=None, header=None, now=1_700_000_000):
    signer = key or SigningKey.generate()
    body = {"iss": "groundplane-local", "aud": "groundplane", "sub": READER, "iat": now, "exp": now + 60} | (
        claims or {}
    )
    secret = signer._key if algorithm == "EdDSA" else ("" if algorithm == "none" else "secret" * 8)
    return jwt.encode(body, secret, algorithm=algorithm, headers={"kid": signer.id} | (header or {}))


CALLER = SigningKey.generate()


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param(None, id="no-header"),
        pytest.param("", id="empty"),
        pytest.param("Bearer", id="no-token"),
        pytest.param("Bearer  ", id="blank-token"),
        pytest.param("Basic YTpi", id="other-scheme"),
        pytest.param("Bearer not-a-jwt", id="no-jwt"),
        pytest.param("Bearer " + "a" * 9_000, id="oversized"),
        pytest.param("Bearer " + forged(), id="foreign-key"),
        pytest.param("Bearer " + forged(header={"kid": CALLER.id}), id="foreign-key-under-our-id"),
        pytest.param("Bearer " + forged(header={"kid": "../../x", "jku": "http://evil/"}), id="key-reference"),
        pytest.param("Bearer " + forged(algorithm="none"), id="algorithm-none"),
        pytest.param("Bearer " + forged(algorithm="HS256", header={"kid": CALLER.id}), id="algorithm-mixed"),
        pytest.param("Bearer " + forged({"aud": "other"}, key=CALLER), id="other-audience"),
        pytest.param("Bearer " + forged({"aud": ["groundplane", "x"]}, key=CALLER), id="several-audiences"),
        pytest.param("Bearer " + forged({"iss": "other"}, key=CALLER), id="other-issuer"),
        pytest.param("Bearer " + forged({"exp": 1}, key=CALLER), id="expired"),
        pytest.param("Bearer " + forged({"nbf": 9_999_999_999, "exp": 99_999_999_999}, key=CALLER), id="not-yet"),
        pytest.param("Bearer " + forged({"sub": 7}, key=CALLER), id="odd-subject"),
        pytest.param("Bearer " + forged({"sub": ""}, key=CALLER), id="empty-subject"),
    ],
)
async def test_every_bad_token_gets_the_same_answer(installation, authorization):
    """Whoever tries keys must not learn which part was wrong."""
    sent = {} if authorization is None else {"Authorization": authorization}
    answer = await installation.http.post("/v1/evidence", json={"query": "x"}, headers=sent)
    expected = await installation.http.post("/v1/evidence", json={"query": "x"})

    assert answer.status_code == 401
    assert answer.json() == expected.json()
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert all(path != "/search" for shard in installation.shards.values() for path in shard.paths())


async def test_a_valid_token_without_a_corpus_is_forbidden(installation):
    """No tenant is a refusal, never the platform."""
    answer = await installation.evidence("x", "stranger")

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_reading_needs_no_more_and_writing_no_less_than_its_access(installation):
    """A reader that can write is a leak waiting for its first bug."""
    body = {"documents": [{"id": "a", "text": "b"}]}
    refused = [
        await installation.post("/v1/documents", body, "acme-reader"),
        await installation.http.delete("/v1/documents/a", headers=installation.headers("acme-reader")),
        await installation.http.delete("/v1/memos/a/b", headers=installation.headers("acme-reader")),
        await installation.http.put("/v1/memos/a/b", json={"response": 1}, headers=installation.headers("acme-reader")),
    ]
    allowed = [
        await installation.evidence("x", "acme-reader"),
        await installation.get("/v1/documents", "acme-reader"),
        await installation.get("/v1/corpus", "acme-reader"),
    ]

    assert [answer.status_code for answer in refused] == [403] * 4
    assert [answer.status_code for answer in allowed] == [200] * 3
