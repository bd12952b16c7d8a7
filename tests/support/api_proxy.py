"""An HTTP proxy before an API server: counts writes, and by rule kills, loses answers, refuses, or holds watches back.

It speaks plain HTTP on 127.0.0.1 to the program under test and is the administrator to the API server, so that everything
between the two can be counted and broken. One thread of its own.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from e2e.cluster.state import Cluster

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
START_SECONDS = 10.0
_NOT_FORWARDED = frozenset({"host", "transfer-encoding", "connection", "content-length", "authorization", "keep-alive"})

Rule = Callable[["Call"], "Fault | None"]


class Call:
    """One request: its method, path and, for writes, its number from 1."""

    def __init__(self, method: str, path: str, number: int | None) -> None:
        self.method = method
        self.path = path
        self.number = number

    @property
    def is_watch(self) -> bool:
        """Whether this asks for events as they come."""
        return "watch=true" in self.path or "watch=1" in self.path


class Fault:
    """What happens to a call: answered by `status` instead; or done, then `after` called, its answer lost; or never answered."""

    def __init__(
        self,
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        after: Callable[[], None] | None = None,
        loses_answer: bool = False,
        holds: bool = False,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self.after = after
        self.loses_answer = loses_answer
        self.holds = holds


class ApiProxy:
    """The proxy; `rule` says what happens to each call, None lets it pass. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.rule: Rule = lambda _: None
        self.writes: list[Call] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here, and return its path."""
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {"token": "not-forwarded"}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "test"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    async def _start(self) -> None:
        pki = self._cluster.directory / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        number = len(self.writes) + 1 if request.method in WRITES else None
        call = Call(request.method, request.raw_path, number)
        if number is not None:
            self.writes.append(call)
        fault = self.rule(call)
        if fault is not None and fault.status is not None:
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": fault.status,
                "message": "injected",
            }
            return web.json_response(body, status=fault.status, headers=fault.headers)
        if fault is not None and fault.holds:
            await asyncio.Event().wait()
        return await self._forward(request, fault)

    async def _forward(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED}
        url = self._cluster.api_url + request.raw_path
        timeout = aiohttp.ClientTimeout(total=None)
        body = await request.read()
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, timeout=timeout
            ) as answer:
                if fault is not None and fault.after is not None:
                    await answer.read()
                    fault.after()
                if fault is not None and fault.loses_answer:
                    await answer.read()
                    raise ConnectionResetError
                return await _stream(request, answer)
        except (aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)


async def _stream(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_FORWARDED}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async for part in answer.content.iter_any():
        await response.write(part)
    await response.write_eof()
    return response
