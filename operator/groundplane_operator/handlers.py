"""kopf: it watches TenantCorpora, their children and pods, and every event becomes a key in the queue. Nothing else.

No handler decides, patches or returns anything, so nothing of kopf's ever stands on an object: no annotation, no finalizer,
no Event. `on.event` is the only kind of handler here for that reason (operator_anchors, C1 to C8).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from groundplane.api.crd import PLURAL
from groundplane.api.v1alpha1 import GROUP, KIND, VERSION
from groundplane_operator.cache import WATCHED_LABELS, Cache
from groundplane_operator.cluster import ApiAddress
from groundplane_operator.queue import Key

CONNECT_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 300  # whole: it goes into the URL as it is
INACTIVITY_SECONDS: Final = 70.0
CHUNK: Final = 500

WATCHED: Final = (
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("", "v1", "pods", "Pod"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("", "v1", "services", "Service"),
    ("apps", "v1", "deployments", "Deployment"),
    ("batch", "v1", "jobs", "Job"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
)
"""Children, of which only those with our label are listed and watched."""


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
    for group, version, plural, _ in WATCHED:
        settings.watching.label_selectors[group, version, plural] = ours
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
    kinds = [(GROUP, VERSION, PLURAL, KIND), *WATCHED]
    for group, version, plural, kind in kinds:
        of_kind = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind}
        kopf.on.event(group, version, plural, id=f"watch-{plural}", registry=registry)(
            _handler(cache, enqueue, of_kind)
        )
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


def _handler(cache: Cache, enqueue: Callable[[Key], None], of_kind: Mapping[str, str]) -> Callable[..., Any]:
    async def take(event: Any, **_: Any) -> None:
        key = cache.take({**event["object"], **of_kind}, is_gone=event["type"] == "DELETED")
        if key is not None:
            enqueue(key)

    return take
