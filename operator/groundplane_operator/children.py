"""The children of a corpus: what they have to be, and what differs from that.

Pods are replaced only if what the user controls has changed: as long as the inputs' digest of the live Deployment is the
wanted one, its pods stay as the template that was applied last says, whatever this version of the operator would render.
A new template waits while the fleet holds it back, or while its pods could not start; meanwhile the old one is kept up.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from groundplane_operator import names
from groundplane_operator.leaves import first_difference, template_difference
from groundplane_operator.observed import ChildKind, Observed
from groundplane_operator.reasons import Reason
from groundplane_operator.render.common import Corpus, Manifest
from groundplane_operator.render.config_map import render_config_map
from groundplane_operator.render.deployment import PodRevision, render_deployment, try_read_revision
from groundplane_operator.render.network_policy import render_network_policy
from groundplane_operator.render.pod import pod_inputs, render_pod_template
from groundplane_operator.render.service import render_service
from groundplane_operator.render.service_account import render_service_account
from groundplane_operator.render.volume_claim import render_volume_claim
from groundplane_operator.rollout import try_hold_back
from groundplane_operator.steps import Apply, Delete, ObjectTarget, Step, Wait
from groundplane_operator.store_location import Bucket
from groundplane_operator.witness import Witness, Witnessed, format_time, raise_witness, try_parse_witness

CREDENTIAL_KEYS: Final = frozenset({"access-key", "secret-key"})
MISSING_SECONDS: Final = 15.0
HELD_BACK_SECONDS: Final = 10.0
_KEY_FILE: Final = re.compile(r"(router|operator)-.*\.pem")  # what a shard takes for a key: groundplane.tokens


class Children(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be there; None must not be. `held_back` says why the Deployment is not yet as the spec asks."""

    wanted: Mapping[ChildKind, Manifest | None]
    held_back: Wait | None
    is_rollout: bool


def wanted_children(seen: Observed, corpus: Corpus, now: float) -> Children:
    """Return the children of an accepted corpus, in the order in which they are made."""
    revision, held_back = _choose_revision(seen, corpus)
    live = seen.children.get(ChildKind.DEPLOYMENT)
    known = try_read_revision(live)
    wanted: dict[ChildKind, Manifest | None] = {
        ChildKind.SERVICE_ACCOUNT: render_service_account(corpus),
        ChildKind.SERVICE: render_service(corpus),
        ChildKind.NETWORK_POLICY: render_network_policy(corpus),
        ChildKind.VOLUME_CLAIM: render_volume_claim(corpus),
    }
    if seen.public_keys:  # without any the ConfigMap stays as it is: a shard that trusts no key serves nobody
        witnessed = next_witness(seen, now)
        wanted[ChildKind.CONFIG_MAP] = render_config_map(corpus, seen.public_keys, witnessed)
    if revision is not None:
        wanted[ChildKind.DEPLOYMENT] = render_deployment(corpus, revision)
    is_rollout = revision is not None and live is not None and (known is None or known.inputs != revision.inputs)
    ordered = {kind: wanted[kind] for kind in ChildKind if kind in wanted}
    return Children(wanted=ordered, held_back=held_back, is_rollout=is_rollout)


def plan_children(seen: Observed, children: Children) -> Step | None:
    """Return how live children become the wanted ones, None if they are."""
    surplus = [kind for kind, manifest in children.wanted.items() if manifest is None and kind in seen.children]
    if ChildKind.NETWORK_POLICY in surplus:  # a volume is never surplus: the spec cannot leave it
        live = seen.children[ChildKind.NETWORK_POLICY]
        return Delete(targets=(target_of(live),), reason=Reason.APPLYING, message="network policies are switched off")
    differing = list(_differing(seen, children))
    if not differing:
        return _drop_foreign_keys(seen)
    kind, path, _ = differing[0]
    manifests = tuple(manifest for _, _, manifest in differing)
    return Apply(manifests=manifests, difference=f"{kind} {path}", is_rollout=children.is_rollout)


def missing_for_pods(seen: Observed, corpus: Corpus) -> Wait | None:
    """Return what a pod of the corpus would wait for in vain, None if there is nothing."""
    if corpus.spec.suspended:
        return None
    bucket = corpus.store
    if isinstance(bucket, Bucket) and not (seen.credentials or frozenset()) >= CREDENTIAL_KEYS:
        lacking = ", ".join(sorted(CREDENTIAL_KEYS - (seen.credentials or frozenset())))
        found = "does not exist" if seen.credentials is None else f"lacks {lacking}"
        message = f"Secret {corpus.namespace}/{bucket.credentials_secret} {found}: create it with {lacking}"
        return Wait(reason=Reason.SECRET_MISSING, message=message, seconds=MISSING_SECONDS, is_degraded=True)
    if not seen.public_keys:
        message = "the operator has no public keys yet: it makes them at its start"
        return Wait(reason=Reason.KEYS_MISSING, message=message, seconds=MISSING_SECONDS, is_degraded=True)
    return None


def next_witness(seen: Observed, now: float) -> Witnessed | None:
    """Return the witness that the ConfigMap has to hold: what it holds, raised by what the shard reports.

    Where somebody has deleted the ConfigMap the sequence in the status stands in, under epoch 0, which is below all others.
    """
    live = seen.children.get(ChildKind.CONFIG_MAP, {})
    annotations = live.get("metadata", {}).get("annotations", {})
    text = live.get("data", {}).get(names.WITNESS_FILE, "")
    known = try_parse_witness(text, annotations.get(names.WITNESSED_ANNOTATION, ""))
    sequence = seen.resource.status.sequence
    if known is None and sequence is not None:
        known = Witnessed(Witness(0, sequence), format_time(0))
    reported = None if seen.shard is None else Witness(seen.shard.epoch, seen.shard.sequence)
    return raise_witness(known, reported, now)


def target_of(live: Manifest) -> ObjectTarget:
    """Return `live` as something to be deleted."""
    metadata = live["metadata"]
    return ObjectTarget(
        api_version=live["apiVersion"],
        kind=live["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
    )


def _drop_foreign_keys(seen: Observed) -> Delete | None:
    """Remove a ConfigMap, to be made again, whose public keys are not only ours: a shard trusts every one of them.

    Applying does not help: a field that somebody else has added stays theirs. One of ours that is no longer rendered, after
    a rotation, is gone by then.
    """
    live = seen.children.get(ChildKind.CONFIG_MAP)
    if live is None or not seen.public_keys:
        return None
    foreign = sorted(
        name for name in live.get("data", {}) if _KEY_FILE.fullmatch(name) and name not in seen.public_keys
    )
    if not foreign:
        return None
    message = (
        f"ConfigMap {live['metadata']['name']} holds {foreign[0]}, a key that is not the operator's: it is made anew"
    )
    return Delete(targets=(target_of(live),), reason=Reason.APPLYING, message=message)


def _differing(seen: Observed, children: Children) -> Iterator[tuple[ChildKind, str, Manifest]]:
    for kind, manifest in children.wanted.items():
        path = None if manifest is None else first_difference(manifest, seen.children.get(kind))
        if manifest is not None and path is not None:
            yield kind, path, manifest


def _choose_revision(seen: Observed, corpus: Corpus) -> tuple[PodRevision | None, Wait | None]:
    """Return the pods that the Deployment has to run, and why they are not those that the spec asks for.

    No revision: the Deployment is left alone, or not made yet.
    """
    inputs = pod_inputs(corpus)
    live = seen.children.get(ChildKind.DEPLOYMENT)
    known = try_read_revision(live)
    if known is not None and known.inputs == inputs.digest:
        return known, None
    fresh = PodRevision(template=render_pod_template(inputs), inputs=inputs.digest)
    if live is not None:
        before = known.template if known is not None else live["spec"]["template"]
        fresh = msgspec.structs.replace(fresh, change=template_difference(fresh.template, before))
    held_back = missing_for_pods(seen, corpus) or _held_back_by_fleet(seen, corpus, fresh)
    return (fresh, None) if held_back is None else (known, held_back)


def _held_back_by_fleet(seen: Observed, corpus: Corpus, fresh: PodRevision) -> Wait | None:
    """Return why pods may not be replaced now; where there are none, or they stay as they are, nothing holds back."""
    live = seen.children.get(ChildKind.DEPLOYMENT)
    if live is None or live["spec"].get("replicas") == 0 or corpus.spec.suspended or not fresh.change:
        return None
    if not seen.is_serving and seen.resource.generation != seen.resource.status.observed_generation:
        return None  # an edit of a corpus that is down anyway may be its repair
    name = f"{corpus.namespace}/{corpus.name}"
    why = try_hold_back(name, seen.fleet, corpus.settings.max_concurrent_rollouts)
    if why is None:
        return None
    message = f"pods are to be replaced, since {fresh.change} differs; {why}"
    return Wait(reason=Reason.ROLLOUT_WAITING, message=message, seconds=HELD_BACK_SECONDS)
