"""A router over fake shards, for every test below."""

import pytest

from tests.fakes.installation import Installation


@pytest.fixture
async def installation(tmp_path):
    async with Installation(tmp_path) as running:
        yield running
