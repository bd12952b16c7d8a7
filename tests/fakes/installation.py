"""A whole installation in one process: keys, directory file, fake shards over HTTP, and the router over them."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.applications import Starlette

from groundplane.process.clock import SystemClock
from groundplane.tokens import SigningKey, VerifyingKeys
from groundplane.wire.directory import Directory, Grant, Subject
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_router.assembly import assemble
from groundplane_router.embedders import EmbeddingService
from groundplane_router.embedders.formats import Format
from groundplane_router.settings import RouterSettings
from tests.fakes.embedder import DIMENSION, WordEmbedder
from tests.fakes.shard_server import FakeShard

CORPORA = ("platform", "acme", "globex")
INCARNATIONS = {
    name: Incarnation(f"{number}0000000-0000-4000-8000-000000000000") for number, name in enumerate(CORPORA, 1)
}
DENSE_FLOOR = 0.35


class Installation:
    """Tenants acme and globex and the platform. Subjects: `<corpus>-agent` reads and writes, `<corpus>-reader` reads."""

    def __init__(self, directory: Path, *, corpora: Sequence[str] = CORPORA, **settings: Any) -> None:
        self.directory = directory
        self.clock = SystemClock()
        self.caller_key, self.router_key = SigningKey.generate(), SigningKey.generate()
        self.embedder: Any = WordEmbedder()
        self.settings = settings
        self.has_directory = True
        keys = directory / "keys"
        keys.mkdir()
        (keys / f"router-{self.router_key.id}.pem").write_bytes(self.router_key.public_pem())
        (directory / "caller.pem").write_bytes(self.caller_key.public_pem())
        self.shards = {name: self._shard(name, VerifyingKeys.load(keys)) for name in corpora}
        self._stack = AsyncExitStack()

    def _shard(self, name: str, keys: VerifyingKeys) -> FakeShard:
        key, tenant = ("platform", None) if name == "platform" else (f"t-{name}", name)
        return FakeShard(CorpusKey(key), INCARNATIONS[name], keys, clock=self.clock, tenant=tenant)

    async def __aenter__(self) -> Self:
        for shard in self.shards.values():
            await shard.start()
            self._stack.push_async_callback(shard.stop)
        if self.has_directory:
            self.write_directory()
        await self.start_router()
        return self

    async def start_router(self) -> None:
        """Start a router with the embedder of now, and let `http` speak to that one from now on."""
        self.app = self.build()
        await self._stack.enter_async_context(self.app.router.lifespan_context(self.app))
        transport = httpx.ASGITransport(app=self.app)
        self.http = await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://router")
        )

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
        """Wait until `condition` holds."""
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
                await asyncio.sleep(0.01)

    async def is_ready(self) -> bool:
        return (await self.http.get("/readyz")).status_code == 200

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def build(self) -> Starlette:
        path = self.directory / "router.pem"
        path.write_bytes(private_pem(self.router_key))
        settings = RouterSettings(
            directory_file=str(self.directory / "directory.json"),
            caller_key_file=str(self.directory / "caller.pem"),
            signing_key_file=str(path),
            **self.settings,
        )
        form = Format(name="words", query="{text}", document="{title} {text}", dense_floor=DENSE_FLOOR)
        service = EmbeddingService(self.embedder, form, dimension=DIMENSION)
        return assemble(settings, service, clock=self.clock, rng=random.Random(1))

    def write_directory(self) -> None:
        corpora = tuple(shard.entry(_grants(name)) for name, shard in self.shards.items())
        partial = self.directory / "directory.partial"
        partial.write_bytes(msgspec.json.encode(Directory(corpora=corpora)))
        partial.rename(self.directory / "directory.json")

    async def set_state(self, name: str, state: str) -> None:
        """Write another state of one corpus into the directory, and wait until the router has taken it."""
        self.shards[name].state = state
        self.write_directory()

        async def is_taken() -> bool:
            answer = await self.get("/v1/corpus", f"{name}-reader")
            return bool(answer.json()["corpus"]["detail"] == state)

        await self.until(is_taken)

    def token(self, subject: str = "acme-agent", *, seconds: int = 600) -> str:
        return self.caller_key.sign_caller(
            f"system:serviceaccount:agents:{subject}", now=self.clock.now(), seconds=seconds
        )

    def headers(self, subject: str = "acme-agent") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(subject)}"}

    async def post(self, path: str, body: Any, subject: str = "acme-agent") -> httpx.Response:
        return await self.http.post(path, json=body, headers=self.headers(subject))

    async def get(self, path: str, subject: str = "acme-agent") -> httpx.Response:
        return await self.http.get(path, headers=self.headers(subject))

    async def index(self, subject: str = "acme-agent", **texts: str) -> Any:
        documents = [{"id": doc_id, "text": text} for doc_id, text in texts.items()]
        answer = await self.post("/v1/documents", {"documents": documents}, subject)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def evidence(self, query: str, subject: str = "acme-agent", **more: Any) -> httpx.Response:
        return await self.post("/v1/evidence", {"query": query, **more}, subject)

    async def ground(self, query: str, subject: str = "acme-agent", **more: Any) -> httpx.Response:
        return await self.post("/v1/ground", {"query": query, **more}, subject)


def private_pem(key: SigningKey) -> bytes:
    """Return the private half as PEM, as `load_or_create` would have written it."""
    return key._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _grants(name: str) -> tuple[Grant, ...]:
    agent = Subject(namespace="agents", service_account=f"{name}-agent")
    reader = Subject(namespace="agents", service_account=f"{name}-reader")
    return (Grant(subject=agent, access=("read", "write")), Grant(subject=reader, access=("read",)))
