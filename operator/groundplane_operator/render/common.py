"""What the builders share: the corpus they render, metadata, owner references, the seal."""

import hashlib
from typing import Any

import msgspec

from groundplane.api.v1alpha1 import API_VERSION, KIND, TenantCorpusSpec
from groundplane_operator import names
from groundplane_operator.settings import OperatorSettings
from groundplane_operator.store_location import StoreLocation

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted resource: what its children are rendered from."""

    name: str
    namespace: str
    uid: str
    spec: TenantCorpusSpec
    store: StoreLocation
    settings: OperatorSettings


def manifest(corpus: Corpus, api_version: str, kind: str, *, name: str = "", **body: Any) -> Manifest:
    """Return a child of `corpus` with name, namespace, labels and owner; `body` is what stands beside metadata."""
    metadata = {
        "name": name or names.child_name(corpus.name),
        "namespace": corpus.namespace,
        "labels": names.labels(corpus.name),
        "ownerReferences": [owner_reference(corpus)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def owner_reference(corpus: Corpus) -> Manifest:
    """Return the reference by which the cluster removes a child when its resource is gone."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": corpus.name, "uid": corpus.uid, "controller": True}


def with_annotations(rendered: Manifest, annotations: dict[str, str]) -> Manifest:
    """Return the manifest with `annotations` on top of its own."""
    metadata = rendered["metadata"]
    merged = {**metadata.get("annotations", {}), **annotations}
    return {**rendered, "metadata": {**metadata, "annotations": merged}}


def seal(rendered: Manifest) -> Manifest:
    """Return the manifest with its digest as an annotation.

    Server-side apply removes a field that is rendered no longer; only the digest shows that this has to happen.
    """
    return with_annotations(rendered, {names.APPLIED_ANNOTATION: digest(rendered)})


def digest(value: object) -> str:
    """Return 32 hexadecimal digits of the value's JSON, in which the order of keys and fields does not count."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]
