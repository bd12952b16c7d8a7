"""Requests are signed as AWS documents it, so that a change of the package that signs is seen here first."""

from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from groundplane_shard.stores.s3 import Credentials
from groundplane_shard.stores.s3.requests import Request, sign

# The examples of the S3 API reference, "Authenticating requests: using the Authorization header".
EXAMPLE_KEYS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_TIME = datetime(2013, 5, 24, tzinfo=UTC)
EXAMPLE_HOST = "https://examplebucket.s3.amazonaws.com"


def signature(request, target, credentials=EXAMPLE_KEYS):
    """Return the signature of a request at the time of the examples."""
    headers = sign(request, urlsplit(EXAMPLE_HOST + target), "us-east-1", credentials, EXAMPLE_TIME)
    return headers["Authorization"].rpartition("Signature=")[2]


@pytest.mark.parametrize(
    ("request_", "target", "expected"),
    [
        pytest.param(
            Request(method="GET", headers=(("range", "bytes=0-9"),), wait_seconds=1.0),
            "/test.txt",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            id="get-object",
        ),
        pytest.param(
            Request(method="GET", wait_seconds=1.0),
            "/?max-keys=2&prefix=J",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            id="list-objects",
        ),
    ],
)
def test_signature_is_that_of_the_published_example(request_, target, expected):
    """The package's signing function is no documented API; if it changes, every store would refuse us."""
    assert signature(request_, target) == expected


def test_every_header_given_is_signed():
    """A condition that is not signed could be dropped on the way, and the write would be unconditional."""
    one = Request(method="PUT", headers=(("if-none-match", "*"),), wait_seconds=1.0)
    other = Request(method="PUT", headers=(("if-none-match", '"e"'),), wait_seconds=1.0)
    none = Request(method="PUT", wait_seconds=1.0)

    assert len({signature(request, "/k") for request in (one, other, none)}) == 3


def test_session_token_is_sent_and_signed():
    """Temporary credentials are refused without it."""
    request = Request(method="GET", wait_seconds=1.0)
    temporary = Credentials(EXAMPLE_KEYS.access_key, EXAMPLE_KEYS.secret_key, "token")
    headers = sign(request, urlsplit(f"{EXAMPLE_HOST}/k"), "us-east-1", temporary, EXAMPLE_TIME)

    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["Authorization"]
