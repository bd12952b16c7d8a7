"""Fixtures that several kinds of tests share, and what has to be built before the first of them runs."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from e2e.cluster.steps import StepFailed
from tests.support import seaweedfs

S3_FIXTURE = "s3_server"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the S3 server if a test needs it: no test's time limit should cover that, and the user should see it."""
    needed = any(S3_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items)
    if not needed or session.config.option.collectonly or seaweedfs.is_ready():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), suppress(StepFailed):  # the fixture fails with it again
        seaweedfs.build()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweedfs.S3Server]:
    """Give a real S3 server, one for all tests of this process."""
    with seaweedfs.s3_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server
