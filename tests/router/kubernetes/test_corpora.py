"""From the status of TenantCorpora to the directory: nothing of a spec, and no claim twice."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.wire.directory import CorpusEntry, Directory, Grant, Subject
from groundplane.wire.names import CorpusKey, Incarnation
from groundplane_router.directory import DirectoryState
from groundplane_router.kubernetes.corpora import Reading, read_resource, resolve
from groundplane_router.kubernetes.objects import Resource
from tests.support.corpora import UIDS, condition, resource


def read(manifest):
    return read_resource(msgspec.json.decode(json.dumps(manifest), type=Resource))


def test_an_accepted_corpus_is_an_entry():
    """Where its shard answers, who may use it, and which life of it that is."""
    entry = read(resource()).entry

    assert entry == CorpusEntry(
        key=CorpusKey("t-acme"),
        name="corpora/acme",
        tenant=None,
        incarnation=Incarnation(UIDS["acme"]),
        endpoint="http://corpus-acme.corpora.svc:8081",
        state="ready",
        grants=(Grant(subject=Subject(namespace="agents", service_account="acme-agent"), access=("read", "write")),),
    )


def test_a_spec_is_never_read():
    """An edit that the operator refused must leave the last accepted grants."""
    edited = resource(spec={"tenant": "globex", "subjects": [{"namespace": "evil", "serviceAccount": "evil"}]})

    assert read(edited) == read(resource())


def test_access_defaults_to_reading():
    """As the resource says."""
    entry = read(resource(subjects=[{"namespace": "agents", "serviceAccount": "a"}])).entry

    assert entry is not None
    assert entry.grants[0].access == ("read",)


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        pytest.param([condition("Ready")], "ready", id="ready"),
        pytest.param([condition("Ready", "False")], "corpus_not_ready", id="not-ready"),
        pytest.param([condition("Ready", "Unknown")], "corpus_not_ready", id="unknown"),
        pytest.param([], "corpus_not_ready", id="not-said"),
        pytest.param([condition("Ready", "False"), condition("Suspended")], "corpus_suspended", id="suspended"),
        pytest.param([condition("Ready"), condition("Suspended")], "corpus_suspended", id="being-suspended"),
        pytest.param([condition("Ready"), condition("Suspended", "False")], "ready", id="resumed"),
        pytest.param([condition("Ready"), condition("Degraded")], "ready", id="degraded-but-serving"),
    ],
)
def test_conditions_say_whether_it_can_be_searched(conditions, state):
    """Callers are told why, and a shard is asked only if it serves."""
    entry = read(resource(conditions=conditions)).entry

    assert entry is not None
    assert entry.state == state


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({"metadata": resource()["metadata"], "spec": {"tenant": "acme"}}, id="no-status-yet"),
        pytest.param(resource() | {"status": None}, id="null-status"),
        pytest.param(resource(storageKey=None), id="refused-before-it-had-a-key"),
        pytest.param(resource(incarnation=None), id="no-incarnation"),
        pytest.param(resource(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="being-deleted"),
    ],
)
def test_what_is_not_declared_has_neither_entry_nor_fault(manifest):
    """A corpus on its way in or out is nothing to worry about."""
    reading = read(manifest)

    assert (reading.entry, reading.fault) == (None, None)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"incarnation": UIDS["globex"]}, id="status-of-another-life"),
        pytest.param({"storageKey": "t-../x"}, id="no-corpus-key"),
        pytest.param({"storageKey": "t-Acme"}, id="upper-case-key"),
        pytest.param({"endpoint": "file:///etc/passwd"}, id="endpoint-of-another-scheme"),
        pytest.param({"endpoint": "http://user:secret@x:1"}, id="endpoint-with-a-password"),
        pytest.param({"subjects": [{"namespace": "a", "serviceAccount": "b"}] * 2}, id="subject-twice"),
        pytest.param({"subjects": [{"namespace": "a:b", "serviceAccount": "c"}]}, id="subject-that-is-no-name"),
        pytest.param({"subjects": [{"namespace": "a", "serviceAccount": "c", "access": ["own"]}]}, id="odd-access"),
        pytest.param({"conditions": {}}, id="conditions-that-are-no-list"),
    ],
)
def test_a_status_that_makes_no_sense_is_a_fault(fields):
    """It must neither grant anything nor hide the other corpora."""
    reading = read(resource(**fields))

    assert reading.entry is None
    assert reading.fault is not None
    assert reading.fault.startswith("corpora/acme: ")


def test_fields_of_a_newer_operator_are_left_alone():
    """Router and operator are not upgraded at the same moment."""
    newer = resource(conditions=[condition("Ready") | {"since": 1}, condition("Encrypted")], shards=2)

    assert read(newer) == read(resource())


def reading(name, *subjects, key=None, uid=None):
    entry = CorpusEntry(
        key=CorpusKey(key or f"t-{name}"),
        name=f"corpora/{name}",
        tenant=None,
        incarnation=Incarnation(uid or UIDS[name]),
        endpoint=None,
        state="ready",
        grants=tuple(Grant(subject=Subject(namespace="n", service_account=one), access=("read",)) for one in subjects),
    )
    return Reading(uid=uid or UIDS[name], name=entry.name, entry=entry)


def subjects_of(resolved, name):
    return [grant.subject.service_account for grant in resolved.entries[UIDS[name]].grants]


def test_a_subject_of_two_corpora_reaches_neither():
    """A guess would show one tenant's records to the other's agent."""
    resolved = resolve([reading("acme", "a", "both"), reading("globex", "g", "both")], {})

    assert (subjects_of(resolved, "acme"), subjects_of(resolved, "globex")) == (["a"], ["g"])
    assert resolved.contradictions == ("subject system:serviceaccount:n:both",)


def test_a_subject_stays_with_whom_it_was():
    """A second claim must not take away what worked a moment ago, and must gain nothing."""
    before = resolve([reading("acme", "both")], {}).entries
    resolved = resolve([reading("acme", "both"), reading("globex", "both")], before)

    assert (subjects_of(resolved, "acme"), subjects_of(resolved, "globex")) == (["both"], [])


def test_a_subject_moves_when_its_holder_lets_go():
    """The order in which two namespaces' events arrive does not matter."""
    before = resolve([reading("acme", "both"), reading("globex")], {}).entries
    meanwhile = resolve([reading("acme", "both"), reading("globex", "both")], before).entries
    resolved = resolve([reading("acme"), reading("globex", "both")], meanwhile)

    assert (subjects_of(resolved, "acme"), subjects_of(resolved, "globex")) == ([], ["both"])


def test_a_withdrawn_grant_goes_although_something_else_contradicts():
    """A contradiction must not keep alive what was taken away."""
    before = resolve([reading("acme", "old", "both")], {}).entries
    resolved = resolve([reading("acme", "both"), reading("globex", "both")], before)

    assert subjects_of(resolved, "acme") == ["both"]


def test_two_corpora_of_one_tenant_are_both_left_out():
    """One of the two indexes would be searched, nobody knows which."""
    resolved = resolve([reading("acme", "a"), reading("globex", "g", key="t-acme")], {})

    assert resolved.entries == {}
    assert resolved.contradictions == ("key t-acme",)


def test_the_corpus_in_force_stays_when_another_claims_its_tenant():
    """As the operator does: the holder is the one that already has it."""
    before = resolve([reading("acme", "a")], {}).entries
    resolved = resolve([reading("acme", "a"), reading("globex", "g", key="t-acme")], before)

    assert set(resolved.entries) == {UIDS["acme"]}


def test_an_unreadable_resource_keeps_its_last_entry():
    """A slip in one status must not take its tenant down."""
    before = resolve([reading("acme", "a")], {}).entries
    broken = Reading(uid=UIDS["acme"], name="corpora/acme", fault="corpora/acme: x")
    resolved = resolve([broken], before)

    assert resolved.entries == before
    assert resolved.unreadable == ("corpora/acme: x",)


def test_an_unreadable_resource_that_was_never_good_is_left_out():
    """There is nothing to keep."""
    broken = Reading(uid=UIDS["acme"], name="corpora/acme", fault="corpora/acme: x")

    assert resolve([broken, reading("globex", "g")], {}).entries.keys() == {UIDS["globex"]}


names = st.sampled_from(sorted(UIDS))
subject_lists = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
keys = st.sampled_from(["t-x", "t-y", "t-z"])


@st.composite
def snapshots(draw):
    """What three resources might claim at one moment."""
    chosen = draw(st.lists(names, unique=True))
    return [reading(name, *draw(subject_lists), key=draw(keys)) for name in chosen]


@given(st.lists(snapshots(), min_size=1, max_size=6))
def test_whatever_is_claimed_the_directory_has_no_claim_twice(history):
    """`DirectoryState` refuses contradictions, so a state that could not be made would stop every change."""
    before: Mapping[str, CorpusEntry] = {}
    for snapshot in history:
        resolved = resolve(snapshot, before)
        DirectoryState(Directory(corpora=tuple(resolved.entries.values())))
        claimed = {one.uid: one.entry for one in snapshot}
        for uid, entry in resolved.entries.items():
            assert set(entry.grants) <= set(claimed[uid].grants)
        before = resolved.entries


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_resources_does_not_matter(snapshot, shuffler):
    """Two routers see the same directory."""
    shuffled = list(snapshot)
    shuffler.shuffle(shuffled)

    assert resolve(shuffled, {}) == resolve(snapshot, {})
