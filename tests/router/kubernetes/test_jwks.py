"""Callers by the cluster's published keys: one algorithm a key, one issuer, our audience, and times that hold."""

import base64
import json
import warnings

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from groundplane.errors import Denied, Unavailable
from groundplane_router.kubernetes import jwks
from groundplane_router.kubernetes.jwks import JwksVerifier
from tests.fakes.clock import ManualClock

AGENT = "system:serviceaccount:agents:acme-agent"
NOW = 1_700_000_000
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
EC = ec.generate_private_key(ec.SECP256R1())
FOREIGN = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def published(key, kid, **more):
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid, "use": "sig"} | more


def signed(key=RSA, *, kid="rsa", algorithm="RS256", headers=None, **claims):
    body = {
        "iss": "https://kubernetes.default.svc.cluster.local", "aud": ["groundplane"], "sub": AGENT,
        "iat": NOW, "nbf": NOW, "exp": NOW + 3_600,
    } | claims  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, key, algorithm=algorithm, headers=({"kid": kid} if kid else {}) | (headers or {}))


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def verifier(server, api, clock):
    server.keys = [published(RSA, "rsa", alg="RS256"), published(EC, "ec", alg="ES256")]
    return JwksVerifier(api, clock)


@pytest.mark.parametrize(("key", "kid", "algorithm"), [(RSA, "rsa", "RS256"), (EC, "ec", "ES256")], ids=["rsa", "ec"])
async def test_a_token_of_the_cluster_is_accepted(verifier, key, kid, algorithm):
    """Both kinds of keys that clusters have."""
    caller = await verifier.verify(signed(key, kid=kid, algorithm=algorithm))

    assert (caller.subject, caller.expires_at) == (AGENT, NOW + 3_600)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(signed(FOREIGN), id="foreign-key-under-our-id"),
        pytest.param(signed(kid="none"), id="unknown-key"),
        pytest.param(signed(kid=None), id="no-key-id"),
        pytest.param(signed(EC, kid="rsa", algorithm="ES256"), id="algorithm-of-another-key"),
        pytest.param(signed(algorithm="RS512"), id="algorithm-not-on-the-list"),
        pytest.param(signed(RSA, algorithm="PS256"), id="padding-not-on-the-list"),
        pytest.param(signed("secret" * 8, algorithm="HS256"), id="secret-instead-of-key"),
        pytest.param(signed("", algorithm="none"), id="no-algorithm"),
        pytest.param(signed(headers={"jku": "https://192.0.2.1/keys"}, kid="theirs"), id="foreign-key-reference"),
        pytest.param(signed(iss="https://other"), id="other-issuer"),
        pytest.param(signed(iss=None), id="no-issuer"),
        pytest.param(signed(aud=["other"]), id="other-audience"),
        pytest.param(signed(exp=NOW), id="expired"),
        pytest.param(signed(exp=None), id="without-end"),
        pytest.param(signed(nbf=NOW + 60), id="not-yet"),
        pytest.param(signed(iat=NOW + 60), id="from-the-future"),
        pytest.param(signed(sub="system:node:n"), id="no-service-account"),
        pytest.param(signed(sub=None), id="nobody"),
        pytest.param("a.b.c", id="no-token"),
    ],
)
async def test_every_other_token_is_refused(verifier, token):
    """Whatever a header says, a key has one algorithm, and keys come from the cluster alone."""
    with pytest.raises(Denied):
        await verifier.verify(token)


async def test_a_changed_token_is_refused(verifier):
    """The signature covers every claim."""
    header, _, signature = signed().split(".")
    claims = {"iss": "x", "aud": "groundplane", "sub": AGENT, "iat": NOW, "exp": NOW + 9_999}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    with pytest.raises(Denied):
        await verifier.verify(f"{header}.{payload}.{signature}")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"kty": "oct", "kid": "rsa", "k": "c2VjcmV0"}, id="secret"),
        pytest.param(published(RSA, "rsa", alg="RS512"), id="other-algorithm"),
        pytest.param(published(RSA, "rsa", use="enc"), id="for-encryption"),
        pytest.param(published(ec.generate_private_key(ec.SECP384R1()), "rsa"), id="other-curve"),
        pytest.param(published(RSA, "rsa") | {"n": "AQAB"}, id="tiny"),
        pytest.param(published(RSA, ""), id="no-id"),
    ],
)
async def test_keys_of_other_kinds_verify_nothing(server, verifier, odd):
    """A published key that we do not understand must not make a token good, or hide the others."""
    server.keys = [odd, published(EC, "ec")]
    with pytest.raises(Denied):
        await verifier.verify(signed())

    assert await verifier.verify(signed(EC, kid="ec", algorithm="ES256"))


async def test_a_short_key_verifies_nothing(server, verifier):
    """Who can factor it can sign."""
    short = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    server.keys = [published(short, "short")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        token = signed(short, kid="short")
    with pytest.raises(Denied):
        await verifier.verify(token)


async def test_keys_are_read_once_for_many_tokens(server, verifier):
    """No call per token."""
    for _ in range(5):
        await verifier.verify(signed())

    assert server.calls("jwks") == 1


async def test_a_new_key_is_read_when_its_first_token_comes(server, verifier, clock):
    """Clusters rotate keys, and do not tell."""
    await verifier.verify(signed())
    server.keys = [published(FOREIGN, "new")]
    clock.advance(jwks.LEAST_PAUSE_SECONDS)

    assert await verifier.verify(signed(FOREIGN, kid="new"))


async def test_a_flood_of_unknown_keys_is_not_one_of_calls(server, verifier):
    """Anybody can invent a key id."""
    for number in range(20):
        with pytest.raises(Denied):
            await verifier.verify(signed(kid=f"invented-{number}"))

    assert server.calls("jwks") == 1


async def test_a_withdrawn_key_is_dropped(server, verifier, clock):
    """A key that leaked is good for five minutes more, not for ever."""
    await verifier.verify(signed())
    server.keys = [published(EC, "ec")]
    clock.advance(jwks.REFRESH_SECONDS)
    with pytest.raises(Denied):
        await verifier.verify(signed())


async def test_known_keys_outlive_the_api_server_for_an_hour(server, verifier, clock):
    """The loss of the control plane does not disturb who is running."""
    await verifier.verify(signed())
    await server.stop()
    clock.advance(jwks.KEEP_SECONDS - 1)
    assert await verifier.verify(signed(exp=NOW + 9_999))

    clock.advance(jwks.LEAST_PAUSE_SECONDS)
    with pytest.raises(Unavailable):
        await verifier.verify(signed(exp=NOW + 9_999))


async def test_an_unknown_key_is_no_refusal_while_the_api_server_is_away(server, verifier, clock):
    """It may be the new one."""
    await verifier.verify(signed())
    server.status = 500
    clock.advance(jwks.LEAST_PAUSE_SECONDS)
    with pytest.raises(Unavailable) as failure:
        await verifier.verify(signed(FOREIGN, kid="new"))

    assert failure.value.detail == "api_status_500"


async def test_without_keys_nobody_can_say(server, verifier, clock):
    """503 until the API server has answered once; then at once."""
    server.status = 503
    with pytest.raises(Unavailable):
        await verifier.verify(signed())
    server.status = None
    with pytest.raises(Unavailable):
        await verifier.verify(signed())
    clock.advance(jwks.LEAST_PAUSE_SECONDS)

    assert await verifier.verify(signed())
    assert server.calls("jwks") == 1


async def test_a_reading_that_hangs_is_given_up(server, verifier, monkeypatch):
    """Before the caller's check is."""
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.05)
    server.hangs = True
    with pytest.raises(Unavailable) as failure:
        await verifier.verify(signed())

    assert failure.value.detail == "api_timeout"


async def test_only_the_api_server_is_asked(server, verifier):
    """The address that its own discovery document names is not."""
    await verifier.verify(signed())

    assert [path for _, path, _ in server.seen] == ["/.well-known/openid-configuration", "/openid/v1/jwks"]
