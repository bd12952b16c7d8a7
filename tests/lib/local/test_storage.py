"""A data directory remembers where its corpora lie and never a key."""

import pytest

from groundplane.errors import InvalidInput
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import SHARD_MODULE, Program, child_environment
from groundplane.local.storage import Storage, choose_storage, read_storage

URL = "s3://corpora/prod?endpoint=http://127.0.0.1:9000"


@pytest.fixture
def data(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    return directory


def test_the_bucket_of_the_first_start_is_that_of_every_later_one(data):
    """A second start without the option must not show empty corpora."""
    chosen = choose_storage(data, URL)

    assert chosen == Storage(object_store=URL)
    assert choose_storage(data, None) == choose_storage(data, URL) == read_storage(data) == chosen


def test_corpora_of_a_directory_are_not_looked_for_in_a_bucket(data):
    """An empty bucket would hide what is stored here."""
    (data.store / "t-acme").mkdir(parents=True)

    with pytest.raises(InvalidInput, match=r"keeps its corpora in .*store: expected no other --object-store"):
        choose_storage(data, URL)


def test_another_bucket_is_refused(data):
    """The same, from one bucket to another."""
    choose_storage(data, URL)

    with pytest.raises(InvalidInput, match="keeps its corpora in s3://corpora/prod"):
        choose_storage(data, "s3://elsewhere")


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("s3://key:canary@corpora", id="in-the-bucket"),
        pytest.param("s3://corpora?endpoint=http://key:canary@host", id="in-the-endpoint"),
        pytest.param("s3://corpora?endpoint=http%3A%2F%2Fkey%3Acanary%40host", id="escaped"),
    ],
)
def test_a_url_with_keys_is_neither_kept_nor_repeated(data, url):
    """It would stand in a file and in the terminal."""
    with pytest.raises(InvalidInput) as raised:
        choose_storage(data, url)

    assert "canary" not in raised.value.message
    assert not data.storage.exists()


def test_programs_are_led_to_one_store_whatever_they_inherit(data):
    """A variable of the user's shell must not make two stores of one."""
    local, bucket = Storage().environment(data), Storage(object_store=URL).environment(data)

    assert (local["GROUNDPLANE_STORE_DIRECTORY"], local["GROUNDPLANE_OBJECT_STORE"]) == (str(data.store), "")
    assert (bucket["GROUNDPLANE_STORE_DIRECTORY"], bucket["GROUNDPLANE_OBJECT_STORE"]) == ("", URL)


def test_only_shards_get_the_keys_of_the_bucket():
    """The router has no business in the store."""
    inherited = {"GROUNDPLANE_S3_SECRET_KEY": "canary", "PATH": "/bin"}
    shard, router = (
        child_environment(Program(name="x", module=module, url="", environment={}), inherited)
        for module in (SHARD_MODULE, "groundplane_router.main")
    )

    assert shard["GROUNDPLANE_S3_SECRET_KEY"] == "canary"
    assert "GROUNDPLANE_S3_SECRET_KEY" not in router
