"""Tokens and capabilities: one algorithm, one audience, one right, bound to the key that may grant it."""

import stat

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.errors import Denied, InvalidInput
from groundplane.tokens import (
    CAPABILITY_SECONDS,
    SigningKey,
    VerifyingKeys,
    capability_audience,
    load_public_key,
    verify_caller,
)
from groundplane.wire.names import CorpusKey, Incarnation

NOW = 1_700_000_000.0
LIFE = Incarnation("20000000-0000-4000-8000-000000000000")
OTHER_LIFE = Incarnation("30000000-0000-4000-8000-000000000000")
ACME = capability_audience(CorpusKey("t-acme"), LIFE)
ROUTER, OPERATOR, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()


def public(key):
    return key._key.public_key()


KEYS = VerifyingKeys({ROUTER.id: ("router", public(ROUTER)), OPERATOR.id: ("operator", public(OPERATOR))})


def signed(claims, *, key=ROUTER, algorithm="EdDSA", kid=None):
    secret = {"EdDSA": key._key, "HS256": "s" * 32, "none": ""}[algorithm]
    return jwt.encode(claims, secret, algorithm=algorithm, headers={"kid": kid or key.id})


def claims(**more):
    return {"aud": ACME, "right": "read", "iat": int(NOW), "exp": int(NOW) + 60} | more


@pytest.mark.parametrize(("key", "right"), [(ROUTER, "read"), (ROUTER, "write"), (OPERATOR, "operate")])
def test_a_capability_is_what_it_was_signed_as(key, right):
    """The way in for router and operator."""
    granted = KEYS.verify_capability(key.sign_capability(ACME, right, now=NOW), ACME, now=NOW)

    assert (granted.right, granted.key_id, granted.expires_at) == (right, key.id, NOW + CAPABILITY_SECONDS)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(signed(claims(right="operate")), id="router-grants-operate"),
        pytest.param(signed(claims(right="write"), key=OPERATOR), id="operator-grants-write"),
        pytest.param(signed(claims(right="admin")), id="unknown-right"),
        pytest.param(signed(claims(right=None)), id="no-right"),
        pytest.param(signed(claims(right=["read"])), id="right-of-another-type"),
        pytest.param(signed(claims(exp=int(NOW) + 3_600)), id="lives-too-long"),
        pytest.param(signed(claims(aud=capability_audience(CorpusKey("t-globex"), LIFE))), id="other-corpus"),
        pytest.param(signed(claims(aud=capability_audience(CorpusKey("t-acme"), OTHER_LIFE))), id="other-life"),
        pytest.param(signed(claims(aud=[ACME, "x"])), id="several-audiences"),
        pytest.param(signed(claims(), key=STRANGER), id="unknown-key"),
        pytest.param(signed(claims(), key=STRANGER, kid=ROUTER.id), id="foreign-key-under-a-known-id"),
        pytest.param(signed(claims(), algorithm="none"), id="algorithm-none"),
        pytest.param(signed(claims(), algorithm="HS256"), id="algorithm-mixed"),
        pytest.param(signed({"right": "read", "iat": NOW, "exp": NOW + 60}), id="no-audience"),
        pytest.param(signed({"aud": ACME, "right": "read", "iat": NOW}), id="no-end"),
        pytest.param(signed({"aud": ACME, "right": "read", "exp": NOW + 60}), id="no-beginning"),
        pytest.param(signed(claims(iat=int(NOW) + 30, exp=int(NOW) + 60)), id="from-the-future"),
        pytest.param(signed(claims(exp=float("nan"))), id="end-is-no-number"),
        pytest.param(signed(claims(exp=float("inf"))), id="endless"),
        pytest.param(signed(claims(exp=10**400)), id="end-beyond-every-float"),
        pytest.param(signed(claims(iat="yesterday")), id="beginning-is-no-number"),
        pytest.param(signed(claims(nbf=int(NOW) + 30)), id="not-yet-valid"),
        pytest.param("x" * 9_000, id="oversized"),
        pytest.param("", id="empty"),
        pytest.param("a.b.c", id="no-jwt"),
    ],
)
def test_every_other_capability_is_denied_with_one_text(token):
    """A shard is the last line: what the network let through must end here, and learn nothing."""
    with pytest.raises(Denied) as denied:
        KEYS.verify_capability(token, ACME, now=NOW)

    assert (str(denied.value), denied.value.code) == ("capability is not valid here", "capability_denied")


@pytest.mark.parametrize(("later", "valid"), [(59, True), (60, False), (-9, True), (-11, False), (-3_600, False)])
def test_a_capability_lives_a_minute_by_the_clock_it_is_given(later, valid):
    """The ambient clock plays no part: the verifier hands in its own."""
    token = ROUTER.sign_capability(ACME, "read", now=NOW)

    if valid:
        assert KEYS.verify_capability(token, ACME, now=NOW + later)
    else:
        with pytest.raises(Denied):
            KEYS.verify_capability(token, ACME, now=NOW + later)


def test_a_callers_token_round_trips():
    """Local mode's stand-in for a ServiceAccount token."""
    token = ROUTER.sign_caller("system:serviceaccount:a:b", now=NOW, seconds=600)
    caller = verify_caller(token, public(ROUTER), now=NOW + 599)

    assert (caller.subject, caller.expires_at) == ("system:serviceaccount:a:b", NOW + 600)


def test_a_capability_is_no_callers_token_and_the_other_way_round():
    """Each would open the other door if the audience were not checked."""
    with pytest.raises(Denied):
        verify_caller(ROUTER.sign_capability(ACME, "read", now=NOW), public(ROUTER), now=NOW)
    with pytest.raises(Denied):
        KEYS.verify_capability(ROUTER.sign_caller("s", now=NOW, seconds=60), ACME, now=NOW)


@given(st.text(max_size=300))
def test_no_text_is_a_token(text):
    """Whatever is sent, the answer is Denied and nothing else."""
    with pytest.raises(Denied):
        verify_caller(text, public(ROUTER), now=NOW)


@given(st.data())
def test_a_changed_token_is_denied(data):
    """Signature, header and claims hold together."""
    token = ROUTER.sign_caller("subject", now=NOW, seconds=60)
    place = data.draw(st.integers(0, len(token) - 2))  # the last character carries unused bits
    other = data.draw(st.sampled_from("abcXYZ019-_."))
    changed = token[:place] + other + token[place + 1 :]

    if changed != token:
        with pytest.raises(Denied):
            verify_caller(changed, public(ROUTER), now=NOW)


def test_a_key_is_made_once_and_private(tmp_path):
    """Made again, every token signed before would be worthless."""
    first = SigningKey.load_or_create(tmp_path / "key.pem")
    second = SigningKey.load_or_create(tmp_path / "key.pem")

    assert first.id == second.id
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


RSA_PUBLIC = b"""-----BEGIN PUBLIC KEY-----
MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf
9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==
-----END PUBLIC KEY-----
"""


@pytest.mark.parametrize("content", [b"", b"no pem", RSA_PUBLIC], ids=["empty", "not-pem", "other-kind"])
def test_a_file_that_is_no_key_is_named_and_not_quoted(tmp_path, content):
    """Whoever mounted the wrong file sees which one; its content stays out of the log."""
    path = tmp_path / "wrong.pem"
    path.write_bytes(content)

    for load in (SigningKey.load, load_public_key):
        with pytest.raises(InvalidInput, match=r"wrong\.pem") as fault:
            load(path)
        assert "BEGIN" not in fault.value.message


def test_a_key_directory_binds_each_key_to_its_role(tmp_path):
    """By the file's name: whoever may write there decides who may do what."""
    (tmp_path / f"router-{ROUTER.id}.pem").write_bytes(ROUTER.public_pem())
    (tmp_path / f"operator-{OPERATOR.id}.pem").write_bytes(OPERATOR.public_pem())
    (tmp_path / f"other-{STRANGER.id}.pem").write_bytes(STRANGER.public_pem())
    keys = VerifyingKeys.load(tmp_path)

    assert keys.ids == sorted([ROUTER.id, OPERATOR.id])
    with pytest.raises(Denied):
        keys.verify_capability(ROUTER.sign_capability(ACME, "operate", now=NOW), ACME, now=NOW)


def test_an_empty_key_directory_is_a_fault(tmp_path):
    """A shard without keys would refuse everybody, later and one by one."""
    with pytest.raises(InvalidInput, match="mount them"):
        VerifyingKeys.load(tmp_path)
