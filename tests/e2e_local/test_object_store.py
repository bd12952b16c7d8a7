"""`groundplane up` with every corpus in a bucket of a real S3 server."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.support.command_line import EXAMPLES, answer, groundplane, running_up
from tests.support.seaweedfs import S3Server

pytestmark = pytest.mark.process

TWO = (EXAMPLES / "acme.yaml", EXAMPLES / "platform.yaml")
QUESTION = ("ask", "May I fly to a meeting 300 km away, or take the train?", "--tenant", "acme")


def store_url(server: S3Server) -> str:
    """Return the URL of a prefix that nobody else uses."""
    parts = urlsplit(server.url)
    return urlunsplit(parts._replace(path=f"/{server.location().prefix}"))


def keys(server: S3Server) -> dict[str, str]:
    """Return the variables that hold the bucket's keys."""
    settings = server.settings
    return {"GROUNDPLANE_S3_ACCESS_KEY": settings.access_key, "GROUNDPLANE_S3_SECRET_KEY": settings.secret_key}


def on_another_machine(data: Path, url: str, variables: dict[str, str]) -> Any:
    """Return the answer of an installation that has nothing but the bucket, its corpora restored."""
    with running_up(data, "--object-store", url, manifests=TWO, **variables):
        pass
    for corpus in (("--tenant", "acme"), ("--platform",)):
        lives = answer(data, "corpus", "incarnations", *corpus, **variables)
        (old,) = (each["incarnation"] for each in lives if not each["current"])
        answer(data, "corpus", "restore", *corpus, "--from", old, **variables)
    with running_up(data, manifests=TWO, **variables):
        return answer(data, *QUESTION)


def test_corpora_in_a_bucket_survive_the_loss_of_all_that_is_local(s3_server, tmp_path):
    """What was acknowledged is in the bucket: for the next start, and for another machine; no key of it is on the disk."""
    data, docs, url, variables = tmp_path / "data", tmp_path / "docs", store_url(s3_server), keys(s3_server)
    docs.mkdir()
    (docs / "travel.md").write_text("# Travel\n\nTrains are preferred over planes below six hundred kilometres.\n")
    (docs / "lunch.txt").write_text("Lunch is served at noon in the hall.\n")
    with running_up(data, "--object-store", url, manifests=TWO, **variables):
        assert answer(data, "index", str(docs), "--tenant", "acme")["indexed"] == 2
        assert answer(data, "index", str(docs / "lunch.txt"), "--platform")["indexed"] == 1
        before = answer(data, *QUESTION)
    log = answer(data, "corpus", "log", "--tenant", "acme", **variables)
    verified = answer(data, "corpus", "verify", "--platform", **variables)
    written = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    shutil.rmtree(data / "work")
    shutil.rmtree(data / "logs")
    with running_up(data, manifests=TWO, **variables):
        after = answer(data, *QUESTION)
    elsewhere = on_another_machine(tmp_path / "other", url, variables)

    assert before["hits"][0]["doc_id"] == "docs/travel.md"
    assert after["hits"] == before["hits"]
    assert elsewhere["hits"] == before["hits"]
    assert [record["kind"] for record in log] == ["barrier", "batch"]
    assert (verified["sequence"], verified["faults"]) == (2, [])
    assert not (data / "store").exists()
    assert s3_server.settings.secret_key.encode() not in written


def test_without_keys_the_start_says_which_variables_are_missing(s3_server, tmp_path):
    """The shard's refusal reaches the person who typed the command."""
    code, _, err = groundplane(
        tmp_path / "data",
        "up",
        "-f",
        str(EXAMPLES / "acme.yaml"),
        "--port",
        "0",
        "--object-store",
        store_url(s3_server),
    )

    assert (code, "GROUNDPLANE_S3_ACCESS_KEY" in err) == (1, True), err
