"""Where a corpus lies is said once and unmistakably."""

import sys
from contextlib import closing
from subprocess import run

import pytest

from groundplane.errors import InvalidInput
from groundplane_shard.settings import read_shard_settings
from groundplane_shard.store_settings import StoreSettings, build_store
from groundplane_shard.stores import LocalStore
from groundplane_shard.stores.s3 import S3Store

KEYS = {"GROUNDPLANE_S3_ACCESS_KEY": "key", "GROUNDPLANE_S3_SECRET_KEY": "canary"}
SHARD = {
    "GROUNDPLANE_CORPUS_KEY": "t-acme",
    "GROUNDPLANE_INCARNATION": "00000000-0000-4000-8000-00000000000a",
    "GROUNDPLANE_WORK_DIRECTORY": "/cache",
    "GROUNDPLANE_KEYS_DIRECTORY": "/keys",
}
DIRECTORY = {"GROUNDPLANE_STORE_DIRECTORY": "/store"}
BUCKET = {"GROUNDPLANE_OBJECT_STORE": "s3://corpora"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, "neither is set: expected exactly one", id="neither"),
        pytest.param({**DIRECTORY, **BUCKET, **KEYS}, "both are set: expected exactly one", id="both"),
        pytest.param({**KEYS, "GROUNDPLANE_OBJECT_STORE": "http://corpora"}, "the URL is not s3://", id="no-store-url"),
        pytest.param(BUCKET, "needs credentials: set GROUNDPLANE_S3_ACCESS_KEY", id="no-keys"),
        pytest.param(
            {**BUCKET, **KEYS, "GROUNDPLANE_S3_ANSWER_SECONDS": "x"}, "GROUNDPLANE_S3_ANSWER_SECONDS=x", id="client"
        ),
    ],
)
def test_a_store_that_is_not_clear_stops_the_start(variables, expected):
    """A shard that guessed would show another corpus, or an empty one."""
    with pytest.raises(InvalidInput) as raised:
        read_shard_settings({**SHARD, **variables})

    assert expected in raised.value.message
    assert "canary" not in raised.value.message


def test_all_faults_of_the_store_are_named_together():
    """Nobody likes to start a pod three times to hear three things."""
    with pytest.raises(InvalidInput) as raised:
        read_shard_settings({**SHARD, "GROUNDPLANE_OBJECT_STORE": "s3://UPPER"})

    assert "the bucket is not" in raised.value.message
    assert "GROUNDPLANE_S3_SECRET_KEY" in raised.value.message


def test_the_store_is_the_one_that_is_named(tmp_path):
    """One function decides for shard and tool."""
    with closing(build_store(StoreSettings(store_directory=str(tmp_path)), {})) as local:
        assert isinstance(local, LocalStore)
    with closing(build_store(StoreSettings(object_store="s3://corpora"), KEYS)) as bucket:
        assert isinstance(bucket, S3Store)


def test_a_local_store_loads_no_client_of_buckets():
    """It costs every start of a shard on one machine for nothing."""
    code = "import groundplane_shard.main, groundplane_shard.tool, sys; print({'minio', 'urllib3'} & set(sys.modules))"
    done = run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "set()"
