"""What is started follows from the manifests alone."""

from pathlib import Path

from groundplane.api.parse import parse_manifest
from groundplane.api.v1alpha1 import TenantCorpus
from groundplane.local.layout import DataDirectory
from groundplane.local.plan import (
    child_environment,
    notes_of,
    place_corpora,
    plan_directory,
    plan_router,
    plan_shard,
)
from groundplane.local.storage import Storage
from groundplane.wire.names import CorpusKey, Incarnation

INCARNATIONS = {
    CorpusKey("t-acme"): Incarnation("0b8f7a52-4a55-4f7e-9f3e-0d2c5f3a7f11"),
    CorpusKey("platform"): Incarnation("0b8f7a52-4a55-4f7e-9f3e-0d2c5f3a7f12"),
}


def corpus(**spec: object) -> TenantCorpus:
    return parse_manifest(
        {"apiVersion": "groundplane.dev/v1alpha1", "kind": "TenantCorpus", "metadata": {"name": "c"}, "spec": spec}
    )


SUBJECTS = [{"namespace": "agents", "serviceAccount": "a"}]


def test_a_suspended_corpus_has_no_shard_and_says_why():
    """Its callers must hear `corpus_suspended`, not an empty answer."""
    placements = place_corpora([corpus(tenant="acme", suspended=True), corpus(platform=True)], INCARNATIONS, [4_000])

    acme, platform = plan_directory(placements).corpora
    assert (acme.state, acme.endpoint) == ("corpus_suspended", None)
    assert (platform.state, platform.endpoint) == ("ready", "http://127.0.0.1:4000")


def test_the_directory_holds_tenant_incarnation_and_grants():
    """The router knows nothing but this file."""
    (entry,) = plan_directory(place_corpora([corpus(tenant="acme", subjects=SUBJECTS)], INCARNATIONS, [4_000])).corpora

    assert (entry.key, entry.tenant, entry.incarnation) == ("t-acme", "acme", INCARNATIONS[CorpusKey("t-acme")])
    assert [(grant.subject.name, grant.access) for grant in entry.grants] == [
        ("system:serviceaccount:agents:a", ("read",))
    ]


def test_a_shard_gets_its_corpus_its_directories_and_its_snapshot_rules():
    """What the manifest says about snapshots holds on one machine too."""
    (placement,) = place_corpora([corpus(tenant="acme", snapshots={"every": "1m", "keep": 5})], INCARNATIONS, [4_000])

    environment = plan_shard(placement, DataDirectory(Path("/data"))).environment

    assert environment["GROUNDPLANE_CORPUS_KEY"] == "t-acme"
    assert environment["GROUNDPLANE_STORE_DIRECTORY"] == "/data/store"
    assert environment["GROUNDPLANE_WORK_DIRECTORY"] == "/data/work/t-acme"
    assert (environment["GROUNDPLANE_SNAPSHOT_SECONDS"], environment["GROUNDPLANE_SNAPSHOTS_KEEP"]) == ("60", "5")


def test_a_shard_keeps_its_witness_apart_from_its_store_and_gets_the_loss_that_was_accepted():
    """Another corpus's loss must not be accepted with it."""
    acme, platform = place_corpora([corpus(tenant="acme"), corpus(platform=True)], INCARNATIONS, [4_000, 4_001])
    storage = Storage(accepted_losses={CorpusKey("t-acme"): 80})

    lossy, whole = (plan_shard(each, DataDirectory(Path("/data")), storage).environment for each in (acme, platform))

    assert lossy["GROUNDPLANE_WITNESS_FILE"] == f"/data/witness/t-acme/{acme.incarnation}.json"
    assert lossy["GROUNDPLANE_WITNESS_WRITE"] == "true"
    assert (lossy["GROUNDPLANE_ACCEPT_DATA_LOSS"], whole["GROUNDPLANE_ACCEPT_DATA_LOSS"]) == ("80", "")


def test_the_users_own_credentials_do_not_reach_the_programs():
    """A token in the environment of a server ends up in its crash reports."""
    program = plan_router(DataDirectory(Path("/data")), 8_080, GROUNDPLANE_EMBEDDER="none")

    environment = child_environment(
        program, {"GROUNDPLANE_TOKEN": "secret", "EMBEDDING_URL": "http://e", "PATH": "/bin"}
    )

    assert "GROUNDPLANE_TOKEN" not in environment
    assert environment["EMBEDDING_URL"] == "http://e"
    assert environment["GROUNDPLANE_EMBEDDER"] == "none"
    assert environment["GROUNDPLANE_PORT"] == "8080"


def test_what_one_machine_does_otherwise_is_said():
    """A manifest that means a bucket must not silently mean a directory."""
    notes = notes_of(
        [corpus(tenant="acme", subjects=SUBJECTS, objectStore={"bucket": "corpora"}), corpus(platform=True)]
    )

    assert notes == [
        "default/c: on one machine log and snapshots are kept in the data directory",
        "default/c has no subjects: nobody can use it",
    ]
