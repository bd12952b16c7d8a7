"""`/healthz` and `/readyz`: alive is always yes while the loop turns; ready waits for the directory and the semantic gate."""

from starlette.requests import Request
from starlette.responses import Response

from groundplane.process.http import json_response
from groundplane.wire.public import ProbeAnswer
from groundplane_router.directory import LiveDirectory
from groundplane_router.semantic import SemanticMonitor


class Probes:
    """Answers Kubernetes' probes."""

    def __init__(self, directory: LiveDirectory, monitor: SemanticMonitor) -> None:
        self._directory = directory
        self._monitor = monitor

    async def health(self, _request: Request) -> Response:
        """Serve `GET /healthz`: 200 for as long as the process answers at all."""
        return json_response(ProbeAnswer(status="alive"))

    async def ready(self, _request: Request) -> Response:
        """Serve `GET /readyz`: 200, or 503 with what is waited for."""
        waits_for = self._waits_for()
        if waits_for is None:
            return json_response(ProbeAnswer(status="ready"))
        return json_response(ProbeAnswer(status="waiting", waits_for=waits_for), status=503)

    def _waits_for(self) -> str | None:
        if not self._directory.is_loaded:
            return "directory"
        return None if self._monitor.is_ready() else "semantic_probe"
