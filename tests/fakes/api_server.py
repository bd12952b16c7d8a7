"""A small Kubernetes API server over real TLS: TenantCorpora with versions and watches, TokenReviews, published keys.

Its answers have the shapes of a 1.34 server: lists in pages, watches as lines with bookmarks and ERROR events, failures as Status.
"""

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from groundplane_router.kubernetes.access import ApiAccess

COLLECTION = "/apis/groundplane.dev/v1alpha1"
GROUPED = {"apiVersion": "groundplane.dev/v1alpha1"}
Version = int


class FakeApiServer:
    """Serves between `start` and `stop`, at the same port again. `directory` is what a pod has mounted of its ServiceAccount.

    status: answer every call whose path holds `faulty_part` with this failure; hangs: answer none; watch_seconds: end watches earlier than asked;
    fails_watches: end each with a failure. `seen` holds (method, path, query) of each call.
    review: whom a token names, as a username; None refuses it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token = "router-token-1"
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[tuple[Version, str, dict[str, Any]]] = []
        self.version = 100
        self.oldest = 0
        self.status: int | None = None
        self.faulty_part = ""
        self.headers: dict[str, str] = {}
        self.hangs = False
        self.watch_seconds: float | None = None
        self.fails_watches = False
        self.review: Callable[[str], str | None] = lambda token: None
        self.audiences: list[str] | None = ["groundplane"]
        self.keys: list[dict[str, Any]] = []
        self.issuer = "https://kubernetes.default.svc.cluster.local"
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.reviewed: list[str] = []
        self._changed = asyncio.Condition()
        self._watches: set[web.StreamResponse] = set()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._tls = _server_tls(directory)
        self.write_token(self.token)

    @property
    def access(self) -> ApiAccess:
        return ApiAccess(host="127.0.0.1", port=self._port, directory=self.directory)

    def write_token(self, token: str) -> None:
        """Rotate the token, as a kubelet does; the old one is refused from now on."""
        self.token = token
        partial = self.directory / ".token"
        partial.write_text(token)
        partial.rename(self.directory / "token")

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def apply(self, resource: dict[str, Any]) -> None:
        """Create or change a resource, and tell every watch."""
        metadata = resource["metadata"]
        key = (metadata["namespace"], metadata["name"])
        await self._record("MODIFIED" if key in self.objects else "ADDED", key, resource)

    async def delete(self, namespace: str, name: str) -> None:
        """Remove a resource, and tell every watch."""
        await self._record("DELETED", (namespace, name), self.objects[namespace, name])

    async def expire(self) -> None:
        """Forget the history, so that a watch from before is answered with 410, and end all watches."""
        self.oldest = self.version + 1
        self.version += 1
        await self.break_watches()

    async def break_watches(self) -> None:
        """Cut every watch in the middle of its stream."""
        for response in list(self._watches):
            if response._req is not None and response._req.transport is not None:
                response._req.transport.abort()

    async def bookmark(self) -> None:
        """Tell every watch the version, as a server does each minute."""
        async with self._changed:
            self.version += 1
            bare = {"metadata": {"creationTimestamp": None, "resourceVersion": str(self.version)}, "spec": {}}
            self.history.append((self.version, "BOOKMARK", {**GROUPED, "kind": "TenantCorpus", **bare}))
            self._changed.notify_all()

    async def send(self, event: dict[str, Any] | bytes) -> None:
        """Put one line into every watch, whatever it is."""
        line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        for response in list(self._watches):
            await response.write(line)

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    def calls(self, part: str) -> int:
        """How many calls had `part` in their path, or as a name in their query."""
        return sum(part in path or part in query for _, path, query in self.seen)

    async def _record(self, kind: str, key: tuple[str, str], resource: dict[str, Any]) -> None:
        async with self._changed:
            self.version += 1
            metadata = {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **resource["metadata"]}
            stored = {**GROUPED, "kind": "TenantCorpus", **resource}
            stored["metadata"] = {**metadata, "resourceVersion": str(self.version)}
            if kind == "DELETED":
                del self.objects[key]
            else:
                self.objects[key] = stored
            self.history.append((self.version, kind, stored))
            self._changed.notify_all()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path, dict(request.query)))
        if self.hangs:
            await asyncio.sleep(60)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _failure(401, "Unauthorized", {})
        if self.status is not None and self.faulty_part in request.path:
            return _failure(self.status, "InternalError", self.headers)
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            return await self._review(request)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.issuer, "jwks_uri": "https://192.0.2.1/openid/v1/jwks"})
        if request.path == "/openid/v1/jwks" and "application/jwk-set+json" not in request.headers["Accept"]:
            return _failure(406, "NotAcceptable", {})
        if request.path == "/openid/v1/jwks":
            return web.json_response({"keys": self.keys}, content_type="application/jwk-set+json")
        return await self._collection(request)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        within = request.path.removeprefix(COLLECTION).removesuffix("/tenantcorpora")
        namespace = within.removeprefix("/namespaces/") if within else None
        if "watch" in request.query:
            return await self._watch(request, namespace)
        return self._list(request, namespace)

    def _list(self, request: web.Request, namespace: str | None) -> web.Response:
        version, start = request.query.get("continue", f"{self.version}:0").split(":")
        if int(version) < self.oldest:
            return _failure(410, "Expired", {})
        found = [one for (within, _), one in sorted(self.objects.items()) if namespace in {None, within}]
        end = int(start) + int(request.query.get("limit", "500"))
        metadata = {"resourceVersion": version}
        if end < len(found):
            metadata |= {"continue": f"{version}:{end}", "remainingItemCount": str(len(found) - end)}
        body = {**GROUPED, "kind": "TenantCorpusList", "metadata": metadata, "items": found[int(start) : end]}
        return web.json_response(body)

    async def _watch(self, request: web.Request, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        sent = int(request.query["resourceVersion"])
        if sent < self.oldest:
            expired = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410}
            expired |= {"reason": "Expired", "message": f"too old resource version: {sent} ({self.oldest})"}
            await response.write(json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n")
            return response
        if self.fails_watches:
            failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}
            await response.write(json.dumps({"type": "ERROR", "object": failure}).encode() + b"\n")
            return response
        self._watches.add(response)
        try:
            async with asyncio.timeout(self.watch_seconds or float(request.query["timeoutSeconds"])):
                while True:
                    sent = await self._send_after(response, namespace, sent)
        except TimeoutError:
            return response
        finally:
            self._watches.discard(response)

    async def _send_after(self, response: web.StreamResponse, namespace: str | None, sent: Version) -> Version:
        async with self._changed:
            await self._changed.wait_for(lambda: self.version > sent)
            events = [event for event in self.history if event[0] > sent]
            newest = self.version
        for _, kind, resource in events:
            if kind == "BOOKMARK" or namespace in {None, resource["metadata"].get("namespace")}:
                await response.write(json.dumps({"type": kind, "object": resource}).encode() + b"\n")
        return newest

    async def _review(self, request: web.Request) -> web.Response:
        question = await request.json()
        token = question["spec"]["token"]
        self.reviewed.append(token)
        username = self.review(token)
        status: dict[str, Any] = {"user": {}, "error": "[invalid bearer token, unknown]"}
        if username is not None:
            user = {"username": username, "uid": "5f0b6c0e-0c0f-4a8e-9f9a-3d5f0e6f2a11"}
            user["groups"] = ["system:serviceaccounts", "system:authenticated"]  # type: ignore[assignment]  # as JSON has it
            status = {"authenticated": True, "user": user, "audiences": self.audiences}
        return web.json_response({**question, "metadata": {"creationTimestamp": None}, "status": status}, status=201)


def _failure(code: int, reason: str, headers: dict[str, str]) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "canary"}
    return web.json_response({**body, "reason": reason, "code": code}, status=code, headers=headers)


def _server_tls(directory: Path) -> ssl.SSLContext:
    """Write `ca.crt` and return the server's side of it: a certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake-api-server")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    pair = directory / "server.pem"
    pair.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context
