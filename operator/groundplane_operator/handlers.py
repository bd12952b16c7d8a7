"""kopf: it watches TenantCorpora, their children and pods, and every event becomes a key in the queue. Nothing else.

No handler decides, patches or returns anything, so nothing of kopf's ever stands on an object: no annotation, no finalizer,
no Event. `on.event` is the only kind of handler here for that reason (operator_anchors, C1 to C8).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from groundplane.api.v1alpha1 import GROUP, KIND
from groundplane_operator.cache import CHILD_KINDS, WATCHED_LABELS, Cache
from groundplane_operator.cluster import KINDS, ApiAddress, Kind
from groundplane_operator.queue import Key

CONNECT_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 300  # whole: it goes into the URL as it is
INACTIVITY_SECONDS: Final = 70.0
CHUNK: Final = 500


def watch_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: watches that cannot fall silent unnoticed, and nothing written anywhere."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{GROUP}/watch"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.watching.connect_timeout = CONNECT_SECONDS
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + CONNECT_SECONDS
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.watching.chunk_size = CHUNK
    settings.networking.request_timeout = WATCH_SECONDS
    settings.networking.enforce_retry_after = True
    ours = ",".join(f"{name}={value}" for name, value in WATCHED_LABELS.items())
    for name in CHILD_KINDS:
        settings.watching.label_selectors[_place(KINDS[name])] = ours
    return settings


def watch_registry(cache: Cache, enqueue: Callable[[Key], None], address: ApiAddress) -> kopf.OperatorRegistry:
    """Return the handlers: each puts the object into `cache` and its corpus, if that is news, into the queue."""
    registry = kopf.OperatorRegistry()

    def login(**arguments: Any) -> Any:
        if address.is_of_pod:  # its token is read again when it has expired
            return kopf.login_with_service_account(**arguments)
        return kopf.ConnectionInfo(
            server=address.server,
            ca_path=address.ca_file,
            certificate_path=address.certificate_file,
            private_key_path=address.key_file,
        )

    kopf.on.login(registry=registry)(login)
    for kind in (KINDS[name] for name in (KIND, *CHILD_KINDS)):
        listen = kopf.on.event(*_place(kind), id=f"watch-{kind.plural}", registry=registry)
        listen(_handler(cache, enqueue, {"apiVersion": kind.api_version, "kind": kind.name}))
    return registry


async def watch(registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: tuple[str, ...]) -> None:
    """Watch until SIGTERM or SIGINT: kopf frames the process. No namespaces: all of them."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _place(kind: Kind) -> tuple[str, str, str]:
    """Return group ("" for the core), version and plural, by which kopf knows a kind."""
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


def _handler(cache: Cache, enqueue: Callable[[Key], None], of_kind: Mapping[str, str]) -> Callable[..., Any]:
    async def take(event: Any, **_: Any) -> None:
        key = cache.take({**event["object"], **of_kind}, is_gone=event["type"] == "DELETED")
        if key is not None:
            enqueue(key)

    return take
