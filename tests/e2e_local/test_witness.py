"""A person at the command line meets a store that has lost acknowledged writes."""

import shutil

import msgspec
import pytest

from tests.support.command_line import EXAMPLES, answer, groundplane, running_up

pytestmark = pytest.mark.process

ACME = (EXAMPLES / "acme.yaml",)


def test_up_refuses_a_store_that_lost_writes_until_somebody_accepts_it(tmp_path):
    """It says what is missing, what to do, and after the decision it goes on and writes the decision down."""
    data = tmp_path / "data"
    with running_up(data, manifests=ACME):
        for fingerprint in ("v1", "v2"):
            assert groundplane(data, "memo", "put", "greeting", fingerprint, "1", "--tenant", "acme")[0] == 0
        shutil.copytree(data / "store", tmp_path / "before")
    shutil.rmtree(data / "store")  # and with it what the stop has published
    (tmp_path / "before").rename(data / "store")
    last = sorted((data / "store").glob("t-acme/*/log/*"))[-1]
    last.unlink()
    end = int(last.name) - 1
    code, _, err = groundplane(data, "up", "-f", str(ACME[0]), "--port", "0")
    with running_up(data, "--accept-data-loss", f"acme={end}", manifests=ACME):
        found = [
            groundplane(data, "memo", "get", "greeting", fingerprint, "--tenant", "acme")[0]
            for fingerprint in ("v1", "v2")
        ]
    kinds = [record["kind"] for record in answer(data, "corpus", "log", "--tenant", "acme")]
    events = [msgspec.json.decode(line) for line in (data / "logs" / "shard-t-acme.log").read_bytes().splitlines()]
    losses = [event for event in events if event["event"] == "data_loss_accepted"]

    assert code == 1
    assert f"sequence {end}: expected at least epoch 1, sequence {end + 1}" in err
    assert "--accept-data-loss TENANT=SEQUENCE" in err
    assert found == [0, 1]
    assert kinds == ["barrier", "batch", "override"]
    assert [(loss["accepted_sequence"], loss["witness_sequence"]) for loss in losses] == [(end, end + 1)]
