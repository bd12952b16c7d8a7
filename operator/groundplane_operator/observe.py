"""Every read of a pass, in one place: the resource live, what surrounds it from the cache, pods and shard by asking them."""

from collections.abc import Iterator
from typing import Any, Final

from groundplane.api.v1alpha1 import KIND
from groundplane.errors import Denied, InvalidInput
from groundplane.process.clock import Clock
from groundplane.wire.names import Incarnation
from groundplane_operator import names
from groundplane_operator.acceptance import resolve_corpus
from groundplane_operator.cache import Cache
from groundplane_operator.cluster import Cluster
from groundplane_operator.key_store import KeyStore
from groundplane_operator.observed import ChildKind, Observed, PodSeen, Resource, ShardReport, parse_resource, report_of
from groundplane_operator.queue import Key
from groundplane_operator.render.common import Corpus, Manifest
from groundplane_operator.settings import OperatorSettings
from groundplane_operator.shards import ShardAddress, Shards
from groundplane_operator.store_location import Bucket, Volume

MAX_TROUBLE_CHARACTERS: Final = 256
SECRET_SECONDS: Final = 5.0
MAX_SECRETS: Final = 10_000
_STARTING_REASONS: Final = frozenset({"ContainerCreating", "PodInitializing"})


class SecretKeys:
    """Which keys a Secret has. Looked up, since the operator may not list Secrets; kept for a moment, as many corpora share one."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, frozenset[str] | None]] = {}

    async def get(self, namespace: str, name: str) -> frozenset[str] | None:
        """Return the names of the keys, None if there is no such Secret. Raises as the cluster does."""
        known = self._known.get((namespace, name))
        if known is not None and self._clock.monotonic() - known[0] < SECRET_SECONDS:
            return known[1]
        secret = await self._cluster.get("Secret", namespace, name)
        keys = None if secret is None else frozenset(secret.get("data") or {})
        if len(self._known) >= MAX_SECRETS:
            self._known.clear()
        self._known[namespace, name] = (self._clock.monotonic(), keys)
        return keys


class Observer:
    """Looks at one corpus at a time."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        shards: Shards,
        keys: KeyStore,
        settings: OperatorSettings,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._shards = shards
        self._keys = keys
        self._settings = settings
        self._secret_keys = SecretKeys(cluster, clock)

    async def observe(self, key: Key) -> tuple[Manifest, Observed] | None:
        """Return the live resource and all that was seen around it; None if the resource is gone.

        Raises Unavailable or Denied if something could not be read: no decision rests on half a look.
        """
        live = await self._cluster.get(KIND, key.namespace, key.name)
        if live is None:
            return None
        self._cache.take(live)
        resource = parse_resource(live)
        corpus = resolve_corpus(resource, self._settings)
        accepted = corpus if isinstance(corpus, Corpus) else None
        children = await self._children(key, resource, accepted)
        pods = tuple([await self._pod(pod) for pod in self._cache.pods(key)])
        return live, Observed(
            resource=resource,
            settings=self._settings,
            claimants=self._cache.claimants(),
            children=children,
            pods=pods,
            shard=await self._shard(key, resource, pods),
            credentials=None if accepted is None else await self._credentials(accepted),
            public_keys=self._keys.public_files(),
            platform=self._cache.platform(),
            fleet=self._cache.fleet(),
            is_namespace_ending=resource.is_deleting and await self._is_namespace_ending(key),
        )

    async def _children(self, key: Key, resource: Resource, corpus: Corpus | None) -> dict[ChildKind, Manifest]:
        """Return the live children. One that the cache lacks is asked for: its name may be another's, without our labels."""
        children = self._cache.children(key)
        if resource.status.storage_key is None:  # nothing is made before the claims are ours
            return children
        for kind in _expected(resource, corpus):
            if kind not in children:
                name = names.cleanup_name(key.name) if kind == ChildKind.CLEANUP_JOB else names.child_name(key.name)
                live = await self._cluster.get(str(kind), key.namespace, name)
                if live is not None:
                    self._cache.take(live)
                    children[kind] = live
        return children

    async def _pod(self, pod: Manifest) -> PodSeen:
        status = pod.get("status", {})
        is_ready = _has_condition(status, "Ready")
        address = status.get("podIP")
        asks = not is_ready and address and status.get("phase") == "Running"
        return PodSeen(
            name=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"],
            is_ready=is_ready,
            is_ending="deletionTimestamp" in pod["metadata"],
            detail=await self._shards.try_detail(address) if asks else None,
            trouble=None if is_ready else _trouble(status),
            restore_trouble=_restore_trouble(status),
        )

    async def _shard(self, key: Key, resource: Resource, pods: tuple[PodSeen, ...]) -> ShardReport | None:
        status = resource.status
        if status.endpoint is None or status.incarnation is None or status.storage_key is None:
            return None
        if not any(pod.is_ready for pod in pods):
            self._keys.forget(key)
            return None
        address = ShardAddress(status.endpoint, status.storage_key, Incarnation(status.incarnation))
        answer = await self._shards.try_status(address)
        report = None if answer is None else report_of(answer)
        self._keys.report(key, frozenset() if report is None else frozenset(report.key_ids))
        return report

    async def _credentials(self, corpus: Corpus) -> frozenset[str] | None:
        """Return the names of the keys in the corpus's Secret; None if there is no such Secret, or none is needed."""
        if not isinstance(corpus.store, Bucket) or not corpus.store.credentials_secret:
            return None
        return await self._secret_keys.get(corpus.namespace, corpus.store.credentials_secret)

    async def _is_namespace_ending(self, key: Key) -> bool:
        """Return whether the namespace is being deleted; False where the operator may not look at namespaces."""
        try:
            namespace = await self._cluster.get("Namespace", None, key.namespace)
        except (Denied, InvalidInput):
            return False
        return namespace is None or "deletionTimestamp" in namespace["metadata"]


def _expected(resource: Resource, corpus: Corpus | None) -> Iterator[ChildKind]:
    """Yield the kinds of which there ought to be a child."""
    if resource.is_deleting:
        yield from (ChildKind.DEPLOYMENT, ChildKind.CLEANUP_JOB, ChildKind.SERVICE_ACCOUNT)
        return
    for kind in ChildKind:
        if kind == ChildKind.CLEANUP_JOB:
            continue
        if kind == ChildKind.VOLUME_CLAIM and (corpus is None or not isinstance(corpus.store, Volume)):
            continue
        yield kind


def _has_condition(status: dict[str, Any], kind: str) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in status.get("conditions") or ())


def _trouble(status: dict[str, Any]) -> str | None:
    """Return why a pod cannot start, for people; None if it only takes its time."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _short(f"{condition.get('reason')}: {condition.get('message', '')}")
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in _STARTING_REASONS:
            return _short(f"container {container['name']}: {waiting.get('reason')}: {_last_words(container, waiting)}")
    return None


def _restore_trouble(status: dict[str, Any]) -> str | None:
    """Return the last words of a restore that failed; None if it has not failed, or did not say why."""
    for container in status.get("initContainerStatuses") or ():
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
        if container["name"] == names.RESTORE_CONTAINER and ended and ended.get("exitCode"):
            return _short(f"the restore failed: {ended.get('message') or ended.get('reason', '')}")
    return None


def _containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _last_words(container: dict[str, Any], waiting: dict[str, Any]) -> str:
    ended = container.get("lastState", {}).get("terminated") or {}
    return str(ended.get("message") or waiting.get("message") or "")


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_TROUBLE_CHARACTERS].rstrip(": ")
