"""A cluster in memory: server-side apply with field ownership, a Deployment controller, kubelets, a garbage collector.

It does what the API server and its controllers would do with what the operator applies, and nothing else; time is a number.
"""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from groundplane.api.v1alpha1 import TenantCorpusStatus
from groundplane_operator import names
from groundplane_operator.leaves import LIST_KEYS
from groundplane_operator.observed import (
    ChildKind,
    Observed,
    PodSeen,
    Resource,
    ShardReport,
    claimant_of,
    parse_resource,
)
from groundplane_operator.plan import next_step
from groundplane_operator.rollout import fleet_of, rollout_of
from groundplane_operator.status import status_after
from groundplane_operator.steps import Apply, Delete, ObjectTarget, Release, SetFinalizer, Step
from tests.operator.parts import KEYS, SETTINGS

Manifest = dict[str, Any]


def leaves_of(part: Any, path: tuple[Any, ...] = (), kind: str = "") -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every leaf with its path; entries of keyed lists are named by their keys, other lists are leaves."""
    if isinstance(part, dict) and part:
        for name, child in part.items():
            yield from leaves_of(child, (*path, name), f"{kind}.{name}" if kind else name)
    elif isinstance(part, list) and kind in LIST_KEYS:
        for entry in part:
            yield from leaves_of(entry, (*path, key_of(entry, kind)), f"{kind}[]")
    else:
        yield path, part


def key_of(entry: Any, kind: str) -> tuple[Any, ...]:
    """Return the key of an entry of the list `kind`."""
    return tuple(entry.get(name, "TCP" if name == "protocol" else None) for name in LIST_KEYS[kind])


def put(root: Any, path: tuple[Any, ...], value: Any, kind: str = "") -> None:
    """Set the leaf at `path`, making what is missing on the way."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        entry = next((each for each in root if key_of(each, kind) == step), None)
        if entry is None:
            entry = dict(zip(LIST_KEYS[kind], step, strict=True))
            root.append(entry)
        put(entry, rest, value, f"{kind}[]")
        return
    kind = f"{kind}.{step}" if kind else step
    if not rest:
        root[step] = copy.deepcopy(value)
        return
    empty: Any = [] if isinstance(rest[0], tuple) else {}
    if not isinstance(root.get(step), type(empty)):
        root[step] = empty
    put(root[step], rest, value, kind)


def drop(root: Any, path: tuple[Any, ...], kind: str = "") -> None:
    """Remove the leaf at `path`, and what is empty after that."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        for entry in [each for each in root if key_of(each, kind) == step]:
            if rest[0] not in LIST_KEYS[kind]:  # an entry keeps its key as long as it is there
                drop(entry, rest, f"{kind}[]")
            if set(entry) <= set(LIST_KEYS[kind]):
                root.remove(entry)
        return
    if not isinstance(root, dict) or step not in root:
        return
    if rest:
        drop(root[step], rest, f"{kind}.{step}" if kind else step)
        if root[step] in ({}, []):
            del root[step]
    else:
        del root[step]


def server_side_apply(live: Manifest | None, owned: set[Any], manifest: Manifest) -> tuple[Manifest, set[Any]]:
    """Return the object after an apply by force, and the leaves that the applier owns then."""
    after = copy.deepcopy(live) if live is not None else {}
    leaves = dict(leaves_of(manifest))
    for path in sorted(owned - set(leaves), key=lambda path: (len(path), str(path)), reverse=True):
        drop(after, path)
    for path, value in leaves.items():
        put(after, path, value)
    return after, set(leaves)


class LiveCluster:
    """One namespace with its objects; `pass_over` is what the shell does for one key."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.specs: dict[str, Manifest] = {}
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.owned: dict[tuple[str, str], set[Any]] = {}
        self.secret: frozenset[str] | None = frozenset({"access-key", "secret-key"})
        self.writes: list[str] = []
        self.now = 1_790_000_000.0
        self.sequence = 3
        self.settings = SETTINGS
        self.broken_images: set[str] = set()
        self.events: list[str] = []
        self._uids = 0
        self._hashes: dict[str, tuple[str, int]] = {}

    # -- what users do

    def create(self, spec: Manifest, name: str = "acme", **metadata: Any) -> Resource:
        """Create a resource."""
        self._uids += 1
        known = {
            "name": name,
            "namespace": "agents",
            "uid": f"00000000-0000-4000-8000-{self._uids:012}",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:{self._uids % 60:02}Z",
        }
        return self._keep({**known, **metadata}, spec, TenantCorpusStatus())

    def edit(self, spec: Manifest, name: str = "acme") -> Resource:
        """Replace the spec of a resource."""
        found = self.resources[name]
        return self._keep({**_meta(found), "generation": found.generation + 1}, spec, found.status)

    def annotate(self, annotations: dict[str, str], name: str = "acme") -> Resource:
        """Replace the annotations of a resource."""
        found = self.resources[name]
        return self._keep({**_meta(found), "annotations": annotations}, self.specs[name], found.status)

    def delete(self, name: str = "acme") -> None:
        """Delete a resource: it stays while somebody's finalizer is on it."""
        found = self.resources[name]
        if found.has_finalizer:
            gone = {"deletionTimestamp": "2026-09-21T14:13:20Z"}
            self._keep({**_meta(found), **gone}, self.specs[name], found.status)
        else:
            self._remove(name)

    # -- what the operator does

    def pass_over(self, name: str = "acme") -> Step | None:
        """Observe, decide, perform, write the status: one pass; None if the resource is gone."""
        if name not in self.resources:
            return None
        seen = self.observe(name)
        step = next_step(seen, self.now)
        self._perform(step, name)
        if not isinstance(step, Release):
            status = status_after(seen, step, self.now)
            found = self.resources[name]
            if status != found.status:
                self.writes.append("status")
                self._keep(_meta(found), self.specs[name], status)
        return step

    def observe(self, name: str) -> Observed:
        """Return what a pass sees now."""
        self._run_controllers()
        children = {
            ChildKind(kind): manifest
            for (kind, found), manifest in self.objects.items()
            if kind in set(ChildKind) and found in {names.child_name(name), names.cleanup_name(name)}
        }
        pods = tuple(self._pods(name))
        serves = any(pod.is_ready for pod in pods)
        return Observed(
            resource=self.resources[name],
            settings=self.settings,
            claimants=tuple(claimant_of(each) for each in self.resources.values()),
            children=msgspec.json.decode(msgspec.json.encode(children), type=dict[ChildKind, Manifest]),
            pods=pods,
            shard=self._report() if serves else None,
            credentials=self.secret,
            public_keys=KEYS,
            fleet=fleet_of(
                {
                    f"agents/{found.removeprefix('corpus-')}": rollout_of(manifest)
                    for (kind, found), manifest in self.objects.items()
                    if kind == "Deployment"
                }
            ),
        )

    def _perform(self, step: Step, name: str) -> None:
        match step:
            case Apply(manifests=manifests):
                for manifest in manifests:
                    self.apply(manifest)
            case Delete(targets=targets):
                for target in targets:
                    self._delete(target)
            case SetFinalizer(present=present):
                self.writes.append("finalizer")
                found = self.resources[name]
                finalizers = [names.FINALIZER] if present else []
                self._keep({**_meta(found), "finalizers": finalizers}, self.specs[name], found.status)
            case Release(reason=reason):
                self.writes.append("release")
                self.events.append(str(reason))
                self._remove(name)
            case _:
                pass

    def apply(self, manifest: Manifest) -> None:
        """Apply by force, as the operator's field manager."""
        key = (manifest["kind"], manifest["metadata"]["name"])
        self.writes.append(f"apply {key[0]}")
        live, owned = server_side_apply(self.objects.get(key), self.owned.get(key, set()), manifest)
        self._uids += 1
        metadata = live["metadata"]
        metadata.setdefault("uid", f"child-{self._uids}")
        metadata["generation"] = metadata.get("generation", 0) + 1
        self.objects[key], self.owned[key] = live, owned

    def remove_child(self, kind: str, name: str = "corpus-acme") -> None:
        """Delete a child by hand."""
        self.objects.pop((kind, name), None)
        self.owned.pop((kind, name), None)

    def _delete(self, target: ObjectTarget) -> None:
        self.writes.append(f"delete {target.kind}")
        live = self.objects.get((target.kind, target.name))
        if live is not None and live["metadata"]["uid"] == target.uid:
            self.remove_child(target.kind, target.name)

    # -- what the cluster does

    def _run_controllers(self) -> None:
        for (kind, name), live in self.objects.items():
            if kind == "Deployment":
                self._roll(name, live)
            elif kind == "PersistentVolumeClaim":
                live["status"] = {"capacity": dict(live["spec"]["resources"]["requests"])}
            elif kind == "Job":
                live["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}

    def _roll(self, name: str, live: Manifest) -> None:
        """Bring a Deployment's status one step further: seen, then its pods replaced, unless their image is broken."""
        template, replicas = repr(live["spec"]["template"]), live["spec"]["replicas"]
        known, revision = self._hashes.get(name, ("", 0))
        if template != known:
            revision += 1
            self._hashes[name] = (template, revision)
        image = live["spec"]["template"]["spec"]["containers"][0]["image"]
        is_broken = image in self.broken_images
        live["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = str(revision)
        live["status"] = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "conditions": [
                {"type": "Progressing", "reason": "ProgressDeadlineExceeded" if is_broken else "NewReplicaSetAvailable"}
            ],
        }

    def _pods(self, name: str) -> Iterator[PodSeen]:
        deployment = self.objects.get(("Deployment", names.child_name(name)))
        if deployment is not None and deployment["spec"]["replicas"]:
            image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
            is_ready = image not in self.broken_images
            yield PodSeen(name=f"corpus-{name}-1", uid="pod", is_ready=is_ready)

    def _report(self) -> ShardReport:
        return ShardReport(epoch=1, sequence=self.sequence, documents=1, document_sequence=0)

    def _keep(self, metadata: Manifest, spec: Manifest, status: TenantCorpusStatus) -> Resource:
        manifest = {
            "apiVersion": "groundplane.dev/v1alpha1",
            "kind": "TenantCorpus",
            "metadata": metadata,
            "spec": spec,
        }
        found = parse_resource(manifest)
        self.specs[found.name] = spec
        self.resources[found.name] = kept = msgspec.structs.replace(found, status=status)
        return kept

    def _remove(self, name: str) -> None:
        """Remove a resource, and with it what it owns."""
        gone = self.resources.pop(name)
        for key, live in list(self.objects.items()):
            if any(each["uid"] == gone.uid for each in live["metadata"].get("ownerReferences", [])):
                self.remove_child(*key)


def _meta(resource: Resource) -> Manifest:
    metadata = resource.metadata
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "generation": metadata.generation,
        "creationTimestamp": metadata.creation_timestamp,
        "annotations": metadata.annotations,
        "finalizers": metadata.finalizers,
        **({"deletionTimestamp": metadata.deletion_timestamp} if metadata.deletion_timestamp else {}),
    }
