"""A corpus is brought back from the command line: newest, or as it was at an earlier write."""

import pytest

from tests.support.command_line import EXAMPLES, answer, groundplane, running_up

pytestmark = pytest.mark.process

ACME = (EXAMPLES / "acme.yaml",)
QUESTION = ("evidence", "when is lunch?", "--tenant", "acme")


def doc_ids(data):
    return [hit["doc_id"] for hit in answer(data, *QUESTION)["hits"]]


def log_end(data):
    return answer(data, "corpus", "log", "--tenant", "acme")[-1]["sequence"]


def current(data):
    (found,) = (each for each in answer(data, "corpus", "incarnations", "--tenant", "acme") if each["current"])
    return found["incarnation"]


def test_a_corpus_is_restored_to_an_earlier_write_and_back_to_the_newest(tmp_path):
    """Somebody deleted what was needed: the state before is one command away, and so is the way back."""
    data = tmp_path / "data"
    (tmp_path / "lunch.txt").write_text("Lunch is served at noon in the hall.\n")
    with running_up(data, manifests=ACME):
        assert answer(data, "index", str(tmp_path / "lunch.txt"), "--tenant", "acme")["indexed"] == 1
        before, good = answer(data, *QUESTION)["hits"], log_end(data)
        assert groundplane(data, "documents", "delete", "lunch.txt", "--tenant", "acme")[0] == 0
        newest = log_end(data)
        source = current(data)
        code_while_running, _, refusal = groundplane(data, "corpus", "restore", "--tenant", "acme", "--from", source)
    restored = answer(data, "corpus", "restore", "--tenant", "acme", "--from", source, "--sequence", str(good))
    verified = answer(data, "corpus", "verify", "--tenant", "acme")
    with running_up(data, manifests=ACME):
        after = answer(data, *QUESTION)["hits"]
    again = answer(data, "corpus", "restore", "--tenant", "acme", "--from", source)
    with running_up(data, manifests=ACME):
        gone = doc_ids(data)
    lives = answer(data, "corpus", "incarnations", "--tenant", "acme")

    assert (code_while_running, "in use by another groundplane up: stop it" in refusal) == (1, True)
    assert before[0]["doc_id"] == "lunch.txt"
    assert after == before
    assert (restored["sequence"], again["sequence"], gone) == (good, newest, [])
    assert (verified["sequence"], verified["faults"]) == (good, [])
    assert {each["incarnation"] for each in lives} == {source, restored["incarnation"], again["incarnation"]}
    assert {each["restored_from"] for each in lives} == {None, source}
    assert current(data) == again["incarnation"]
