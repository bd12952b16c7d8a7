"""An API server for every test below."""

import asyncio

import pytest

from groundplane.process.clock import SystemClock
from groundplane_router.kubernetes.client import ApiServer
from tests.fakes.api_server import FakeApiServer


@pytest.fixture
async def server(tmp_path):
    running = FakeApiServer(tmp_path)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def api(server):
    async with ApiServer(server.access, SystemClock()) as client:
        yield client


@pytest.fixture
def until():
    """Wait until a condition holds."""

    async def wait(condition, seconds=5.0):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
                await asyncio.sleep(0.005)

    return wait
