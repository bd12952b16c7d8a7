"""The API server: the only module that calls it, and the only one that imports its client.

Five verbs on whole objects, each a decoded JSON document: get, list, apply (server-side, forced on what we render),
delete (of exactly the object that was seen) and, for objects that nobody renders, create. A failure becomes one of our
errors here, once:

| answer | error, code | what the caller does |
| --- | --- | --- |
| 404 | none: `get` returns None, `delete` is done | |
| 409, 410 | Unavailable `api_conflict` | look again and decide anew |
| 403 | Denied `api_forbidden` | say so in a condition, try again later |
| 400, 422, and the 500 that a field of no schema gets in an apply | InvalidInput `api_refused` | say so in a condition, wait for another spec |
| 429, 5xx, none in time | Unavailable `api_unavailable`, with Retry-After where there is one | back off |

Source: Kubernetes API concepts, "Server-Side Apply", "Retrieving large results sets in chunks".
"""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import msgspec
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from groundplane.errors import Denied, GroundplaneError, InvalidInput, Unavailable
from groundplane.retry_after import try_retry_after
from groundplane_operator.names import FIELD_MANAGER
from groundplane_operator.render.common import Manifest

CALL_SECONDS: Final = 15.0
PAGE: Final = 500
MAX_RETRY_AFTER_SECONDS: Final = 60
MAX_MESSAGE_CHARACTERS: Final = 512
_NO_SUCH_FIELD: Final = (
    "failed to create typed patch object"  # seen of 1.34: an apply with a misspelt field is answered 500
)


class Kind(msgspec.Struct, frozen=True):
    """A kind of object with the path under which the API server keeps it."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of all objects of a namespace (None: of all), of one of them, or of a part of it."""
        root = "/api" if "/" not in self.api_version else "/apis"
        parts = [root, self.api_version, *(["namespaces", namespace] if namespace else []), self.plural]
        return "/".join([*parts, *(part for part in (name, subresource) if part)])


TENANT_CORPUS: Final = Kind("groundplane.dev/v1alpha1", "TenantCorpus", "tenantcorpora")
KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        TENANT_CORPUS,
        Kind("v1", "ConfigMap", "configmaps"),
        Kind("v1", "Namespace", "namespaces"),
        Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        Kind("v1", "Pod", "pods"),
        Kind("v1", "Secret", "secrets"),
        Kind("v1", "Service", "services"),
        Kind("v1", "ServiceAccount", "serviceaccounts"),
        Kind("apps/v1", "Deployment", "deployments"),
        Kind("batch/v1", "Job", "jobs"),
        Kind("events.k8s.io/v1", "Event", "events"),
        Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    )
}


_JSON: Final = "application/json"
_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "get": ("GET", _JSON),
    "list": ("GET", _JSON),
    "create": ("POST", _JSON),
    "apply": ("PATCH", "application/apply-patch+yaml"),
    "patch": ("PATCH", "application/merge-patch+json"),
    "delete": ("DELETE", _JSON),
}
_OURS: Final = {"fieldManager": FIELD_MANAGER}


class CallCounter(Protocol):
    """Hears of every call: its verb and the status of the answer, `none` where there was no answer."""

    def __call__(self, verb: str, code: str) -> None:
        """Count one call."""


class Listed(msgspec.Struct, frozen=True):
    """All objects of one kind as they were at one version of the API server's state."""

    items: list[Manifest]
    version: int


class ApiAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is and with which files it is spoken to, for the library that watches."""

    is_of_pod: bool
    server: str
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None


class _Request(msgspec.Struct, frozen=True):
    verb: str
    path: str
    query: Mapping[str, str] = {}
    body: Manifest | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class Cluster:
    """One API server."""

    def __init__(self, api: kubernetes_client.ApiClient, count: CallCounter, *, is_of_pod: bool = True) -> None:
        """is_of_pod: whether this process is a pod that uses its service account."""
        self._api = api
        self._count = count
        self._is_of_pod = is_of_pod

    @property
    def address(self) -> ApiAddress:
        """Return where this API server is."""
        configuration = self._api.configuration
        return ApiAddress(
            is_of_pod=self._is_of_pod,
            server=configuration.host,
            ca_file=configuration.ssl_ca_cert,
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
        )

    async def get(self, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """Return the object, None if there is none."""
        return await self._try(_Request("get", KINDS[kind].path(namespace, name)))

    async def list_all(self, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None) -> Listed:
        """Return every object of a namespace (None: of all) that has `labels`, read page by page, at one version."""
        found: list[Manifest] = []
        query = {"limit": str(PAGE)}
        if labels:
            query["labelSelector"] = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        while True:
            page = await self._do(_Request("list", KINDS[kind].path(namespace), query))
            found += [{"apiVersion": KINDS[kind].api_version, "kind": kind, **item} for item in page.get("items") or []]
            metadata = page.get("metadata", {})
            if not metadata.get("continue"):
                return Listed(found, int(metadata.get("resourceVersion") or 0))
            query["continue"] = metadata["continue"]

    async def apply(self, manifest: Manifest, subresource: str | None = None) -> Manifest:
        """Make the fields of `manifest` ours and as it says, creating the object if need be; return the object.

        Fields that we applied before and that `manifest` has no more are removed; those of others are left alone. Raises
        InvalidInput for a field that the API server does not know.
        """
        metadata = manifest["metadata"]
        path = KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"], subresource)
        return await self._do(_Request("apply", path, {**_OURS, "force": "true"}, manifest))

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object that must not exist yet and return it. Raises Unavailable `api_conflict` if it does."""
        path = KINDS[manifest["kind"]].path(manifest["metadata"]["namespace"])
        return await self._do(_Request("create", path, _OURS, manifest))

    async def patch(self, live: Manifest, change: Manifest) -> Manifest | None:
        """Merge `change` into the object that was seen as `live` and return it; None if it is gone.

        Raises Unavailable `api_conflict` if it has changed since, so that no decision rests on an old look.
        """
        body = {**change, "metadata": {**change.get("metadata", {}), **_seen(live)}}
        return await self._try(_Request("patch", _path_of(live), _OURS, body))

    async def delete(self, live: Manifest) -> None:
        """Delete the object that was seen as `live`, unless it is gone.

        Raises Unavailable `api_conflict` if it has changed since, or another one has its name now.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        await self._try(_Request("delete", _path_of(live), body={**options, "preconditions": _seen(live)}))

    async def _try(self, request: _Request) -> Manifest | None:
        """Return the answer, None if there is no such object. Raises as `_do`."""
        status, headers, content = await self._send(request)
        return None if status == 404 else _answer(request, status, headers, content)

    async def _do(self, request: _Request) -> Manifest:
        """Return the answer. Raises Unavailable, Denied, InvalidInput as the module says."""
        return _answer(request, *await self._send(request))

    async def _send(self, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
        method, content_type = _VERBS[request.verb]
        code = "none"
        try:
            method, url, headers, body, _ = await self._api.param_serialize(
                method,
                request.path,
                query_params=list(request.query.items()),
                header_params={"Accept": _JSON, "Content-Type": content_type},
                body=request.body,
                auth_settings=["BearerToken"],
            )
            timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
            answer = await self._api.call_api(method, url, headers, body, _request_timeout=timeout)
            content = await answer.read()  # type: ignore[no-untyped-call]  # the library leaves it unannotated
            code = str(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{request}: no answer ({type(error).__name__})", code="api_unavailable") from error
        finally:
            self._count(request.verb, code)
        return answer.status, answer.headers, content


@asynccontextmanager
async def connect(kubeconfig: Path | None, count: CallCounter) -> AsyncIterator[Cluster]:
    """Give the API server of `kubeconfig`; None is the one whose pod this is. Raises InvalidInput if there is none."""
    configuration = kubernetes_client.Configuration()
    try:
        if kubeconfig is None:
            kubernetes_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as above
        else:
            loading = kubernetes_config.load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]  # as above
            await loading
    except (kubernetes_config.ConfigException, OSError) as error:
        where = "this pod's service account" if kubeconfig is None else f"kubeconfig {kubeconfig}"
        raise InvalidInput(f"{where} gives no access to an API server: {error}", code="invalid_settings") from error
    async with kubernetes_client.ApiClient(configuration) as api:
        yield Cluster(api, count, is_of_pod=kubeconfig is None)


def _path_of(live: Manifest) -> str:
    return KINDS[live["kind"]].path(live["metadata"]["namespace"], live["metadata"]["name"])


def _seen(live: Manifest) -> dict[str, str]:
    """Return what makes a change fail if the object is not the one that was seen, as it was."""
    return {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}


def _answer(request: _Request, status: int, headers: Mapping[str, str], content: bytes) -> Manifest:
    if status >= 400:
        raise _fault(request, status, headers, _message(content))
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Unavailable(f"{request}: the answer is no JSON object", code="api_unavailable") from error


def _message(content: bytes) -> str:
    """Return what the API server says of a refusal: the `message` of its Status, or nothing."""
    try:
        message = msgspec.json.decode(content, type=dict[str, Any]).get("message", "")
    except msgspec.DecodeError:
        return ""
    return str(message)[:MAX_MESSAGE_CHARACTERS]


def _fault(request: _Request, status: int, headers: Mapping[str, str], message: str) -> GroundplaneError:
    text = f"{request}: {status} {message}".rstrip()
    match status:
        case 409 | 410:
            return Unavailable(text, code="api_conflict")
        case 401 | 403:
            return Denied(text, code="api_forbidden", status=403)
        case 429:
            return Unavailable(text, code="api_unavailable", retry_after_seconds=_retry_after(headers))
        case _ if status < 500 or message.startswith(_NO_SUCH_FIELD):
            return InvalidInput(text, code="api_refused", status=status)
        case _:
            return Unavailable(text, code="api_unavailable", retry_after_seconds=_retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds of Retry-After, at most a minute; None where there is none or a date."""
    seconds = try_retry_after(headers.get("Retry-After", ""), most_seconds=math.inf)
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER_SECONDS)
