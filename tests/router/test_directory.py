"""The directory follows its file, and a broken file changes nothing."""

import json

import pytest

from groundplane.wire.directory import Subject
from groundplane_router.directory import DirectoryFile
from tests.fakes.clock import ManualClock

AGENT = Subject(namespace="agents", service_account="agent")


def entry(name="acme", number=2, **more):
    return {
        "key": f"t-{name}",
        "name": name,
        "tenant": name,
        "incarnation": f"{number}0000000-0000-4000-8000-000000000000",
        "endpoint": f"http://{name}:8000",
        "state": "ready",
        "grants": [{"subject": {"namespace": "agents", "service_account": "agent"}, "access": ["read"]}],
    } | more


PLATFORM = entry("platform", 1, key="platform", tenant=None, grants=[])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "directory.json"


def write(file, *corpora):
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"corpora": list(corpora)}))
    partial.rename(file)


def loaded(file):
    directory = DirectoryFile(file, ManualClock())
    directory.refresh()
    return directory


def test_a_subject_reaches_its_corpus_and_the_platforms(file):
    """The two indexes of every question."""
    write(file, entry(), PLATFORM)
    grants = loaded(file).state.grants_of(AGENT.name)

    assert grants is not None
    assert (grants.own.key, grants.platform.key) == ("t-acme", "platform")


def test_a_subject_of_the_platform_has_no_second_corpus(file):
    """It would be searched twice."""
    write(file, entry(grants=[]), PLATFORM | {"grants": entry()["grants"]})
    grants = loaded(file).state.grants_of(AGENT.name)

    assert (grants.own.key, grants.platform) == ("platform", None)


def test_a_change_is_taken(file):
    """Within one poll."""
    write(file, entry())
    directory = loaded(file)
    write(file, entry(state="corpus_suspended"))
    directory.refresh()

    assert directory.state.corpora[0].state == "corpus_suspended"


def test_an_unchanged_file_is_not_read_again(file):
    """Twice a second, for ever."""
    write(file, entry())
    directory = loaded(file)
    state = directory.state
    directory.refresh()

    assert directory.state is state


BROKEN = {
    "no-json": "{",
    "unknown-field": json.dumps({"corpora": [entry(secret="x")]}),
    "one-subject-twice": json.dumps({"corpora": [entry(), entry("globex", 3)]}),
    "one-key-twice": json.dumps({"corpora": [entry(), entry(number=3, grants=[])]}),
    "one-incarnation-twice": json.dumps({"corpora": [entry(), entry("globex", grants=[])]}),
    "key-of-another-tenant": json.dumps({"corpora": [entry(key="t-globex")]}),
    "tenant-under-the-platforms-key": json.dumps({"corpora": [entry(key="platform")]}),
    "empty-tenant": json.dumps({"corpora": [PLATFORM | {"tenant": ""}]}),
    "no-incarnation": json.dumps({"corpora": [entry(incarnation="../x")]}),
    "endpoint-of-another-scheme": json.dumps({"corpora": [entry(endpoint="file:///etc/passwd")]}),
    "endpoint-with-a-wrong-port": json.dumps({"corpora": [entry(endpoint="http://acme:99999")]}),
    "endpoint-with-a-password": json.dumps({"corpora": [entry(endpoint="http://a:b@acme:80")]}),
    "endpoint-that-is-no-url": json.dumps({"corpora": [entry(endpoint="http://[::1")]}),
    "endpoint-without-host": json.dumps({"corpora": [entry(endpoint="http://")]}),
    "not-utf8": "\udcff",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_keeps_the_last_good_state(file, content, caplog):
    """A slip of whoever writes it must not take every tenant down, and a contradiction must grant nothing."""
    write(file, entry(), PLATFORM)
    directory = loaded(file)
    state = directory.state
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    directory.refresh()
    directory.refresh()

    assert directory.state is state
    assert [record.message for record in caplog.records].count("directory_not_loaded") == 1


def test_a_file_that_vanished_keeps_the_last_good_state(file):
    """As a mount that is being replaced does for a moment."""
    write(file, entry())
    directory = loaded(file)
    file.unlink()
    directory.refresh()

    assert directory.state.grants_of(AGENT.name) is not None


def test_without_a_file_nothing_is_loaded(file):
    """Not ready, and no subject reaches anything."""
    directory = loaded(file)

    assert not directory.is_loaded
    assert directory.state.grants_of(AGENT.name) is None


def test_a_repaired_file_is_taken(file):
    """Recovery needs no restart."""
    file.write_text("{")
    directory = loaded(file)
    write(file, entry())
    directory.refresh()

    assert directory.is_loaded
