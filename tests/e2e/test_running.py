"""How the end-to-end tests are told of their cluster."""

import msgspec
import pytest

from e2e import running
from e2e.cluster.environment import VARIABLE, Environment
from e2e.cluster.steps import StepFailed
from e2e.running import run_tests, variables, with_image, with_tests

GIVEN = Environment(kind="given", kubeconfig="/c", programs=("/bin/a", "/bin/b"))


def test_the_tests_find_the_cluster_its_programs_and_what_is_in_it():
    """They run in a process, and often a network, of their own."""
    told = variables(GIVEN, {"PATH": "/usr/bin", "HOME": "/h"})

    assert (told["KUBECONFIG"], told["PATH"], told["HOME"]) == ("/c", "/bin/a:/bin/b:/usr/bin", "/h")
    assert msgspec.json.decode(told[VARIABLE], type=Environment) == GIVEN


def test_a_named_image_is_taken_as_it_is():
    """A given cluster has its own registry."""
    assert with_image(GIVEN, {"GROUNDPLANE_E2E_IMAGE": "registry.example/groundplane:1"}).image.endswith(
        "groundplane:1"
    )


def test_a_given_cluster_without_an_image_is_refused():
    """Nothing can be loaded into it, and pods that never start would say so too late."""
    with pytest.raises(StepFailed, match="name it in GROUNDPLANE_E2E_IMAGE"):
        with_image(GIVEN, {})


@pytest.mark.parametrize(("environment", "removed"), [({}, ["own"]), ({"KEEP": "1"}, [])], ids=["usually", "kept"])
def test_the_cluster_goes_also_when_it_cannot_be_made(monkeypatch, environment, removed):
    """A failure in the middle must not leave a cluster behind on somebody's machine, unless they ask for it."""
    taken_down: list[str] = []

    def fail(kind: str, environment: dict[str, str]) -> Environment:
        raise StepFailed("the disk is full")

    monkeypatch.setattr(running, "choose_kind", lambda environment: "own")
    monkeypatch.setattr(running, "bring_up", fail)
    monkeypatch.setattr(running, "take_down", lambda kind, environment: taken_down.append(kind))

    with pytest.raises(StepFailed, match="the disk is full"):
        run_tests([], environment)

    assert taken_down == removed


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        pytest.param([], [str(running.ROOT / "e2e")], id="nothing"),
        pytest.param(["-x", "--durations=5"], [str(running.ROOT / "e2e"), "-x", "--durations=5"], id="options-alone"),
        pytest.param(["e2e/smoke", "-x"], ["e2e/smoke", "-x"], id="a-folder"),
        pytest.param(["e2e/conftest.py::test"], ["e2e/conftest.py::test"], id="one-test"),
    ],
)
def test_without_a_path_the_end_to_end_tests_are_meant(arguments, given):
    """pytest would otherwise run the tests that need no cluster, in a network where some of them cannot pass."""
    assert with_tests(arguments) == given
