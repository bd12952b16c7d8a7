"""`groundplane up` with real shards, a real router and the embedded model, driven through the command line."""

import os
import signal
import subprocess

import pytest

from tests.support.command_line import EXAMPLES, answer, command, environment, groundplane, running_up

pytestmark = pytest.mark.process


@pytest.fixture
def docs(tmp_path):
    directory = tmp_path / "docs"
    directory.mkdir()
    (directory / "travel.md").write_text(
        "# Travel rules\n\nTrains are preferred over planes below six hundred kilometres.\n"
    )
    (directory / "lunch.txt").write_text("Lunch is served at noon in the hall.\n")
    return directory


def test_what_was_indexed_answers_is_isolated_and_survives_a_restart(tmp_path, docs):
    """The whole promise of the command line in one sitting."""
    data = tmp_path / "data"
    question = ("ask", "May I fly to a meeting 300 km away, or take the train?")
    with running_up(data):
        assert answer(data, "index", str(docs), "--tenant", "acme")["indexed"] == 2
        own = answer(data, *question, "--tenant", "acme")
        assert (own["tier"], own["hits"][0]["doc_id"], own["hits"][0]["scope"]) == (
            "hybrid",
            "docs/travel.md",
            "tenant",
        )
        assert answer(data, *question, "--tenant", "globex")["status"] == "nothing"
        assert groundplane(data, "documents", "show", "docs/travel.md", "--tenant", "globex")[0] == 1

    with running_up(data):
        again = answer(data, *question, "--tenant", "acme")
        assert again["hits"][0]["doc_id"] == "docs/travel.md"
        assert again["hits"][0]["score"] == own["hits"][0]["score"]
        assert answer(data, "index", str(docs), "--tenant", "acme")["unchanged"] == 2


def test_a_stopped_corpus_can_be_looked_into_and_a_flipped_bit_is_named(tmp_path, docs):
    """The store is all that is left after a stop; an operator must be able to trust it, or know which byte not to."""
    data = tmp_path / "data"
    with running_up(data, manifests=[EXAMPLES / "acme.yaml"]):
        assert answer(data, "index", str(docs), "--tenant", "acme")["indexed"] == 2
    kinds = [record["kind"] for record in answer(data, "corpus", "log", "--tenant", "acme")]
    snapshots = answer(data, "corpus", "snapshots", "--tenant", "acme")
    whole = answer(data, "corpus", "verify", "--tenant", "acme")
    victim = next(path for path in (data / "store").rglob("snapshots/*/chunks.lance/data/*") if path.is_file())
    flipped = bytearray(victim.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    victim.write_bytes(flipped)
    code, _, err = groundplane(data, "corpus", "verify", "--tenant", "acme")

    assert kinds == ["barrier", "batch"]
    assert [snapshot["sequence"] for snapshot in snapshots] == [2]
    assert (whole["sequence"], whole["faults"]) == (2, [])
    assert (code, victim.name in err) == (1, True)


def test_one_data_directory_has_one_up_and_a_killed_shard_comes_back(tmp_path):
    """Two supervisors would fight for the corpora; a crash must not need a person."""
    data = tmp_path / "data"
    with running_up(data) as up:
        code, _, err = groundplane(data, "up", "-f", str(EXAMPLES), "--port", "0")
        assert (code, "in use by another groundplane up" in err) == (1, True)

        os.kill(up.children()[0], signal.SIGKILL)
        name = up.await_line("ended with signal 9").split()[1]
        up.await_line(f"✓ {name}")

        assert answer(data, "status", "--tenant", "acme")[0]["answer"]["corpus"]["ready"]


def test_a_suspended_corpus_is_said_to_be_suspended(tmp_path):
    """Its data is there; an empty answer would deny it."""
    manifest = tmp_path / "acme.yaml"
    manifest.write_text((EXAMPLES / "acme.yaml").read_text().replace("spec:\n", "spec:\n  suspended: true\n"))
    data = tmp_path / "data"
    with running_up(data, manifests=[manifest]) as up:
        code, _, err = groundplane(data, "evidence", "anything", "--tenant", "acme")
        found = answer(data, "ask", "anything", "--tenant", "acme")

    assert any("is suspended" in line for line in up.lines)
    assert code == 5, err
    assert (found["status"], found["unavailable"]["detail"]) == ("degraded", "corpus_suspended")


def test_the_demo_meets_every_expectation():
    """What `make demo` shows is checked by the demo itself."""
    arguments = command("demo", "-f", str(EXAMPLES))
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, env=environment())

    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 of 20 expectations met in 7 steps" in done.stdout
