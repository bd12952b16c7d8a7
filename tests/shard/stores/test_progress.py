"""Whoever waits for a copy of many files sees that it moves, and how far it is."""

import pytest

from groundplane_shard.log import LocalFile
from groundplane_shard.log.operations import Damaged, Refused, Stored, Upload, Verified, Verify
from groundplane_shard.stores import Progress
from groundplane_shard.stores.progress import MIB, TELL_SECONDS
from tests.fakes.virtual_clock import VirtualClock

SIZES = (3 * MIB, MIB, 1)


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def told():
    return []


@pytest.fixture
def progress(clock, told):
    return Progress(SIZES, clock, lambda progress: told.append(progress.fields()))


def upload(size):
    return Upload("key", LocalFile(path="path", source="source", size=size, sha256="0" * 64))


def test_only_what_the_store_has_done_is_counted(progress):
    """A refused upload is no progress."""
    progress.watch(upload(3 * MIB), Stored("etag"))
    progress.watch(upload(MIB), Refused("full"))
    progress.watch(Verify("key", 3 * MIB, ""), Verified())
    progress.watch(Verify("key", MIB, ""), Damaged("flipped"))

    assert progress.fields() == {
        "files": 3,
        "bytes": 4 * MIB + 1,
        "uploaded_files": 1,
        "uploaded_bytes": 3 * MIB,
        "verified_files": 1,
        "verified_bytes": 3 * MIB,
    }


def test_a_step_is_shown_in_files_and_whole_mebibytes_of_all(progress):
    """The total is rounded up, so that no small copy is of nothing."""
    before = progress.shown("downloaded")
    progress.add("downloaded", 3 * MIB)

    assert (before, progress.shown("downloaded")) == ("0/5 MiB in 0/3 files", "3/5 MiB in 1/3 files")


def test_it_is_told_every_few_seconds_and_at_the_end(progress, clock, told):
    """A line a file would drown the log; none for minutes looks like a hang."""
    progress.add("downloaded", 1)
    at_once = len(told)
    clock.advance(TELL_SECONDS)
    progress.add("downloaded", MIB)
    progress.add("downloaded", 3 * MIB)
    in_time = len(told)
    progress.finish()

    assert (at_once, in_time, len(told)) == (0, 1, 2)
    assert told[-1]["downloaded_files"] == 3
