"""A TenantCorpus is accepted as it is meant or refused with the path of what is wrong."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundplane.api.parse import parse_manifest
from groundplane.api.v1alpha1 import TenantCorpus
from groundplane.errors import InvalidInput

INCARNATION = "0b8f7a52-4a55-4f7e-9f3e-0d2c5f3a7f11"


def manifest(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "acme", "namespace": "agents", "managedFields": [{"manager": "kubectl"}]}
    return {"apiVersion": "groundplane.dev/v1alpha1", "kind": "TenantCorpus", "metadata": metadata, "spec": spec}


def subject(name: str = "agent", **more: Any) -> dict[str, Any]:
    return {"namespace": "agents", "serviceAccount": name, **more}


def test_every_field_of_the_design_is_accepted():
    """The reference manifest of the design is what platform teams start from."""
    corpus = parse_manifest(
        manifest(
            tenant="acme",
            subjects=[subject(access=["read", "write"])],
            objectStore={
                "bucket": "corpora",
                "prefix": "prod/eu",
                "endpoint": "https://minio.storage.svc:9000",
                "credentialsSecret": {"name": "corpora"},
            },
            cache={"sizeLimit": "4Gi", "medium": "Memory"},
            resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": 2147483648}},
            snapshots={"every": "10m", "keep": 3},
            suspended=False,
            deletionPolicy="Delete",
            restoreFrom={"incarnation": INCARNATION, "sequence": 7},
            podTemplate={
                "labels": {"team": "search"},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "search", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "high",
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            },
        )
    )

    assert corpus.spec.corpus_key == "t-acme"
    assert corpus.spec.object_store is not None
    assert corpus.spec.snapshots.every_seconds == 600


def test_defaults_are_resolved_by_the_reader_and_not_written_into_the_spec():
    """What somebody applied stays what they applied, also when a default changes."""
    corpus = parse_manifest(manifest(tenant="acme", subjects=[subject()]))

    assert corpus.spec.subjects[0].access is None
    assert corpus.spec.subjects[0].grant.access == ("read",)
    assert (corpus.spec.snapshots.every_seconds, corpus.spec.snapshots.keep_count) == (600, 3)
    assert corpus.spec.cache.size_limit_bytes == 4 * 2**30
    assert msgspec.to_builtins(corpus.spec) == {"tenant": "acme", "subjects": (subject(),)}


def test_a_resource_with_a_status_of_a_newer_operator_is_read():
    """An older command line must not stumble over what a newer operator writes."""
    status = {
        "incarnation": INCARNATION,
        "fieldOfTheFuture": 1,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Done"}],
    }

    corpus = parse_manifest({**manifest(tenant="acme"), "status": status})

    assert corpus.status is not None
    assert corpus.status.incarnation == INCARNATION


FAULTS = [
    pytest.param({}, "spec.tenant", "is missing", id="neither-tenant-nor-platform"),
    pytest.param({"tenant": "a", "platform": True}, "spec.tenant", "beside spec.platform", id="both"),
    pytest.param({"platform": False}, "spec.platform", "expected true", id="platform-false"),
    pytest.param({"tenant": ""}, "spec.tenant", "length >= 1", id="empty-tenant"),
    pytest.param({"tenant": "a\n"}, "spec.tenant", "line break", id="tenant-with-line-break"),
    pytest.param({"tenant": "a\x1b"}, "spec.tenant", "control character", id="tenant-with-control-character"),
    pytest.param({"tenant": "a\ud800"}, "spec.tenant", "surrogate", id="tenant-with-lone-surrogate"),
    pytest.param({"tenant": "a" * 1_025}, "spec.tenant", "length <= 1024", id="long-tenant"),
    pytest.param({"tenant": 7}, "spec.tenant", "is 7: expected", id="tenant-is-a-number"),
    pytest.param({"tenant": "a", "storge": {}}, "spec.storge", "check its spelling", id="unknown-field"),
    pytest.param(
        {"tenant": "a", "subjects": [subject(), {"namespace": "agents"}]},
        "spec.subjects[1].serviceAccount", "is missing: set it", id="missing-in-a-list",
    ),
    pytest.param({"tenant": "a", "subjects": [subject("B")]}, "spec.subjects[0].serviceAccount", "is 'B'", id="upper-case-name"),
    pytest.param({"tenant": "a", "subjects": [subject("b\n")]}, "spec.subjects[0].serviceAccount", "line break", id="name-with-line-break"),
    pytest.param({"tenant": "a", "subjects": [subject("b" * 254)]}, "spec.subjects[0].serviceAccount", "253", id="long-name"),
    pytest.param({"tenant": "a", "subjects": [subject(), subject()]}, "spec.subjects[1]", "again", id="subject-twice"),
    pytest.param({"tenant": "a", "subjects": [subject(access=["admin"])]}, "spec.subjects[0].access[0]", "expected read or write", id="unknown-access"),
    pytest.param({"tenant": "a", "subjects": [subject(access=["read", "read"])]}, "spec.subjects[0].access", "twice", id="access-twice"),
    pytest.param({"tenant": "a", "subjects": [subject(access=[])]}, "spec.subjects[0].access", "length >= 1", id="no-access"),
    pytest.param({"tenant": "a", "objectStore": {"bucket": "abc"}, "storage": {"size": "1Gi"}}, "spec.storage", "keep one", id="both-stores"),
    pytest.param({"tenant": "a", "objectStore": {"bucket": "a"}}, "spec.objectStore.bucket", "3 to 63", id="short-bucket"),
    pytest.param({"tenant": "a", "objectStore": {"bucket": "abc", "prefix": "../x"}}, "spec.objectStore.prefix", "segments", id="prefix-upwards"),
    pytest.param({"tenant": "a", "storage": {"size": "1GiB"}}, "spec.storage.size", "expected a quantity", id="no-quantity"),
    pytest.param({"tenant": "a", "storage": {"size": 0}}, "spec.storage.size", "from 1 byte", id="no-bytes"),
    pytest.param({"tenant": "a", "snapshots": {"every": "1s"}}, "spec.snapshots.every", "from 10s to 24h", id="too-often"),
    pytest.param({"tenant": "a", "snapshots": {"keep": 0}}, "spec.snapshots.keep", ">= 1", id="no-snapshot-kept"),
    pytest.param({"tenant": "a", "deletionPolicy": "Keep"}, "spec.deletionPolicy", "Retain or Delete", id="unknown-policy"),
    pytest.param({"tenant": "a", "cache": {"medium": "Disk"}}, "spec.cache.medium", "Memory", id="unknown-medium"),
    pytest.param({"tenant": "a", "restoreFrom": {"incarnation": "x"}}, "spec.restoreFrom.incarnation", "UUID", id="no-incarnation"),
    pytest.param({"tenant": "a", "podTemplate": {"env": [{"name": "A"}]}}, "spec.podTemplate.env[0]", "exactly one", id="variable-without-value"),
    pytest.param({"tenant": "a", "resources": {"limits": {"memory": "x"}}}, "spec.resources.limits[...]", "quantity", id="resource-without-quantity"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "text"), FAULTS)
def test_a_fault_names_its_path_and_what_to_do(spec, field, text):
    """Whoever wrote the manifest finds the line and mends it without reading our code."""
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(manifest(**spec))

    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")
    assert text in caught.value.message


def test_all_broken_rules_are_reported_at_once():
    """Two faults are mended in one edit."""
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(manifest(snapshots={"every": "1s"}, subjects=[subject(), subject()]))

    assert len(caught.value.message.split("\n")) == 3


@pytest.mark.parametrize("name", ["Acme", "a_b", "-a", "a" * 64, "a.b", ""])
def test_names_are_dns_labels(name):
    """The name becomes a Service, whose name must be a label."""
    broken = manifest(tenant="acme")
    broken["metadata"]["name"] = name

    with pytest.raises(InvalidInput) as caught:
        parse_manifest(broken)

    assert caught.value.field == "metadata.name"


@pytest.mark.parametrize("value", [None, [], "text", 7, {}, {"kind": "TenantCorpus"}])
def test_what_is_no_resource_is_refused(value):
    """A bad file is an error with a text, never a traceback."""
    with pytest.raises(InvalidInput):
        parse_manifest(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SPEC_FIELDS = (
    "tenant",
    "platform",
    "subjects",
    "storage",
    "objectStore",
    "cache",
    "snapshots",
    "podTemplate",
    "resources",
)


@given(spec=st.dictionaries(st.sampled_from(SPEC_FIELDS), JSON, max_size=4))
def test_any_spec_is_accepted_or_refused_with_a_path(spec):
    """Whatever stands in a manifest, the answer is a corpus or an error that names a field."""
    fault: InvalidInput | None = None
    try:
        corpus = parse_manifest(manifest(**spec))
    except InvalidInput as refused:
        fault = refused

    if fault is None:
        assert msgspec.convert(msgspec.to_builtins(corpus), TenantCorpus) == corpus
    else:
        assert fault.field
