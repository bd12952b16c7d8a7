"""Where a corpus lies: the spec says it, or the installation does, or nobody."""

import pytest

from groundplane.errors import InvalidInput
from groundplane_operator.store_location import NO_STORE_CODE, Bucket, Volume, default_bucket, resolve_store
from tests.operator.parts import BUCKET, IN_BUCKET, ON_VOLUME, resource_of

DEFAULT = Bucket(url="s3://shared", port=443, credentials_secret="keys")


def store_of(spec, default=None):
    return resolve_store(resource_of(spec).spec, default)


@pytest.mark.parametrize(
    ("changes", "url", "port"),
    [
        pytest.param({}, "s3://corpora/prod?endpoint=http://minio.storage.svc:9000", 9000, id="server-of-ones-own"),
        pytest.param({"endpoint": None}, "s3://corpora/prod", 443, id="aws"),
        pytest.param({"endpoint": "http://minio"}, "s3://corpora/prod?endpoint=http://minio", 80, id="plain"),
        pytest.param({"endpoint": "https://minio/"}, "s3://corpora/prod?endpoint=https://minio", 443, id="slash"),
        pytest.param(
            {"endpoint": "https://s3.eu-west-1.amazonaws.com"},
            "s3://corpora/prod?endpoint=https://s3.eu-west-1.amazonaws.com&region=eu-west-1",
            443,
            id="aws-region",
        ),
    ],
)
def test_a_bucket_is_given_to_the_shard_as_one_url(changes, url, port):
    """The policy opens the port of that URL, and signatures carry its region."""
    spec = {key: value for key, value in {**BUCKET, **changes}.items() if value is not None}
    store = store_of({"tenant": "acme", "objectStore": spec})

    assert store == Bucket(url=url, port=port, credentials_secret="bucket-keys")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        pytest.param({"credentialsSecret": None}, "credentialsSecret", id="no-keys"),
        pytest.param({"prefix": "a/b/c/d/e/f/g/h/i"}, "9 segments", id="deep"),
        pytest.param({"endpoint": "http://minio/x"}, "path /x", id="path"),
        pytest.param({"endpoint": "http://minio:99999"}, "1 to 65535", id="port"),
    ],
)
def test_what_the_shard_could_not_use_is_refused_in_the_spec(changes, word):
    """A pod that ends at once tells less than a condition."""
    spec = {key: value for key, value in {**BUCKET, **changes}.items() if value is not None}
    with pytest.raises(InvalidInput) as refusal:
        store_of({"tenant": "acme", "objectStore": spec})

    assert word in refusal.value.message


def test_the_spec_decides_before_the_installation():
    """A default is for those that name nothing."""
    assert store_of({"tenant": "acme"}, DEFAULT) == DEFAULT
    assert store_of(IN_BUCKET, DEFAULT) != DEFAULT
    assert store_of(ON_VOLUME, DEFAULT) == Volume(size="10Gi", size_bytes=10 * 2**30, class_name="fast")


def test_nothing_said_anywhere_is_told_from_a_bad_spec():
    """An administrator can mend it, and then it is looked at again."""
    with pytest.raises(InvalidInput) as refusal:
        store_of({"tenant": "acme"})

    assert refusal.value.code == NO_STORE_CODE


@pytest.mark.parametrize("url", ["http://x", "s3://", "s3://key:secret@bucket"])
def test_a_default_bucket_that_cannot_be_one_is_refused(url):
    """Every corpus would fail by it, one by one."""
    with pytest.raises(InvalidInput):
        default_bucket(url, "keys")


def test_the_port_of_the_default_bucket_is_that_of_its_endpoint():
    """The network policies open it."""
    assert default_bucket("", "") is None
    assert default_bucket("s3://b/p?region=eu&endpoint=http%3A%2F%2Fminio%3A9000", "k") == Bucket(
        url="s3://b/p?region=eu&endpoint=http%3A%2F%2Fminio%3A9000", port=9000, credentials_secret="k"
    )
