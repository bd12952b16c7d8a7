"""Store URLs: what they mean, and what is refused before anything starts."""

import pytest

from groundplane.errors import InvalidInput
from groundplane_shard.stores.s3 import (
    Credentials,
    FixedCredentials,
    S3Settings,
    S3Store,
    StoreLocation,
    parse_store_url,
)
from groundplane_shard.stores.s3.requests import base_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param(
            "s3://corpora",
            StoreLocation(endpoint="https://s3.us-east-1.amazonaws.com", bucket="corpora"),
            id="bucket-alone-is-aws",
        ),
        pytest.param(
            "s3://corpora/prod?region=eu-central-1",
            StoreLocation(
                endpoint="https://s3.eu-central-1.amazonaws.com",
                bucket="corpora",
                prefix="prod",
                region="eu-central-1",
            ),
            id="region",
        ),
        pytest.param(
            "s3://corpora/a/b/?endpoint=http://127.0.0.1:8333",
            StoreLocation(endpoint="http://127.0.0.1:8333", bucket="corpora", prefix="a/b"),
            id="endpoint-and-deep-prefix",
        ),
        pytest.param(
            "s3://corpora?endpoint=https%3A%2F%2Fminio.example%3A443%2F&addressing=virtual",
            StoreLocation(endpoint="https://minio.example", bucket="corpora", is_virtual_hosted=True),
            id="encoded-endpoint-default-port-virtual",
        ),
        pytest.param(
            "s3://corpora?endpoint=http://[::1]:9000",
            StoreLocation(endpoint="http://[::1]:9000", bucket="corpora"),
            id="ipv6",
        ),
    ],
)
def test_url_names_a_location(url, expected):
    """The one string that a user gives."""
    assert parse_store_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "corpora",
        "https://minio.example/corpora",
        "s3://",
        "s3:///prefix",
        "s3://UPPER",
        "s3://ab",
        "s3://corpora/../other",
        "s3://corpora/a//b",
        "s3://corpora/a b",
        "s3://corpora/.hidden",
        "s3://corpora#fragment",
        "s3://corpora?endpoint=ftp://host",
        "s3://corpora?endpoint=http://",
        "s3://corpora?endpoint=http://host/path",
        "s3://corpora?endpoint=http://host:99999",
        "s3://corpora?region=EU_1",
        "s3://corpora?addressing=both",
        "s3://corpora?unknown=1",
        "s3://corpora?region=a&region=b",
        "s3://[corpora",
    ],
)
def test_faulty_url_is_refused_with_the_form_that_is_expected(url):
    """A typing error must not end in somebody else's bucket, nor in a traceback."""
    with pytest.raises(InvalidInput, match="s3://BUCKET"):
        parse_store_url(url)


@pytest.mark.parametrize("url", ["s3://user:pa55word@corpora", "s3://corpora?endpoint=http://user:pa55word@host"])
def test_password_in_a_url_is_refused_and_not_shown(url):
    """A URL is seen in process lists and logs."""
    with pytest.raises(InvalidInput) as refusal:
        parse_store_url(url)
    assert "pa55word" not in str(refusal.value)


@pytest.mark.parametrize(
    ("addressing", "expected"),
    [("path", "http://host:9000/corpora/"), ("virtual", "http://corpora.host:9000/")],
)
def test_bucket_is_addressed_as_the_url_says(addressing, expected):
    """Some stores know buckets by the path only, some by the host name only."""
    location = parse_store_url(f"s3://corpora?endpoint=http://host:9000&addressing={addressing}")

    assert base_url(location).geturl() == expected


def test_ca_file_that_is_none_is_refused_before_anything_starts(tmp_path):
    """Falling back to other CAs would trust somebody whom nobody named."""
    location = parse_store_url("s3://corpora?endpoint=https://host")
    (tmp_path / "empty.pem").write_text("no certificate")
    for ca_file in (tmp_path / "none.pem", tmp_path / "empty.pem"):
        with pytest.raises(InvalidInput, match="GROUNDPLANE_S3_CA_FILE"):
            S3Store(location, S3Settings(ca_file=str(ca_file)), FixedCredentials(Credentials("a", "s")))
