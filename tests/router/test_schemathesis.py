"""The running router against its own document: generated requests get documented answers, and never a 500."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.fakes.installation import Installation

load_all_checks()
CHECKED = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "unsupported_method",
        "ignored_auth",
    )
]
BOUNDED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class RunningRouter:
    """A router and its fake shards on real sockets, in a thread with a loop of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(20)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()

    async def _serve(self):
        async with Installation(self.directory) as running:
            await running.index(a="some text about pumps", b="the invoice is due")
            self.installation = running
            app = running.build()
            self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
            serving = asyncio.create_task(self.server.serve())
            await running.until(self._is_started)
            self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
            self.ready.set()
            await serving

    async def _is_started(self):
        return self.server.started


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with RunningRouter(tmp_path_factory.mktemp("router")) as running:
        yield running


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_generated_requests_get_documented_answers(router, mode):
    """Whatever a client sends, it can rely on the document for what comes back."""
    schema = schemathesis.openapi.from_url(f"{router.url}/openapi.json")
    headers = router.installation.headers()
    statuses: Counter[int] = Counter()

    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # an error raises: the document is ours
        if mode is GenerationMode.NEGATIVE and not operation.body and not list(operation.iter_parameters()):
            continue  # nothing in it can be wrong

        @BOUNDED
        @given(operation.as_strategy(generation_mode=mode))
        def check(case):
            response = case.call(headers=headers)
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKED, headers=headers)

        check()

    assert statuses[200 if mode is GenerationMode.POSITIVE else 400] > 20
