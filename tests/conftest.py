"""Fixtures that several kinds of tests share, and what has to be built before the first of them runs."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from e2e.cluster.steps import StepFailed
from tests.support import control_plane, helm, seaweedfs

BUILT = {"s3_server": seaweedfs, "control_plane": control_plane, "chart": helm}  # fixture -> what builds its programs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `pytest tests/operator/test_render.py --write-golden` rewrite the golden manifests; the chart's tests too."""
    parser.addoption(
        "--write-golden", action="store_true", help="rewrite the golden files of these tests from the code"
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the servers that tests need: no test's time limit should cover that, and the user should see it."""
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    missing = [server for name, server in BUILT.items() if name in wanted and not server.is_ready()]
    if not missing or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for server in missing:
            with suppress(StepFailed):  # the fixture fails with it again
                server.build()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweedfs.S3Server]:
    """Give a real S3 server, one for all tests of this process."""
    with seaweedfs.s3_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted: whoever reads a run should see how much stood behind it."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for report in reports:
        figures = [value for name, value in report.user_properties if name == "figures"]
        if figures:
            terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {'; '.join(map(str, figures))}")


@pytest.fixture(scope="session")
def chart() -> helm.Helm:
    """Give Helm with our chart."""
    return helm.Helm(helm.build())
