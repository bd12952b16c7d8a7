"""Where the pods of a Deployment stand, and whether another corpus may replace its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundplane_operator.rollout import Fleet, fleet_of, rollout_of, try_hold_back
from tests.operator.parts import rolled

NAMES = st.frozensets(st.sampled_from([f"agents/t{number}" for number in range(5)]), max_size=4)


def deployment(*, replicas=1, generation=1, revision=1, observed=None, **counts):
    live = {"metadata": {"generation": generation}, "spec": {"replicas": replicas}}
    found = rolled(live, revision=revision, **counts)
    found["status"]["observedGeneration"] = generation if observed is None else observed
    return found


@pytest.mark.parametrize(
    ("live", "complete", "failed", "rolling"),
    [
        pytest.param(deployment(), True, False, False, id="new-and-complete"),
        pytest.param(
            deployment(reason="ReplicaSetUpdated", updatedReplicas=0),
            False,
            False,
            False,
            id="first-pods-are-no-roll-out",
        ),
        pytest.param({"metadata": {"generation": 1}, "spec": {"replicas": 1}}, False, False, False, id="not-seen-yet"),
        pytest.param(deployment(revision=2), True, False, False, id="rolled"),
        pytest.param(deployment(revision=2, updatedReplicas=0), False, False, True, id="old-pods-alone"),
        pytest.param(
            deployment(revision=2, replicas=1, updatedReplicas=1) | {}, True, False, False, id="new-pods-alone"
        ),
        pytest.param(
            deployment(revision=2, reason="ReplicaSetUpdated"), False, False, True, id="new-pod-not-available-yet"
        ),
        pytest.param(deployment(generation=2, observed=1), False, False, True, id="changed-and-not-seen-yet"),
        pytest.param(deployment(revision=2, reason="ProgressDeadlineExceeded"), False, True, False, id="failed"),
        pytest.param(
            deployment(replicas=0, revision=2, reason="ProgressDeadlineExceeded"), True, True, False, id="off"
        ),
    ],
)
def test_where_the_pods_of_a_deployment_stand(live, complete, failed, rolling):
    """The fleet and the status rest on it; the controller's own figures say it."""
    state = rollout_of(live)

    assert (state.is_complete, state.has_failed, state.is_rolling) == (complete, failed, rolling)


def test_a_complete_roll_out_stays_complete_when_its_pod_dies_later():
    """A node that goes away is no roll-out, and must not stop the others."""
    live = deployment(revision=2)
    live["status"]["unavailableReplicas"] = 1

    assert rollout_of(live).is_complete


def test_the_fleet_counts_replacements_alone():
    """A new corpus that cannot start, for the fault of its owner, must not stop everybody else's roll-outs."""
    fleet = fleet_of(
        {
            "a/new-and-failing": rollout_of(deployment(reason="ProgressDeadlineExceeded")),
            "a/failing": rollout_of(deployment(revision=2, reason="ProgressDeadlineExceeded")),
            "a/rolling": rollout_of(deployment(revision=2, updatedReplicas=0)),
            "a/done": rollout_of(deployment(revision=3)),
            "a/suspended": rollout_of(deployment(replicas=0, revision=2, reason="ProgressDeadlineExceeded")),
        }
    )

    assert fleet == Fleet(rolling=frozenset({"a/rolling"}), failed=frozenset({"a/failing"}))


@given(NAMES, NAMES, st.integers(1, 4))
@settings(deadline=None)
def test_no_further_corpus_begins_beyond_the_limit_or_after_a_failure(rolling, failed, limit):
    """The law of the gate."""
    passes = try_hold_back("agents/other", Fleet(rolling=rolling, failed=failed), limit) is None

    assert passes == (not failed and len(rolling) < limit)


@given(NAMES, NAMES, st.integers(1, 4))
@settings(deadline=None)
def test_a_corpus_that_rolls_or_failed_may_go_on(rolling, failed, limit):
    """Its next template may be the repair, and it takes no further place."""
    fleet = Fleet(rolling=rolling, failed=failed)

    assert all(try_hold_back(name, fleet, limit) is None for name in rolling | failed)


def test_a_long_list_of_corpora_is_cut():
    """The text goes into a condition."""
    why = try_hold_back("a/x", Fleet(failed=frozenset(f"a/{number}" for number in range(9))), 1)

    assert why is not None
    assert "a/0, a/1, a/2 and 6 more" in why
