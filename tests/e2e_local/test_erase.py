"""What is not needed any more is removed from the store, and nothing else can be."""

import pytest

from groundplane.cli.corpus import _check_erasable
from groundplane.wire.names import Incarnation
from tests.support.command_line import EXAMPLES, answer, groundplane, running_up

pytestmark = pytest.mark.process

ACME = (EXAMPLES / "acme.yaml",)


def lives(data):
    """Return the states of all incarnations, and which one is the current."""
    found = answer(data, "corpus", "incarnations", "--tenant", "acme")
    return {each["incarnation"]: each["state"] for each in found}, next(
        each["incarnation"] for each in found if each["current"]
    )


def test_another_life_is_removed_and_the_current_one_never(tmp_path):
    """A slip of the hand must not cost the corpus that is being used."""
    data = tmp_path / "data"
    with running_up(data, manifests=ACME):
        _, old = lives(data)
        while_running = groundplane(data, "corpus", "erase", "--tenant", "acme", old)
    answer(data, "corpus", "restore", "--tenant", "acme", "--from", old)
    _, current = lives(data)
    refusals = {
        "current": groundplane(data, "corpus", "erase", "--tenant", "acme", "--complete", current),
        "complete": groundplane(data, "corpus", "erase", "--tenant", "acme", old),
        "unknown": groundplane(data, "corpus", "erase", "--tenant", "acme", "0" * 8 + old[8:]),
    }
    before, _ = lives(data)
    erased = answer(data, "corpus", "erase", "--tenant", "acme", "--complete", old)
    after, still_current = lives(data)

    assert "in use by another groundplane up" in while_running[2]
    assert [code for code, _, _ in refusals.values()] == [1, 1, 1]
    assert "is the current one" in refusals["current"][2]
    assert "--complete removes a whole corpus" in refusals["complete"][2]
    assert "is not in the store" in refusals["unknown"][2]
    assert set(before) == {old, current}
    assert erased["objects"] > 0
    assert (set(after), still_current) == ({current}, current)


@pytest.mark.parametrize("state", ["unfinished", "damaged"])
def test_half_a_restore_is_removed_without_further_asking(state):
    """Nothing ever opens it, so nothing is lost."""
    life = Incarnation("00000000-0000-4000-8000-00000000000a")

    _check_erasable([{"incarnation": life, "state": state}], life, may_be_complete=False)
