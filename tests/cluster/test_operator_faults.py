"""The operator dies after any of its writes, and the API server fails in every way: the same children in the end."""

import functools
import random
from collections.abc import Callable

import pytest

from tests.cluster.operator_scene import Scene, lasting, scene_of
from tests.support.api_proxy import Call, Fault, Rule
from tests.support.live_objects import wait_for

CONVERGED_SECONDS = 60
MAX_KILLS = 60


@pytest.fixture
def scene(control_plane, namespace, tmp_path):
    with scene_of(control_plane, namespace, tmp_path) as scene:
        scene.make_secret()
        yield scene


def _kill_after_each_write(scene: Scene, is_done: Callable[[], bool]) -> int:
    """Run operators of which each dies after its first write, until one has nothing left to write; return the deaths."""
    operator = scene.operator
    for deaths in range(MAX_KILLS):
        operator.start()
        scene.proxy.rule = _dying(functools.partial(operator.die, operator.life))
        wait_for(
            lambda: not operator.is_running or is_done(),
            "the operator dies of a write, or has nothing left to do",
            CONVERGED_SECONDS,
            scene.log_end,
        )
        if operator.is_running:
            scene.proxy.rule = lambda _: None
            operator.die(operator.life)
            return deaths
    raise AssertionError(f"still writing after {MAX_KILLS} deaths\n{scene.log_end()}")


def _dying(die: Callable[[], None]) -> Rule:
    """Return a rule under which a write is done, and whoever asked for it is dead before the answer."""
    return lambda call: None if call.number is None else Fault(after=die, loses_answer=True)


def _has_children(scene, name="acme"):
    return len(scene.children(name)) == 5 and scene.condition("Progressing", name).get("reason") == "ShardStarting"


def test_an_operator_that_dies_after_each_of_its_writes_gets_there_in_the_end(scene):
    """Creation, suspension and deletion with clean-up, one write a life: no duplicate, no orphan, nothing stuck."""
    scene.create(deletionPolicy="Delete")
    deaths = _kill_after_each_write(scene, lambda: _has_children(scene))
    assert deaths >= 8  # two keys, status, finalizer, five children

    scene.api.merge("TenantCorpus", "acme", {"spec": {"suspended": True}})
    deaths = _kill_after_each_write(scene, lambda: scene.condition("Suspended").get("status") == "True")
    assert deaths >= 1

    scene.api.delete("TenantCorpus", "acme")
    _kill_after_each_write(scene, lambda: scene.api.get("Job", "cleanup-acme") is not None)
    scene.operator.start()
    scene.end_pods("cleanup-acme-")
    wait_for(lambda: scene.api.get("TenantCorpus", "acme") is None, "the resource is gone", 90, scene.log_end)
    wait_for(
        lambda: not any(found for kind, found in scene.everything().items() if kind != "Secret"),
        "nothing but Secrets is left",
        CONVERGED_SECONDS,
        lambda: str(scene.everything()),
    )


def _rule(rng, *statuses):
    """Return a rule under which a third of the writes fail: half of them answered by a status, half done and not answered."""
    left = 40  # then the API server is well again

    def rule(call: Call) -> Fault | None:
        nonlocal left
        if call.number is None or left == 0 or rng.random() > 0.33:
            return None
        left -= 1
        if not statuses or rng.random() < 0.3:
            return Fault(loses_answer=True)
        status = rng.choice(statuses)
        return Fault(status=status, headers={"Retry-After": "1"} if status in {429, 503} else {})

    return rule


@pytest.mark.parametrize("statuses", [(), (409,), (410,), (429,), (500, 503), (409, 410, 429, 500, 503)], ids=str)
def test_answers_that_are_lost_or_failures_change_nothing_in_the_end(scene, statuses):
    """Whatever the API server answers for a while, the children are those of a quiet day."""
    scene.operator.start()
    scene.operator.await_ready()
    scene.create("quiet")
    wanted = scene.wait_for_children("quiet")
    scene.proxy.rule = _rule(random.Random(7), *statuses)

    scene.create("acme")

    found = scene.wait_for_children("acme", 2 * CONVERGED_SECONDS)
    shown = {kind: str(lasting(live)).replace("acme", "quiet") for kind, live in found.items()}
    assert sorted(shown) == sorted(wanted)
    assert lasting(found["Service"])["spec"] == _renamed(lasting(wanted["Service"])["spec"])


def _renamed(part):
    if isinstance(part, dict):
        return {name: _renamed(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_renamed(each) for each in part]
    return part.replace("quiet", "acme") if isinstance(part, str) else part


def test_a_watch_that_says_nothing_costs_time_and_nothing_else(scene):
    """A connection that died unnoticed must not stop the operator: what it lists from time to time suffices."""
    scene.proxy.rule = lambda call: Fault(holds=True) if call.is_watch else None
    scene.operator.start()
    scene.operator.await_ready()

    scene.create()

    scene.wait_for_children()
