"""The status never runs ahead of the truth, does not flap, and is not written in vain."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane.api.v1alpha1 import CONDITION_TYPES, Condition, TenantCorpusStatus
from groundplane.wire.names import corpus_key
from groundplane_operator import names
from groundplane_operator.claims import Claimant
from groundplane_operator.observed import ChildKind, PlatformSeen, parse_resource
from groundplane_operator.plan import next_step
from groundplane_operator.reasons import Reason
from groundplane_operator.status import MAX_MESSAGE_CHARACTERS, phase_of, status_after
from groundplane_operator.steps import Accept, Apply, Delete, Done, Pause, Refuse, SetFinalizer, Step, Wait
from groundplane_operator.witness import format_time
from tests.operator.parts import IN_BUCKET, NOW, SHARD, UID, accepted, finished, resource_of, seen_of

STEPS: dict[str, Step] = {
    "accept": Accept(),
    "finalizer": SetFinalizer(present=True),
    "apply": Apply(manifests=(), difference="Service spec.type"),
    "roll": Apply(manifests=(), difference="Deployment spec.template", is_rollout=True),
    "delete": Delete(targets=(), reason=Reason.SHARD_SUPERSEDED, message="x"),
    "wait": Wait(reason=Reason.SHARD_STARTING, message="the pod starts", seconds=5),
    "degraded": Wait(reason=Reason.SECRET_MISSING, message="Secret x does not exist", seconds=5, is_degraded=True),
    "refuse": Refuse(reason=Reason.INVALID_SPEC, message="spec.tenant: is missing"),
    "pause": Pause(),
    "done": Done(seconds=30),
}
GRANT = {"namespace": "agents", "serviceAccount": "a"}


def conditions_of(status):
    return {each.type: each for each in status.conditions}


def after(step, seen=None, now=NOW):
    return status_after(finished(accepted(IN_BUCKET)) if seen is None else seen, step, now)


def then(seen, *steps, now=NOW, **metadata):
    """Return the observation after `steps`, each with its status written."""
    for step in steps:
        status = status_after(seen, step, now)
        seen = msgspec.structs.replace(seen, resource=msgspec.structs.replace(seen.resource, status=status))
    return seen


@given(st.lists(st.sampled_from(sorted(set(STEPS) - {"done"})), max_size=6), st.integers(2, 9))
@settings(deadline=None)
def test_observed_generation_is_not_set_before_the_generation_is_finished(steps, generation):
    """`kubectl wait` after an edit must not pass on the state of before."""
    seen = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    edited = resource_of({**IN_BUCKET, "subjects": [GRANT]}, generation=generation, status=seen.resource.status)
    status = then(msgspec.structs.replace(seen, resource=edited), *(STEPS[name] for name in steps)).resource.status

    assert status.observed_generation == 1
    assert {each.observed_generation for each in status.conditions if each.type != "Accepted"} == {1}
    accepted_condition = conditions_of(status)["Accepted"]
    assert accepted_condition.observed_generation in ({1} if accepted_condition.status == "True" else {generation})


def test_a_finished_generation_stands_in_the_status_and_in_each_condition():
    """Tools look at either."""
    status = then(finished(accepted(IN_BUCKET, generation=4)), STEPS["done"]).resource.status

    assert status.observed_generation == 4
    assert {each.observed_generation for each in status.conditions} == {4}
    assert status.phase == "Ready"


@given(st.sampled_from(sorted(STEPS)), st.floats(1, 1e6))
@settings(deadline=None)
def test_the_same_step_again_writes_nothing(name, later):
    """In a steady state, and while something is waited for, the API server hears nothing of us."""
    seen = then(finished(accepted(IN_BUCKET)), STEPS[name])

    assert status_after(seen, STEPS[name], NOW + later) == seen.resource.status


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
@settings(deadline=None)
def test_conditions_keep_their_order_and_are_there_once(steps):
    """The list is a map by type: the API server refuses a type twice."""
    status = then(seen_of(resource_of(IN_BUCKET)), *(STEPS[name] for name in steps)).resource.status
    kinds = [each.type for each in status.conditions]

    assert kinds == [kind for kind in CONDITION_TYPES if kind in kinds]


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
@settings(deadline=None)
def test_every_reason_is_a_declared_one(steps):
    """They are documented, and people match on them."""
    status = then(seen_of(resource_of(IN_BUCKET)), *(STEPS[name] for name in steps)).resource.status

    assert {each.reason for each in status.conditions} <= set(Reason)


@given(st.permutations(range(7)), st.permutations(range(2)), st.permutations(["read", "write"]))
@settings(deadline=None)
def test_the_order_in_which_the_server_keeps_lists_does_not_matter(conditions, subjects, access):
    """It merges them by key, and what it gives back in another order would be written for ever."""
    spec = {**IN_BUCKET, "subjects": [GRANT, {**GRANT, "serviceAccount": "b", "access": ["write", "read"]}]}
    seen = then(finished(accepted(spec)), STEPS["done"])
    status = msgspec.to_builtins(seen.resource.status)
    status["subjects"][1]["access"] = access
    for name, order in (("conditions", conditions), ("subjects", subjects)):
        status[name] = [status[name][place] for place in order]
    manifest = {"metadata": msgspec.to_builtins(seen.resource.metadata), "spec": spec, "status": status}
    resource = parse_resource({"apiVersion": "groundplane.dev/v1alpha1", "kind": "TenantCorpus", **manifest})
    again = msgspec.structs.replace(seen, resource=resource)
    step = next_step(again, NOW)

    assert isinstance(step, Done)
    assert status_after(again, step, NOW + 60) == resource.status == seen.resource.status


def test_a_transition_has_its_time_and_a_new_message_does_not():
    """`lastTransitionTime` says since when the status holds."""
    waiting = then(seen_of(accepted(IN_BUCKET)), STEPS["wait"])
    other = Wait(reason=Reason.ROLLING_OUT, message="pods are replaced", seconds=5)
    status = status_after(waiting, other, NOW + 60)
    done = status_after(then(waiting, other), STEPS["done"], NOW + 90)

    assert conditions_of(status)["Progressing"].reason == Reason.ROLLING_OUT
    assert conditions_of(status)["Progressing"].last_transition_time == format_time(NOW)
    assert conditions_of(done)["Progressing"].last_transition_time == format_time(NOW + 90)


def test_conditions_of_a_newer_operator_are_left_alone():
    """After a downgrade nobody may lose what it says."""
    newer = TenantCorpusStatus(conditions=(Condition(type="Encrypted", status="True", reason="X"),))
    status = status_after(seen_of(resource_of(IN_BUCKET, status=newer)), STEPS["wait"], NOW)

    assert conditions_of(status)["Encrypted"].status == "True"


def test_messages_are_cut():
    """The API server refuses a status with a text that is too long, and then says nothing at all."""
    status = after(Refuse(reason=Reason.INVALID_SPEC, message="x" * 40_000))

    assert len(conditions_of(status)["Accepted"].message) == MAX_MESSAGE_CHARACTERS


# -- claims: the router's directory


@pytest.mark.parametrize("name", sorted(set(STEPS) - {"accept"}))
def test_grants_change_with_their_acceptance_alone(name):
    """A refused or half-done edit leaves the last accepted grants in force."""
    before = accepted(IN_BUCKET)
    edited = resource_of({**IN_BUCKET, "subjects": [GRANT]}, generation=2, status=before.status)

    assert status_after(seen_of(edited), STEPS[name], NOW).subjects == ()


def test_an_accepted_resource_is_found_by_the_router():
    """Endpoint, incarnation, key and subjects are the directory's entry."""
    status = status_after(seen_of(resource_of({**IN_BUCKET, "subjects": [GRANT]})), Accept(), NOW)

    assert status.endpoint == "http://corpus-acme.agents.svc:8081"
    assert (status.incarnation, status.storage_key) == (UID, corpus_key("acme"))
    assert status.subjects[0].access == ("read",)


def test_of_two_that_claim_one_tenant_one_stays_in_the_directory():
    """Two entries of one key would make the router keep its last directory, for everybody."""
    older = Claimant(
        name="agents/older", uid="u", created="2020-01-01T00:00:00Z", wants_key=None, holds_key=corpus_key("acme")
    )
    seen = finished(accepted(IN_BUCKET), claimants=(older,))
    step = next_step(seen, NOW)
    status = status_after(seen, step, NOW)

    assert isinstance(step, Refuse)
    assert status.storage_key is None
    assert conditions_of(status)["Ready"].reason == Reason.NOT_ACCEPTED


def test_a_refused_edit_leaves_a_serving_corpus_ready():
    """Its agents still get answers from what was accepted last."""
    seen = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    broken = resource_of({"tenant": ""}, generation=2, status=seen.resource.status)
    status = status_after(msgspec.structs.replace(seen, resource=broken), STEPS["refuse"], NOW)

    assert conditions_of(status)["Ready"].status == "True"
    assert conditions_of(status)["Ready"].observed_generation == 1
    assert (conditions_of(status)["Accepted"].status, status.phase) == ("False", "Rejected")


# -- what each condition says


@pytest.mark.parametrize(
    ("step", "kind", "status", "reason"),
    [
        ("done", "Progressing", "False", Reason.FINISHED),
        ("wait", "Progressing", "True", Reason.SHARD_STARTING),
        ("apply", "Progressing", "True", Reason.APPLYING),
        ("roll", "Progressing", "True", Reason.ROLLING_OUT),
        ("delete", "Progressing", "True", Reason.SHARD_SUPERSEDED),
        ("refuse", "Progressing", "False", Reason.REFUSED),
        ("degraded", "Degraded", "True", Reason.SECRET_MISSING),
        ("wait", "Degraded", "False", Reason.AS_EXPECTED),
        ("done", "Ready", "True", Reason.SHARD_READY),
        ("refuse", "Accepted", "False", Reason.INVALID_SPEC),
        ("done", "Accepted", "True", Reason.ACCEPTED),
        ("done", "Suspended", "False", Reason.NOT_SUSPENDED),
        ("done", "Paused", "False", Reason.NOT_PAUSED),
        ("pause", "Paused", "True", Reason.PAUSED),
        ("done", "SnapshotHealthy", "True", Reason.SNAPSHOT_CURRENT),
    ],
)
def test_what_a_step_means_for_a_condition(step, kind, status, reason):
    """`kubectl describe` says the truth in one word."""
    found = conditions_of(after(STEPS[step]))[kind]

    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize("name", ["apply", "accept", "finalizer", "delete"])
def test_degraded_does_not_flap_between_two_steps(name):
    """Alerts hang on it."""
    degraded = then(seen_of(accepted(IN_BUCKET)), STEPS["degraded"])
    status = status_after(degraded, STEPS[name], NOW)

    assert conditions_of(status)["Degraded"] == conditions_of(degraded.resource.status)["Degraded"]


def test_a_suspended_corpus_is_not_ready_at_once():
    """The router stops asking it before its pod is gone."""
    seen = finished(accepted({**IN_BUCKET, "suspended": True}))
    status = status_after(seen, STEPS["wait"], NOW)

    assert conditions_of(status)["Ready"].reason == Reason.SUSPENDED
    assert conditions_of(status)["Suspended"].status == "True"
    assert status.phase == "Suspended"


def test_pausing_writes_the_condition_and_nothing_else():
    """Whoever paused reads that it holds, and sees the state of that moment."""
    before = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    status = status_after(before, Pause(), NOW + 5)
    changed = {
        name for name in status.__struct_fields__ if getattr(status, name) != getattr(before.resource.status, name)
    }
    conditions = set(status.conditions) - set(before.resource.status.conditions)

    assert changed == {"conditions", "phase"}
    assert [each.type for each in conditions] == ["Paused"]


def test_a_deleted_resource_says_so():
    """It may take minutes."""
    metadata = {"finalizers": [names.FINALIZER], "deletionTimestamp": "2026-09-21T14:13:20Z"}
    seen = seen_of(accepted({**IN_BUCKET, "deletionPolicy": "Delete"}, **metadata))
    status = status_after(seen, STEPS["wait"], NOW)

    assert (conditions_of(status)["Ready"].reason, status.phase) == (Reason.DELETING, "Deleting")


@pytest.mark.parametrize(
    ("platform", "degraded", "word"),
    [
        pytest.param(PlatformSeen(), "False", "no platform corpus is declared", id="not-declared"),
        pytest.param(PlatformSeen(is_declared=True), "True", "", id="declared-and-not-ready"),
        pytest.param(PlatformSeen(is_declared=True, is_ready=True), "False", "", id="ready"),
    ],
)
def test_a_tenant_is_told_of_the_platform_corpus(platform, degraded, word):
    """Its questions are answered from both, so one that does not serve is missed by every tenant."""
    status = conditions_of(after(STEPS["done"], finished(accepted(IN_BUCKET), platform=platform)))

    assert status["Degraded"].status == degraded
    assert (status["Ready"].status, word in status["Ready"].message) == ("True", True)


@pytest.mark.parametrize(
    ("changes", "now", "reason"),
    [
        pytest.param({"document_sequence": 40}, NOW + 9_999, Reason.SNAPSHOT_CURRENT, id="nothing-to-snapshot"),
        pytest.param({"document_sequence": 41}, NOW + 60, Reason.SNAPSHOT_CURRENT, id="not-due-yet"),
        pytest.param({"document_sequence": 41}, NOW + 9_999, Reason.SNAPSHOT_LATE, id="late"),
        pytest.param(
            {"document_sequence": 41, "snapshot_sequence": None, "snapshot_time": None},
            NOW + 60,
            Reason.SNAPSHOT_CURRENT,
            id="just-started",
        ),
        pytest.param(
            {"document_sequence": 41, "snapshot_sequence": None, "snapshot_time": None},
            NOW + 9_999,
            Reason.SNAPSHOT_LATE,
            id="never-made-one",
        ),
    ],
)
def test_snapshots_that_do_not_come_are_noticed(changes, now, reason):
    """A log that only grows makes each start slower, and nobody would look before that."""
    seen = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    seen = msgspec.structs.replace(seen, shard=msgspec.structs.replace(SHARD, **changes))

    assert conditions_of(status_after(seen, STEPS["done"], now))["SnapshotHealthy"].reason == reason


def test_figures_are_the_shards_and_stay_while_it_does_not_answer():
    """What was known is better than nothing, and `Degraded` says that it is old."""
    known = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    silent = status_after(msgspec.structs.replace(known, shard=None), STEPS["degraded"], NOW)

    assert (silent.documents, silent.sequence) == (7, 40)
    assert silent.snapshot is not None
    assert silent.snapshot.sequence == 40


def test_a_restarted_shard_that_does_not_know_the_time_leaves_the_snapshot_as_it_was():
    """The time is this process's; the snapshot is not."""
    known = then(finished(accepted(IN_BUCKET)), STEPS["done"])
    shard = msgspec.structs.replace(SHARD, snapshot_time=None)

    assert after(STEPS["done"], msgspec.structs.replace(known, shard=shard)).snapshot == known.resource.status.snapshot


def test_the_image_is_that_of_the_pods_that_run():
    """During a roll-out it is not yet the wanted one."""
    seen = finished(accepted(IN_BUCKET))
    seen.children[ChildKind.DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] = "live:7"

    assert after(STEPS["done"], seen).image == "live:7"
    assert after(STEPS["wait"], seen).image is None


@pytest.mark.parametrize(
    ("true", "phase"),
    [
        pytest.param((), "Pending", id="nothing"),
        pytest.param(("Accepted",), "Starting", id="accepted"),
        pytest.param(("Accepted", "Ready"), "Ready", id="ready"),
        pytest.param(("Accepted", "Ready", "Degraded"), "Degraded", id="degraded"),
        pytest.param(("Accepted", "Suspended", "Degraded"), "Suspended", id="suspended"),
        pytest.param(("Accepted", "Paused", "Ready"), "Paused", id="paused"),
    ],
)
def test_the_phase_follows_from_the_conditions(true, phase):
    """Two truths would differ some day."""
    conditions = {kind: Condition(type=kind, status="True", reason="X") for kind in true}

    assert phase_of(conditions) == phase
