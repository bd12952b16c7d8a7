"""The keys of a role, from answers of the shapes that clouds give, on a server of our own."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from groundplane.errors import InvalidInput, Unavailable
from groundplane_shard.stores.s3 import Credentials, S3Settings, credential_source

CLOUD = S3Settings(identity="cloud")
VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_REGION",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch):
    """Whatever machine the tests run on, it gives them no role."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@contextmanager
def answering(*bodies) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Give the URL of a server that answers with these bodies in turn, the last one again and again, and what it was asked."""
    asked, left = [], list(bodies)

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            asked.append((self.command, self.path, self.headers.get("Authorization", "")))
            body = (left.pop(0) if len(left) > 1 else left[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815 - named by the library

        def log_message(self, *_arguments):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def container_keys(name: str, minutes: float = 60) -> str:
    """Return what the credentials service of a container answers."""
    return json.dumps(
        {"AccessKeyId": f"A{name}", "SecretAccessKey": f"S{name}", "Token": f"T{name}", "Expiration": until(minutes)}
    )


def keys(name: str) -> Credentials:
    return Credentials(f"A{name}", f"S{name}", f"T{name}")


def web_identity_keys(name: str) -> str:
    """Return what a token service answers to AssumeRoleWithWebIdentity."""
    return f"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A{name}</AccessKeyId>
      <SecretAccessKey>S{name}</SecretAccessKey><SessionToken>T{name}</SessionToken>
      <Expiration>{until(60)}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
      <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>"""


def test_keys_of_a_container(monkeypatch):
    """Pods of a cluster in a cloud get their role this way."""
    with answering(container_keys("1")) as (url, asked):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/keys")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token")
        source = credential_source(CLOUD)
        before = source.at_hand()
        found = source.current()

        assert (before, found, source.at_hand()) == (None, keys("1"), keys("1"))
        assert asked == [("GET", "/keys", "pod-token")]


def test_keys_for_a_web_identity(monkeypatch, tmp_path):
    """A ServiceAccount's token is changed for keys of the bucket, also by a token service that is not the cloud's."""
    (tmp_path / "token").write_text("header.claims.signature")
    with answering(web_identity_keys("1")) as (url, asked):
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/corpora")
        source = credential_source(S3Settings(identity="cloud", identity_endpoint=url))

        assert source.current() == keys("1")
        question = parse_qs(urlsplit(asked[0][1]).query)
        assert question["WebIdentityToken"] == ["header.claims.signature"]
        assert question["Action"] == ["AssumeRoleWithWebIdentity"]
        assert question["RoleArn"] == ["arn:aws:iam::1:role/corpora"]


def test_keys_are_fetched_once_and_again_before_they_expire(monkeypatch):
    """A token service that is asked for every write would be the slowest part of it; an expired key is refused."""
    with answering(container_keys("1", minutes=0.1), container_keys("2")) as (url, asked):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/keys")
        source = credential_source(CLOUD)
        first = source.current()
        stale = source.at_hand()
        later = [source.current() for _ in range(5)]

        assert (first, stale, later) == (keys("1"), None, [keys("2")] * 5)
        assert len(asked) == 2


def test_refused_keys_are_fetched_again_whatever_their_time_says(monkeypatch):
    """A role that was taken back and given again has new keys at once."""
    with answering(container_keys("1"), container_keys("2")) as (url, _):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/keys")
        source = credential_source(CLOUD)
        refused = source.current()

        assert source.reload(refused)
        assert source.current() == keys("2")


@pytest.mark.parametrize("body", ["no json", "{}", '{"Code": "AssumeRoleUnauthorizedAccess", "Message": "no"}'])
def test_no_keys_are_told_as_refused_credentials(monkeypatch, body):
    """Whoever runs the shard has to give it a role; it goes on asking."""
    with answering(body) as (url, _):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/keys")

        with pytest.raises(Unavailable) as refusal:
            credential_source(CLOUD).current()
    assert refusal.value.code == "store_denied"


def test_a_role_beside_keys_is_a_fault_of_the_settings():
    """Nobody could say which of them is used."""
    with pytest.raises(InvalidInput, match="keep one of them"):
        credential_source(S3Settings(identity="cloud", access_key="a", secret_key="s"))
