"""What a pass does next, as a table of what it saw: each row is one promise to whoever wrote the resource."""

import copy

import msgspec
import pytest

from groundplane_operator import names
from groundplane_operator.observed import ChildKind, PodSeen
from groundplane_operator.plan import next_step
from groundplane_operator.reasons import Reason
from groundplane_operator.rollout import Fleet
from groundplane_operator.steps import (
    Accept,
    Apply,
    Delete,
    Done,
    Pause,
    Refuse,
    Release,
    SetFinalizer,
    Wait,
    again_seconds,
)
from tests.operator.parts import (
    BUCKET,
    IN_BUCKET,
    KEYS,
    NOW,
    ON_VOLUME,
    OTHER_UID,
    READY,
    SETTINGS,
    UID,
    accepted,
    as_live,
    finished,
    made_children,
    resource_of,
    rolled,
    seen_of,
)

NOT_READY = PodSeen(name="corpus-acme-2", uid="p2", is_ready=False)
DELETED = {"deletionTimestamp": "2026-09-21T14:13:20Z"}  # 80 s before NOW + 80
DELETED_AT = 1_790_000_000.0


def step_of(resource, **parts):
    return next_step(seen_of(resource, **parts), NOW)


def pod(detail=None, *, name="corpus-acme-2", **parts):
    return PodSeen(name=name, uid=f"uid-{name}", is_ready=False, detail=detail, **parts)


def kinds_of(step):
    return [manifest["kind"] for manifest in step.manifests]


# -- accepting


@pytest.mark.parametrize(
    ("resource", "reason", "seconds"),
    [
        pytest.param(resource_of({"tenant": ""}), Reason.INVALID_SPEC, None, id="bad-spec"),
        pytest.param(
            resource_of({"tenant": "acme", "objectStore": {"bucket": "corpora"}}),
            Reason.INVALID_SPEC,
            None,
            id="no-keys",
        ),
        pytest.param(
            resource_of({"tenant": "a", "objectStore": {**BUCKET, "endpoint": "http://minio/path"}}),
            Reason.INVALID_SPEC,
            None,
            id="endpoint-with-a-path",
        ),
        pytest.param(resource_of({"tenant": "acme"}), Reason.NO_OBJECT_STORE, 30, id="no-place"),
        pytest.param(
            resource_of({"platform": True, "objectStore": BUCKET}),
            Reason.PLATFORM_NAMESPACE,
            None,
            id="platform-elsewhere",
        ),
        pytest.param(
            resource_of({**IN_BUCKET, "subjects": [{"namespace": "other", "serviceAccount": "a"}]}),
            Reason.SUBJECT_NAMESPACE,
            None,
            id="subject-elsewhere",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused_and_not_tried_again_without_need(resource, reason, seconds):
    """A bad spec must not keep the operator busy; what an administrator can lift is looked at again."""
    step = step_of(resource)

    assert isinstance(step, Refuse)
    assert (step.reason, again_seconds(step)) == (reason, seconds)


def test_a_refusal_names_the_field():
    """Its author reads nothing but the condition."""
    step = step_of(resource_of({"tenant": "acme", "storage": {"size": "much"}}))

    assert isinstance(step, Refuse)
    assert "spec.storage.size" in step.message


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [
        pytest.param(msgspec.structs.replace(SETTINGS, any_subject_namespace=True), "agents", id="by-setting"),
        pytest.param(SETTINGS, SETTINGS.namespace, id="in-the-operators-namespace"),
    ],
)
def test_subjects_of_other_namespaces_are_taken_where_that_is_allowed(settings, namespace):
    """A platform team keeps all corpora in one namespace and its agents in others."""
    spec = {**IN_BUCKET, "subjects": [{"namespace": "other", "serviceAccount": "a"}]}

    assert isinstance(step_of(resource_of(spec, namespace=namespace), settings=settings), Accept)


def test_the_platform_corpus_is_taken_in_the_operators_namespace():
    """There it belongs to whoever runs the installation."""
    spec = {"platform": True, "objectStore": BUCKET}

    assert isinstance(step_of(resource_of(spec, namespace=SETTINGS.namespace)), Accept)


def test_claims_are_written_before_anything_is_made():
    """Were the operator to die in between, children would exist of a tenant that another resource may get."""
    assert isinstance(step_of(resource_of(IN_BUCKET)), Accept)


def test_a_changed_grant_is_written_by_itself():
    """Who may ask does not depend on any pod."""
    before = accepted(IN_BUCKET)
    edited = resource_of(
        {**IN_BUCKET, "subjects": [{"namespace": "agents", "serviceAccount": "a"}]}, generation=2, status=before.status
    )

    assert isinstance(next_step(finished(edited), NOW), Accept)


# -- pausing, finalizers


def test_a_paused_resource_is_left_alone_whatever_is_wrong_with_it():
    """Whoever works on it by hand must not be worked against, not even while it is being deleted."""
    annotations = {names.PAUSED_ANNOTATION: "true"}

    for resource in (
        resource_of(IN_BUCKET, annotations=annotations),
        resource_of({"tenant": ""}, annotations=annotations),
        accepted({**IN_BUCKET, "deletionPolicy": "Delete"}, annotations=annotations, **DELETED),
    ):
        assert isinstance(step_of(resource), Pause)


@pytest.mark.parametrize(
    ("spec", "finalizers", "expected"),
    [
        pytest.param({**IN_BUCKET, "deletionPolicy": "Delete"}, [], SetFinalizer(present=True), id="delete-waits"),
        pytest.param(IN_BUCKET, [names.FINALIZER], SetFinalizer(present=False), id="retain-does-not"),
        pytest.param(
            {**ON_VOLUME, "deletionPolicy": "Delete"},
            [names.FINALIZER],
            SetFinalizer(present=False),
            id="volumes-go-alone",
        ),
    ],
)
def test_a_finalizer_is_there_only_while_there_is_something_to_clean(spec, finalizers, expected):
    """A finalizer without need is a namespace that cannot be deleted while the operator is away."""
    assert step_of(accepted(spec, finalizers=finalizers)) == expected


# -- children


def test_all_children_are_made_at_once_and_the_pod_last():
    """A pod that starts before its keys would fail first."""
    step = step_of(accepted(IN_BUCKET))

    assert isinstance(step, Apply)
    assert kinds_of(step) == ["ServiceAccount", "ConfigMap", "Service", "NetworkPolicy", "Deployment"]
    assert not step.is_rollout


@pytest.mark.parametrize(
    "spec", [IN_BUCKET, ON_VOLUME, {**IN_BUCKET, "suspended": True}], ids=["bucket", "volume", "off"]
)
def test_nothing_is_done_in_a_steady_state(spec):
    """A hundred corpora must cost the API server nothing."""
    step = next_step(finished(accepted(spec)), NOW)

    assert step == Done(seconds=SETTINGS.poll_seconds)


@pytest.mark.parametrize("kind", [kind for kind in ChildKind if kind != ChildKind.CLEANUP_JOB])
def test_a_child_that_was_deleted_is_made_again_and_nothing_else_is_touched(kind):
    """Nobody edits the resource to get it back."""
    spec = ON_VOLUME if kind == ChildKind.VOLUME_CLAIM else IN_BUCKET
    seen = finished(accepted(spec))
    children = {name: child for name, child in seen.children.items() if name != kind}
    step = next_step(msgspec.structs.replace(seen, children=children), NOW)

    assert isinstance(step, Apply)
    assert kinds_of(step) == [kind]


def test_an_owned_field_edited_by_hand_is_put_back_and_named():
    """The spec is the truth; the condition says what was wrong."""
    seen = finished(accepted(IN_BUCKET))
    children = copy.deepcopy(dict(seen.children))
    children[ChildKind.SERVICE]["spec"]["selector"] = {"app": "mine"}
    step = next_step(msgspec.structs.replace(seen, children=children), NOW)

    assert isinstance(step, Apply)
    assert kinds_of(step) == ["Service"]
    assert step.difference.startswith("Service spec.selector.")


def test_an_image_edited_by_hand_is_put_back_without_asking_the_fleet():
    """A repair brings back what ran before."""
    seen = finished(accepted(IN_BUCKET), fleet=Fleet(failed=frozenset({"agents/other"})))
    children = copy.deepcopy(dict(seen.children))
    children[ChildKind.DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] = "mine"
    step = next_step(msgspec.structs.replace(seen, children=children), NOW)

    assert isinstance(step, Apply)
    assert step.manifests[0]["spec"]["template"]["spec"]["containers"][0]["image"] == SETTINGS.shard_image


def test_policies_that_are_switched_off_are_removed():
    """A setting that is taken back must not go on denying."""
    seen = finished(accepted(IN_BUCKET))
    off = msgspec.structs.replace(SETTINGS, network_policies=False)
    step = next_step(msgspec.structs.replace(seen, settings=off), NOW)

    assert isinstance(step, Delete)
    assert [target.kind for target in step.targets] == ["NetworkPolicy"]


# -- other people's objects


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        pytest.param({"ownerReferences": [], "labels": {}}, Reason.NAME_TAKEN, id="nobodys"),
        pytest.param(
            {"ownerReferences": [{"kind": "Rollout", "name": "x", "uid": "u", "controller": True}]},
            Reason.NAME_TAKEN,
            id="another-controllers",
        ),
        pytest.param(
            {"ownerReferences": [{"kind": "TenantCorpus", "name": "acme", "uid": OTHER_UID, "controller": True}]},
            Reason.EARLIER_CHILDREN,
            id="of-an-earlier-resource",
        ),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, Reason.EARLIER_CHILDREN, id="being-deleted"),
    ],
)
def test_objects_that_are_not_ours_are_not_touched(metadata, reason):
    """Applying by force over somebody's object would destroy it, and two controllers would fight."""
    seen = finished(accepted(IN_BUCKET))
    service = as_live(seen.children[ChildKind.SERVICE], **metadata)
    step = next_step(msgspec.structs.replace(seen, children={**seen.children, ChildKind.SERVICE: service}), NOW)

    assert isinstance(step, Wait)
    assert step.reason == reason


def test_an_owner_reference_that_was_taken_off_is_put_back():
    """Else the child would outlive its resource."""
    seen = finished(accepted(IN_BUCKET))
    service = as_live(seen.children[ChildKind.SERVICE], ownerReferences=[])
    step = next_step(msgspec.structs.replace(seen, children={**seen.children, ChildKind.SERVICE: service}), NOW)

    assert isinstance(step, Apply)
    assert step.difference == "Service metadata.ownerReferences[0b51a2ab-6a1f-4a54-8f6e-0a5a1c4d9c11].apiVersion"


def test_a_volume_that_was_kept_is_taken_over_by_the_same_tenant_alone():
    """deletionPolicy Retain keeps the data for a resource of the same name; another tenant's must not mount it."""
    mine, other = accepted(ON_VOLUME), accepted({**ON_VOLUME, "tenant": "globex"})
    kept = {ChildKind.VOLUME_CLAIM: made_children(seen_of(mine))[ChildKind.VOLUME_CLAIM]}
    taken, refused = step_of(mine, children=kept), step_of(other, children=kept)

    assert isinstance(taken, Apply)
    assert "PersistentVolumeClaim" not in kinds_of(taken)
    assert isinstance(refused, Wait)
    assert refused.reason == Reason.VOLUME_OF_ANOTHER_CORPUS


# -- what has to be there first


@pytest.mark.parametrize(
    ("parts", "reason", "word"),
    [
        pytest.param({"credentials": None}, Reason.SECRET_MISSING, "agents/bucket-keys does not exist", id="no-secret"),
        pytest.param(
            {"credentials": frozenset({"access-key"})}, Reason.SECRET_MISSING, "secret-key", id="half-a-secret"
        ),
        pytest.param({"public_keys": {}}, Reason.KEYS_MISSING, "public keys", id="no-keys"),
    ],
)
def test_a_pod_is_not_made_before_it_can_start(parts, reason, word):
    """The condition says what is missing, within seconds, instead of a pod that hangs; everything else is made."""
    resource = accepted(IN_BUCKET)
    first = step_of(resource, **parts)
    children = made_children(seen_of(resource, **parts))
    step = step_of(resource, children=children, **parts)

    assert isinstance(first, Apply)
    assert "Deployment" not in kinds_of(first)
    assert isinstance(step, Wait)
    assert (step.reason, step.is_degraded) == (reason, True)
    assert word in step.message
    assert 10 <= step.seconds <= 30


def test_a_secret_that_was_deleted_under_a_running_corpus_is_said():
    """Its next pod would not start; the one that runs goes on."""
    step = next_step(finished(accepted(IN_BUCKET), credentials=None), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.SECRET_MISSING


def test_keys_that_are_not_known_do_not_empty_the_config_map():
    """A shard that trusts no key refuses every request."""
    seen = msgspec.structs.replace(finished(accepted(IN_BUCKET)), public_keys={})
    step = next_step(seen, NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.KEYS_MISSING


def test_a_suspended_corpus_needs_nothing():
    """It has no pod; its Secret may be gone."""
    assert isinstance(next_step(finished(accepted({**IN_BUCKET, "suspended": True}), credentials=None), NOW), Done)


# -- roll-outs


def edited(spec, **parts):
    """Return a finished corpus whose spec has been edited since."""
    before = accepted(IN_BUCKET)
    seen = finished(before)
    resource = resource_of({**IN_BUCKET, **spec}, generation=2, status=before.status)
    return msgspec.structs.replace(seen, resource=resource, **parts)


LIMITED = {"resources": {"limits": {"memory": "2Gi"}}}


def test_a_change_of_the_pod_is_a_roll_out_that_says_what_differs():
    """Whoever sees pods being replaced asks why."""
    step = next_step(edited(LIMITED), NOW)

    assert isinstance(step, Apply)
    assert step.is_rollout
    annotations = step.manifests[0]["metadata"]["annotations"]
    assert annotations[names.CHANGE_ANNOTATION] == "spec.containers[shard].resources.limits.memory"


@pytest.mark.parametrize(
    ("fleet", "word"),
    [
        pytest.param(Fleet(failed=frozenset({"agents/globex"})), "agents/globex failed", id="one-has-failed"),
        pytest.param(Fleet(rolling=frozenset({"a/1", "a/2", "a/3"})), "waits for a/1, a/2, a/3", id="no-place"),
    ],
)
def test_a_roll_out_waits_for_the_fleet_and_says_for_whom(fleet, word):
    """A fault that comes with a new image stops at the first corpora."""
    step = next_step(edited(LIMITED, fleet=fleet), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.ROLLOUT_WAITING
    assert word in step.message
    assert "spec.containers[shard].resources.limits.memory" in step.message


def test_while_a_roll_out_waits_the_pods_of_before_are_kept_up():
    """Drift is repaired to what runs, not to what is to come."""
    seen = edited(LIMITED, fleet=Fleet(failed=frozenset({"agents/globex"})))
    children = copy.deepcopy(dict(seen.children))
    before = copy.deepcopy(children[ChildKind.DEPLOYMENT]["spec"])
    children[ChildKind.DEPLOYMENT]["spec"]["replicas"] = 2
    children[ChildKind.DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] = "mine"
    step = next_step(msgspec.structs.replace(seen, children=children), NOW)

    assert isinstance(step, Apply)
    assert (step.manifests[0]["spec"], step.is_rollout) == (before, False)


@pytest.mark.parametrize(
    "fleet",
    [Fleet(failed=frozenset({"agents/acme"})), Fleet(rolling=frozenset({"agents/acme", "a/2", "a/3"}))],
    ids=["has-failed-itself", "rolls-already"],
)
def test_the_repair_of_a_failed_roll_out_passes(fleet):
    """Else nobody could ever end the stop."""
    assert isinstance(next_step(edited(LIMITED, fleet=fleet), NOW), Apply)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(IN_BUCKET, {**IN_BUCKET, **LIMITED, "suspended": True}, id="suspending"),
        pytest.param({**IN_BUCKET, "suspended": True}, {**IN_BUCKET, **LIMITED}, id="resuming"),
    ],
)
def test_a_corpus_without_pods_waits_for_nobody(before, after):
    """Where nothing runs nothing is replaced."""
    stopped = Fleet(failed=frozenset({"agents/globex"}))
    seen = msgspec.structs.replace(finished(accepted(before)), resource=accepted(after), fleet=stopped)
    step = next_step(seen, NOW)

    assert isinstance(step, Apply)
    assert step.manifests[0]["spec"]["template"]["spec"]["containers"][0]["resources"] == LIMITED["resources"]


@pytest.mark.parametrize(
    ("pods", "finished_generation", "passes"),
    [
        pytest.param((NOT_READY,), 1, True, id="edited-while-down"),
        pytest.param((NOT_READY,), 2, False, id="not-edited"),
        pytest.param((READY,), 1, False, id="edited-while-serving"),
    ],
)
def test_the_repair_of_a_corpus_that_is_down_waits_for_nobody(pods, finished_generation, passes):
    """There is nothing to lose; a new image for all is no repair of one."""
    seen = edited(LIMITED, fleet=Fleet(failed=frozenset({"agents/globex"})), pods=pods)
    status = msgspec.structs.replace(seen.resource.status, observed_generation=finished_generation)
    resource = msgspec.structs.replace(seen.resource, status=status)

    assert isinstance(next_step(msgspec.structs.replace(seen, resource=resource), NOW), Apply) is passes


def test_a_fault_is_said_before_a_roll_out_that_waits():
    """The corpus is down, and its owner would read that all is well and others are to blame."""
    seen = edited(LIMITED, fleet=Fleet(failed=frozenset({"agents/globex"})), pods=(pod("restoring after log_gap"),))
    status = msgspec.structs.replace(seen.resource.status, observed_generation=2)
    resource = msgspec.structs.replace(seen.resource, status=status)
    step = next_step(msgspec.structs.replace(seen, resource=resource), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.CORPUS_DAMAGED


def test_the_old_pod_of_a_hand_over_is_no_fault():
    """It is superseded for a moment at the end of every roll-out, and alerts hang on Degraded."""
    state = {"revision": 2, "replicas": 2, "reason": "ReplicaSetUpdated"}
    step = next_step(with_pods(pod("superseded"), pod("taking_over", name="corpus-acme-3"), state=state), NOW)

    assert isinstance(step, Wait)
    assert (step.reason, step.is_degraded) == (Reason.ROLLING_OUT, False)


def test_a_roll_out_into_a_missing_secret_is_held_back():
    """The old pod serves; the new one could not start."""
    changed = {"objectStore": {**BUCKET, "credentialsSecret": {"name": "new"}}}
    step = next_step(edited(changed, credentials=None), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.SECRET_MISSING
    assert "agents/new" in step.message


def test_another_version_of_the_operator_replaces_no_pod(monkeypatch):
    """An upgrade of five hundred corpora at once is an outage."""
    seen = finished(accepted(IN_BUCKET))

    def other_template(inputs):
        return {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "shard", "image": "new"}]}}

    monkeypatch.setattr("groundplane_operator.children.render_pod_template", other_template)

    assert isinstance(next_step(seen, NOW), Done)
    limited = msgspec.structs.replace(seen, resource=edited(LIMITED).resource)
    step = next_step(limited, NOW)
    assert isinstance(step, Apply)
    assert step.manifests[0]["spec"]["template"] == other_template(None)


def test_another_image_is_a_roll_out():
    """That is how a fleet gets a new shard."""
    newer = msgspec.structs.replace(SETTINGS, shard_image="groundplane:2")
    step = next_step(msgspec.structs.replace(finished(accepted(IN_BUCKET)), settings=newer), NOW)

    assert isinstance(step, Apply)
    assert step.is_rollout


# -- pods


def with_pods(*pods, state=None, spec=IN_BUCKET, **parts):
    seen = finished(accepted(spec), pods=pods, shard=None, **parts)
    children = dict(seen.children)
    children[ChildKind.DEPLOYMENT] = rolled(children[ChildKind.DEPLOYMENT], **(state or {}))
    return msgspec.structs.replace(seen, children=children)


@pytest.mark.parametrize(
    ("pods", "state", "reason", "is_degraded"),
    [
        pytest.param((), {}, Reason.SHARD_STARTING, False, id="no-pod-yet"),
        pytest.param((pod("restoring 3/9 MiB"),), {}, Reason.SHARD_STARTING, False, id="restoring"),
        pytest.param((pod("checking_store after store_denied"),), {}, Reason.STORE_UNAVAILABLE, True, id="wrong-keys"),
        pytest.param((pod("store_unreachable"),), {}, Reason.STORE_UNAVAILABLE, True, id="no-server"),
        pytest.param((pod("restoring after behind_witness"),), {}, Reason.BEHIND_WITNESS, True, id="store-lost-writes"),
        pytest.param((pod("restoring after log_gap"),), {}, Reason.CORPUS_DAMAGED, True, id="damaged"),
        pytest.param((pod("restoring after something_new"),), {}, Reason.SHARD_NOT_READY, True, id="unknown-code"),
        pytest.param((pod(trouble="image cannot be pulled"),), {}, Reason.POD_NOT_STARTING, True, id="no-image"),
        pytest.param(
            (pod(restore_trouble="sequence 9: expected one that is there"),),
            {},
            Reason.RESTORE_FAILED,
            True,
            id="restore",
        ),
        pytest.param(
            (READY, NOT_READY),
            {"revision": 2, "updatedReplicas": 1, "replicas": 2},
            Reason.ROLLING_OUT,
            False,
            id="rolling",
        ),
        pytest.param(
            (READY, NOT_READY),
            {"revision": 2, "reason": "ProgressDeadlineExceeded", "replicas": 2},
            Reason.ROLLOUT_FAILED,
            True,
            id="failed",
        ),
        pytest.param((READY,), {}, Reason.SHARD_UNREACHABLE, True, id="no-answer"),
    ],
)
def test_what_a_corpus_waits_for_is_said_in_one_word(pods, state, reason, is_degraded):
    """`kubectl describe` must answer the question why it is not ready."""
    step = next_step(with_pods(*pods, state=state), NOW)

    assert isinstance(step, Wait)
    assert (step.reason, step.is_degraded) == (reason, is_degraded)
    assert 5 <= step.seconds <= 30


def test_how_far_a_download_is_does_not_change_what_is_said():
    """Each percentage would be a write to the API server."""
    steps = {next_step(with_pods(pod(f"restoring after store_io {mib}/9 MiB")), NOW) for mib in (1, 5)} | {
        next_step(with_pods(pod(f"restoring after store_io {mib}/9 MiB")), NOW + 60) for mib in (7, 9)
    }

    assert len(steps) == 1


@pytest.mark.parametrize(
    ("others", "is_deleted"),
    [
        pytest.param((), True, id="alone"),
        pytest.param((READY,), False, id="another-serves"),
        pytest.param((pod("taking_over", name="corpus-acme-3"),), False, id="another-is-about-to"),
        pytest.param((pod(trouble="no image", name="corpus-acme-3"),), True, id="another-cannot-start"),
        pytest.param((pod("superseded", name="corpus-acme-3"),), True, id="both-are-superseded"),
    ],
)
def test_a_superseded_pod_is_replaced_when_no_other_serves_or_is_about_to(others, is_deleted):
    """It never contends again, so a corpus without another pod would stay down; two that are replaced in turn would duel."""
    step = next_step(with_pods(pod("superseded"), *others), NOW)

    assert isinstance(step, Delete) is is_deleted
    if isinstance(step, Delete):
        assert step.targets[0].uid == "uid-corpus-acme-2"


def test_resuming_waits_until_the_pod_of_before_has_ended():
    """Suspended means that nothing runs."""
    step = next_step(finished(accepted({**IN_BUCKET, "suspended": True}), pods=(READY,)), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.SHARD_STOPPING


# -- volumes


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        pytest.param("10Gi", "20Gi", Apply, id="larger-grows"),
        pytest.param("10Gi", "10240Mi", Apply, id="other-words-are-sealed-once"),
        pytest.param("10Gi", "10Gi", Done, id="equal-is-left-alone"),
        pytest.param("20Gi", "10Gi", Refuse, id="smaller-is-refused"),
    ],
)
def test_a_volume_grows_but_never_shrinks(live, wanted, expected):
    """No edit of spec.storage can destroy data."""
    sized = {"tenant": "acme", "storage": {"size": live, "className": "fast"}}
    seen = finished(accepted(sized))
    changed = accepted({**sized, "storage": {"size": wanted, "className": "fast"}})

    assert isinstance(next_step(msgspec.structs.replace(seen, resource=changed), NOW), expected)


def test_a_volume_that_grows_is_waited_for():
    """Until the file system has grown the corpus does not have what its spec asks for."""
    seen = finished(accepted(ON_VOLUME))
    claim = {**seen.children[ChildKind.VOLUME_CLAIM], "status": {"capacity": {"storage": "5Gi"}}}
    step = next_step(msgspec.structs.replace(seen, children={**seen.children, ChildKind.VOLUME_CLAIM: claim}), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.VOLUME_GROWING


# -- deletion

GOING = {**IN_BUCKET, "deletionPolicy": "Delete"}


def going(spec=GOING, *, after=10.0, **parts):
    metadata = {"finalizers": [names.FINALIZER], **DELETED}
    return next_step(seen_of(accepted(spec, **metadata), **parts), DELETED_AT + after)


def job(kind):
    step = going()
    live = as_live(next(manifest for manifest in step.manifests if manifest["kind"] == "Job"))
    return {ChildKind.CLEANUP_JOB: {**live, "status": {"conditions": [{"type": kind, "status": "True"}]}}}


def test_the_shard_is_stopped_before_its_bucket_is_emptied():
    """It would write on."""
    children = made_children(seen_of(accepted(GOING)))
    stop = going(children=children)
    stopped = {kind: child for kind, child in children.items() if kind != ChildKind.DEPLOYMENT}
    waiting = going(children=stopped, pods=(READY,))
    late = going(children=stopped, pods=(READY,), after=130)

    assert isinstance(stop, Delete)
    assert [target.kind for target in stop.targets] == ["Deployment"]
    assert isinstance(waiting, Wait)
    assert waiting.reason == Reason.SHARD_STOPPING
    assert isinstance(late, Apply)
    assert kinds_of(late) == ["Job"]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param({"children": job("Complete")}, Reason.CLEANED_UP, id="clean"),
        pytest.param({"children": job("Failed")}, Reason.CLEANUP_INCOMPLETE, id="failed"),
        pytest.param({"is_namespace_ending": True}, Reason.CLEANUP_INCOMPLETE, id="namespace-ends"),
        pytest.param({"after": 900.0, "children": job("Suspended")}, Reason.CLEANUP_INCOMPLETE, id="too-late"),
        pytest.param({"spec": {"tenant": ""}}, Reason.CLEANUP_INCOMPLETE, id="spec-cannot-be-read"),
        pytest.param({"spec": {**GOING, "deletionPolicy": "Retain"}}, None, id="policy-was-changed"),
    ],
)
def test_a_deleted_resource_is_always_let_go_and_what_is_left_is_said(parts, reason):
    """`kubectl delete` and a namespace's deletion end, whatever the bucket does."""
    step = going(**parts)

    assert isinstance(step, Release)
    assert step.reason == reason
    assert (UID in step.message) is (reason is not None)


def test_while_the_job_works_it_is_waited_for():
    """Releasing earlier would take the Job away."""
    step = going(children=job("Suspended"))

    assert isinstance(step, Wait)
    assert step.reason == Reason.CLEANING_UP


def test_a_job_of_another_resource_is_not_believed():
    """Its completion says nothing about our objects."""
    theirs = job("Complete")
    live = copy.deepcopy(theirs[ChildKind.CLEANUP_JOB])
    live["metadata"]["ownerReferences"][0]["uid"] = OTHER_UID

    assert not isinstance(going(children={ChildKind.CLEANUP_JOB: live}), Release)


def test_a_deployment_of_another_resource_is_not_deleted():
    """Somebody may have made one of the same name since."""
    children = made_children(seen_of(accepted(GOING, uid=OTHER_UID)))

    assert not isinstance(going(children={ChildKind.DEPLOYMENT: children[ChildKind.DEPLOYMENT]}), Delete)


def test_without_our_finalizer_there_is_nothing_to_do():
    """Somebody else's finalizer keeps it."""
    step = next_step(seen_of(accepted(IN_BUCKET, **DELETED)), NOW)

    assert isinstance(step, Wait)
    assert step.reason == Reason.DELETING


def test_a_key_that_somebody_adds_is_not_trusted():
    """Whoever may edit a ConfigMap could let themselves into the corpus with a key of their own."""
    seen = finished(accepted(IN_BUCKET))
    children = copy.deepcopy(dict(seen.children))
    children[ChildKind.CONFIG_MAP]["data"] |= {"router-evil.pem": "EVIL", "notes": "theirs"}
    step = next_step(msgspec.structs.replace(seen, children=children), NOW)

    assert isinstance(step, Delete)
    assert [target.kind for target in step.targets] == ["ConfigMap"]
    assert "router-evil.pem" in step.message


def test_other_files_in_the_config_map_are_left_alone():
    """A shard does not look at them."""
    seen = finished(accepted(IN_BUCKET))
    children = copy.deepcopy(dict(seen.children))
    children[ChildKind.CONFIG_MAP]["data"] |= {"notes": "theirs", "key.pem": "theirs"}

    assert isinstance(next_step(msgspec.structs.replace(seen, children=children), NOW), Done)


def test_a_key_that_was_rotated_out_is_applied_away():
    """It is ours, so nothing has to be made anew."""
    seen = msgspec.structs.replace(
        finished(accepted(IN_BUCKET)), public_keys={"operator-bb.pem": KEYS["operator-bb.pem"]}
    )

    assert isinstance(next_step(seen, NOW), Apply)


def test_public_keys_reach_the_config_map_without_touching_the_pod():
    """A rotation must not restart anything."""
    seen = msgspec.structs.replace(finished(accepted(IN_BUCKET)), public_keys={**KEYS, "router-cc.pem": "CC"})
    step = next_step(seen, NOW)

    assert isinstance(step, Apply)
    assert kinds_of(step) == ["ConfigMap"]
