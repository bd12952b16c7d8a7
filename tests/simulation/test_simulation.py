"""The production protocol under 2,000 seeds, and the planted faults that those seeds must find."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import ALL_FAULTS
from tests.simulation.model import Violation
from tests.simulation.planted import PLANTED
from tests.simulation.report import describe, never_met, never_reached
from tests.simulation.runs import SEEDS, Outcome, first_seed_that_finds, run_seed, run_seeds
from tests.simulation.scenario import FAULT_KINDS, STORE_OPERATIONS, WRITERS

CHUNK = 250
REPOSITORY = Path(__file__).parents[2]
PLANTED_EXAMPLE = "gap-skipped"
EXPECTED_EVENTS = (
    "acknowledged",
    "behind the witness",
    "collected objects",
    "confirmed",
    "damaged snapshot",
    "loss accepted",
    "outcome unknown",
    "restore refused: target_not_empty",
    "restored into a new incarnation",
    "snapshot",
    "stray record",
    "superseded",
    "take-over",
    "unfinished restore refused at the end",
    "upload found damaged",
    "write failed",
)


@pytest.fixture(scope="module")
def covered() -> Outcome:
    """Return what 400 seeds did, every step of them counted."""
    whole = Outcome()
    for seed in range(400):
        whole.add(run_seed(seed, covers=True))
    return whole


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK), ids=lambda first: f"seeds-{first}-{first + CHUNK - 1}")
def test_invariants_hold_under_every_seed(first):
    """No mixture of lost, late and repeated requests, crashes, freezes and losses may lose or invent a write."""
    outcome = run_seeds(range(first, first + CHUNK))

    assert outcome.violations == []
    assert outcome.fewest_store_operations >= STORE_OPERATIONS
    assert outcome.fewest_writers >= WRITERS
    assert outcome.fewest_fault_kinds >= FAULT_KINDS


def test_seeds_reach_what_they_are_for(covered):
    """A simulation that never takes over, restores, collects or meets a superseded writer would prove nothing."""
    missing = {event for event in EXPECTED_EVENTS if not covered.events[event]}

    assert missing == set()


def test_seeds_meet_every_kind_of_fault(covered):
    """A fault that is in the list but never happens would be a claim without substance."""
    assert never_met(covered) == []


def test_seeds_reach_every_step_of_the_protocol_but_one(covered):
    """A step that no seed waits at is tested by nothing here."""
    unreached = [
        step for step in never_reached(covered) if "._judge_foreign:" not in step or "_check_still_ours" not in step
    ]

    assert unreached == []


def test_report_names_every_fault_and_every_step(covered):
    """Who reads the report must see what was not covered, too."""
    text = describe(covered, 1.0, 1)

    assert all(name in text for name in ALL_FAULTS)
    assert "violations            0" in text


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_fault_is_found(planted):
    """A mistake in one step of the protocol must not get past the seeds that every change has to pass."""
    found = first_seed_that_finds(planted)

    assert found is not None
    print(f"{planted}: seed {found[0]}, {found[1]}")


def test_failing_seed_names_the_command_that_replays_it():
    """Whoever sees the failure must be able to look at it."""
    seed, _ = first_seed_that_finds(PLANTED_EXAMPLE) or (0, "")

    with pytest.raises(Violation, match=f"replay with: python -m tests.simulation {seed} --planted {PLANTED_EXAMPLE}"):
        run_seed(seed, planted=PLANTED_EXAMPLE)


@pytest.mark.parametrize("seed", range(20))
def test_equal_seeds_give_equal_traces(seed):
    """A failing seed is worth something only if it fails again in the same way."""
    first: list[str] = []
    second: list[str] = []
    run_seed(seed, on_trace=first.append)
    run_seed(seed, on_trace=second.append, covers=True)

    assert first
    assert first == second


def test_replay_in_another_process_gives_an_equal_trace():
    """A trace that depends on hash order or on the time of day could not be replayed."""
    seed, _ = first_seed_that_finds(PLANTED_EXAMPLE) or (0, "")
    lines: list[str] = []
    with pytest.raises(Violation):
        run_seed(seed, planted=PLANTED_EXAMPLE, on_trace=lines.append)
    command = [sys.executable, "-m", "tests.simulation", str(seed), "--planted", PLANTED_EXAMPLE]
    replay = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=False
    )

    replayed = [line for line in replay.stdout.splitlines() if line[:5].strip().isdigit()]
    assert replay.returncode == 1
    assert _digest(replayed) == _digest(lines)


def test_seeds_run_in_parallel_and_a_clean_run_exits_with_zero():
    """`make simulate` is what CI runs; its exit code is what CI looks at."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "6", "--first-seed", "40", "--jobs", "2"]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert run.returncode == 0
    assert run.stdout.startswith("seeds                 6 in")


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
