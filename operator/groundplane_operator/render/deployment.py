"""The Deployment of a corpus: one pod, or none while it is suspended.

In a bucket the next pod follows the log of the one before until it takes over; on a volume, which one node mounts, the one
before ends first. The pod template, its inputs' digest and what changed last are remembered in annotations: see `plan`.
"""

import msgspec

from groundplane_operator import names
from groundplane_operator.render.common import Corpus, Manifest, digest, manifest, seal, with_annotations
from groundplane_operator.store_location import Bucket


class PodRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A pod template, the digest of the inputs that it was made from, and the field by which it differs from the last."""

    template: Manifest
    inputs: str
    change: str = ""


def render_deployment(corpus: Corpus, revision: PodRevision) -> Manifest:
    """Return the Deployment that runs `revision`."""
    is_in_bucket = isinstance(corpus.store, Bucket)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": 0 if corpus.spec.suspended else 1,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": corpus.settings.rollout_seconds,
        "strategy": surge if is_in_bucket else {"type": "Recreate"},
        "selector": {"matchLabels": names.shard_selector(corpus.name)},
        "template": revision.template,
    }
    annotations = {
        names.INPUTS_ANNOTATION: revision.inputs,
        names.TEMPLATE_ANNOTATION: msgspec.json.encode(revision.template, order="sorted").decode(),
        names.TEMPLATE_DIGEST_ANNOTATION: digest(revision.template),
        **({names.CHANGE_ANNOTATION: revision.change} if revision.change else {}),
    }
    return seal(with_annotations(manifest(corpus, "apps/v1", "Deployment", spec=spec), annotations))


def try_read_revision(deployment: Manifest | None) -> PodRevision | None:
    """Return what a live Deployment remembers, None if there is none or somebody has edited it."""
    annotations = (deployment or {}).get("metadata", {}).get("annotations", {})
    try:
        template = msgspec.json.decode(annotations.get(names.TEMPLATE_ANNOTATION, ""), type=Manifest)
    except msgspec.DecodeError:
        return None
    if digest(template) != annotations.get(names.TEMPLATE_DIGEST_ANNOTATION):
        return None
    return PodRevision(
        template=template,
        inputs=annotations.get(names.INPUTS_ANNOTATION, ""),
        change=annotations.get(names.CHANGE_ANNOTATION, ""),
    )
