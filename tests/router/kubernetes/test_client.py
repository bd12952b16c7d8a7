"""One call, one whole answer in time; every failure says what it was, and none quotes a token."""

import base64
import ssl

import pytest

from groundplane.errors import Unavailable
from groundplane.process.clock import SystemClock
from groundplane_router.kubernetes.access import TOKEN_SECONDS, ApiAccess, Credentials
from groundplane_router.kubernetes.client import ApiServer
from groundplane_router.kubernetes.failures import ResourceExpired
from groundplane_router.kubernetes.lines import LineSplitter
from groundplane_router.kubernetes.objects import Discovery, ResourcePage
from tests.fakes.api_server import FakeApiServer
from tests.fakes.clock import ManualClock
from tests.support.corpora import resource

LIST = "/apis/groundplane.dev/v1alpha1/tenantcorpora"


async def test_an_answer_is_decoded(server, api):
    """Over TLS that the pod's CA vouches for, with the pod's token."""
    await server.apply(resource())
    page = await api.get(LIST, ResourcePage)

    assert [item.metadata.name for item in page.items] == ["acme"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503, 302])
async def test_every_other_status_is_a_failure_with_its_number(server, api, status):
    """Never an empty answer, and no redirect is followed."""
    server.status = status
    server.headers = {"Location": "/openid/v1/jwks", "Retry-After": "7"}
    with pytest.raises(Unavailable) as failure:
        await api.get(LIST, ResourcePage)

    assert failure.value.detail == f"api_status_{status}"
    assert failure.value.retry_after_seconds == 7
    assert "canary" not in failure.value.message
    assert len(server.seen) == 1


async def test_gone_is_told_apart(server, api):
    """It alone means: list again."""
    server.status = 410
    with pytest.raises(ResourceExpired):
        await api.get(LIST, ResourcePage)


async def test_a_server_that_is_away_is_unreachable(server, api):
    """Connections are refused."""
    await server.stop()
    with pytest.raises(Unavailable) as failure:
        await api.get(LIST, ResourcePage)

    assert failure.value.detail == "api_unreachable"


async def test_a_server_that_hangs_is_given_up(server, api, monkeypatch):
    """Nobody waits for ever."""
    monkeypatch.setattr("groundplane_router.kubernetes.client.ANSWER_SECONDS", 0.1)
    server.hangs = True
    with pytest.raises(Unavailable) as failure:
        await api.get(LIST, ResourcePage)

    assert failure.value.detail == "api_timeout"


async def test_a_silent_watch_is_given_up(server, api, monkeypatch):
    """One that its server does not end in time is dead: the best-known way for a directory to grow old."""
    monkeypatch.setattr("groundplane_router.kubernetes.client.GRACE_SECONDS", -0.9)
    with pytest.raises(Unavailable) as failure:
        async for _ in api.watch(LIST, "100", 1):
            pass

    assert failure.value.detail == "api_timeout"


async def test_an_answer_of_another_shape_is_a_bad_answer(api):
    """`{}` is not an empty list."""
    with pytest.raises(Unavailable) as failure:
        await api.get("/openid/v1/jwks", Discovery)

    assert failure.value.detail == "api_bad_answer"


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(server, api, monkeypatch):
    """Memory is bounded whatever the server sends."""
    monkeypatch.setattr("groundplane_router.kubernetes.client.MAX_ANSWER_BYTES", 256)
    await server.apply(resource())
    with pytest.raises(Unavailable) as failure:
        await api.get(LIST, ResourcePage)

    assert failure.value.detail == "api_bad_answer"


async def test_a_server_whose_certificate_another_ca_made_is_not_talked_to(server, tmp_path):
    """It would learn the router's token, and callers' tokens too."""
    other = tmp_path / "other"
    other.mkdir()
    foreign = FakeApiServer(other)
    access = ApiAccess(host="127.0.0.1", port=server.access.port, directory=foreign.directory)
    async with ApiServer(access, SystemClock()) as api:
        with pytest.raises(Unavailable) as failure:
            await api.get(LIST, ResourcePage)

    assert failure.value.detail == "api_unreachable"
    assert server.seen == []


async def test_a_rotated_token_is_taken_after_the_first_refusal(server, api):
    """The kubelet replaces it before its end; a revoked one must not stay in use for its last minute."""
    await api.get(LIST, ResourcePage)
    server.write_token("router-token-2")
    with pytest.raises(Unavailable):
        await api.get(LIST, ResourcePage)

    assert await api.get(LIST, ResourcePage)


def test_a_token_is_read_again_after_half_a_minute(tmp_path):
    """Long before the old one ends."""
    clock = ManualClock()
    credentials = Credentials(tmp_path, clock)
    (tmp_path / "token").write_text("one\n")
    first = credentials.authorization()
    (tmp_path / "token").write_text("two\n")
    still = credentials.authorization()
    clock.advance(TOKEN_SECONDS)

    assert (first, still, credentials.authorization()) == ("Bearer one", "Bearer one", "Bearer two")


@pytest.mark.parametrize("content", [None, b"", b"a\nb", b"\xff"], ids=["missing", "empty", "two-lines", "not-text"])
def test_a_token_that_cannot_be_used_is_a_failure(tmp_path, content):
    """Not an anonymous call, and no header that breaks into two."""
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(Unavailable) as failure:
        Credentials(tmp_path, ManualClock()).authorization()

    assert failure.value.detail == "api_credentials"


def test_a_replaced_ca_is_read_again(tmp_path):
    """Clusters rotate their CA while routers run."""
    FakeApiServer(tmp_path)
    credentials = Credentials(tmp_path, ManualClock())
    first = credentials.tls()
    assert credentials.tls() is first
    (tmp_path / "ca.crt").unlink()
    FakeApiServer(tmp_path)

    assert credentials.tls() is not first
    assert credentials.tls().verify_mode is ssl.CERT_REQUIRED


def test_a_ca_that_breaks_a_formality_is_trusted(tmp_path):
    """Python 3.13 refuses CAs without a key identifier by default, and many clusters have one; the signature still counts."""
    FakeApiServer(tmp_path)
    context = Credentials(tmp_path, ManualClock()).tls()

    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.check_hostname


@pytest.mark.parametrize("content", [None, b"", b"no certificate"], ids=["missing", "empty", "garbage"])
def test_a_ca_that_cannot_be_used_is_a_failure(tmp_path, content):
    """Never the machine's own CAs instead."""
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(Unavailable):
        Credentials(tmp_path, ManualClock()).tls()


def test_an_address_of_version_6_is_put_in_brackets(tmp_path):
    """As Kubernetes gives it to pods of such clusters."""
    assert ApiAccess(host="fd00::1", port=443, directory=tmp_path).url == "https://[fd00::1]:443"


async def test_calls_before_the_start_are_failures(server):
    """Not a bug that takes the router down."""
    with pytest.raises(Unavailable):
        await ApiServer(server.access, SystemClock()).get(LIST, ResourcePage)


async def test_an_abandoned_watch_is_closed(server, api, until):
    """Each open one costs the API server a connection and a goroutine."""
    watch = api.watch(LIST, "100", 60)
    assert await anext(watch) == []
    await until(lambda: server.watch_count == 1)
    await watch.aclose()

    await until(lambda: server.watch_count == 0)


async def test_a_watch_ends_in_order_when_its_time_is_over(server, api):
    """No failure: the next one goes on from there."""
    server.watch_seconds = 0.05

    assert [lines async for lines in api.watch(LIST, "100", 60)] == [[]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_put_together_from_any_pieces(size):
    """A network cuts where it likes."""
    text = b"one\ntwo\r\n\nthree" + base64.b64encode(b"x" * 30) + b"\nrest"
    splitter = LineSplitter(1_000)
    lines = [line for start in range(0, len(text), size) for line in splitter.feed(text[start : start + size])]

    assert lines == [line for line in text.split(b"\n")[:-1] if line]


@pytest.mark.parametrize(
    "pieces", [[b"x" * 11], [b"xxxxxx", b"xxxxxx"], [b"x" * 11 + b"\n"]], ids=["one", "two", "whole"]
)
def test_a_line_that_is_too_long_is_refused(pieces):
    """A server that never ends its line must not fill the router's memory."""
    splitter = LineSplitter(10)
    for piece in pieces[:-1]:
        splitter.feed(piece)

    with pytest.raises(Unavailable):
        splitter.feed(pieces[-1])
