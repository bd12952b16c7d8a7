"""Manifest files: what kubectl takes is taken, and every fault names file and line."""

from pathlib import Path

import pytest

from groundplane.errors import InvalidInput
from groundplane.manifests import MAX_FILE_BYTES, load_manifests, read_manifests

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def corpus(name: str, owner: str, subject: str | None = None) -> str:
    subjects = f"\n  subjects: [{{namespace: agents, serviceAccount: {subject}}}]" if subject else ""
    return (
        f"apiVersion: groundplane.dev/v1alpha1\nkind: TenantCorpus\nmetadata: {{name: {name}}}\n"
        f"spec:\n  {owner}{subjects}\n"
    )


def test_the_examples_are_three_corpora_with_an_indexer_each():
    """The examples are what the demo starts and what users copy."""
    manifests = load_manifests([EXAMPLES])

    assert [found.corpus.spec.corpus_key for found in manifests.corpora] == ["platform", "t-acme", "t-globex"]
    assert manifests.warnings == ()
    for found in manifests.corpora:
        assert any(grant.grant.access == ("read", "write") for grant in found.corpus.spec.subjects)


def test_a_fault_names_file_and_line():
    """An editor jumps there."""
    text = corpus("a", "tenant: a") + "---\n" + corpus("b", "tenant: b") + "  subjects:\n    - namespace: agents\n"

    with pytest.raises(InvalidInput, match=r"^corpora\.yaml:13: spec\.subjects\[0\]\.serviceAccount: is missing"):
        read_manifests(text, "corpora.yaml")


def test_faults_of_all_files_are_reported_together(tmp_path):
    """One run shows all there is to mend."""
    (tmp_path / "a.yaml").write_text(corpus("a", "tenants: a"))
    (tmp_path / "b.yaml").write_text("a: [")

    with pytest.raises(InvalidInput) as caught:
        load_manifests([tmp_path])

    first, second = caught.value.message.split("\n")
    assert "a.yaml:5: spec.tenants: " in first
    assert "b.yaml:1: " in second


def test_other_kinds_are_left_out_with_a_warning():
    """A directory of manifests also holds what is none of our business."""
    found, warnings = read_manifests("kind: Namespace\napiVersion: v1\n---\n" + corpus("a", "tenant: a"), "all.yaml")

    assert len(found) == 1
    assert warnings == [
        "all.yaml:1: kind 'Namespace' of 'v1' ignored: only TenantCorpus of groundplane.dev/v1alpha1 is read"
    ]


def test_a_corpus_of_another_version_is_an_error_and_not_ignored():
    """Leaving out a tenant because of a typing error in apiVersion would be found out much later."""
    with pytest.raises(InvalidInput, match=r"apiVersion: is 'groundplane\.dev/v2': expected"):
        read_manifests(corpus("a", "tenant: a").replace("v1alpha1", "v2"), "a.yaml")


@pytest.mark.parametrize(
    ("first", "second", "claim"),
    [
        pytest.param(corpus("a", "tenant: x"), corpus("b", "tenant: x"), "tenant 'x'", id="tenant"),
        pytest.param(
            corpus("a", "platform: true"), corpus("b", "platform: true"), "the platform corpus", id="platform"
        ),
        pytest.param(corpus("a", "tenant: x", "s"), corpus("b", "tenant: y", "s"), "subject agents/s", id="subject"),
        pytest.param(corpus("a", "tenant: x"), corpus("a", "tenant: y"), "the name default/a", id="name"),
    ],
)
def test_what_two_manifests_claim_is_an_error_that_names_both(tmp_path, first, second, claim):
    """Neither may win silently: the loser's callers would read another corpus."""
    (tmp_path / "1.yaml").write_text(first)
    (tmp_path / "2.yaml").write_text(second)

    with pytest.raises(InvalidInput) as caught:
        load_manifests([tmp_path])

    assert claim in caught.value.message
    assert "1.yaml:1" in caught.value.message
    assert "2.yaml:1" in caught.value.message


BROKEN = [
    pytest.param("a: 1\na: 2\n", ":2: key 'a' stands twice", id="repeated-key"),
    pytest.param("a: &x 1\nb: *x\n", ":2: an alias is used", id="alias"),
    pytest.param("a: !!python/object/apply:os.system [id]\n", "constructor", id="python-object"),
    pytest.param("? [a]\n: 1\n", "no scalar", id="list-as-key"),
    pytest.param("[" * 3_000, "nested too deeply", id="deep"),
    pytest.param("a: \x00", "is no YAML", id="null-byte"),
    pytest.param("a: !!int b", "is no YAML", id="no-integer"),
    pytest.param("a: [", ":1: ", id="unfinished"),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
def test_dangerous_and_broken_yaml_is_refused_with_a_text(text, expected):
    """A manifest is input: it runs nothing, fills no memory, and ends in no traceback."""
    with pytest.raises(InvalidInput) as caught:
        read_manifests(text, "broken.yaml")

    assert expected in caught.value.message
    assert caught.value.message.startswith("broken.yaml")


def test_timestamps_stay_text():
    """`kubectl get -o yaml` writes creationTimestamp unquoted, and Kubernetes reads it as text."""
    text = corpus("a", "tenant: a").replace("{name: a}", "{name: a, creationTimestamp: 2026-01-01T00:00:00Z}")

    found, _ = read_manifests(text, "a.yaml")

    assert found[0].corpus.metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_a_huge_file_is_refused(tmp_path):
    """A wrong path must not be read into memory."""
    (tmp_path / "big.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))

    with pytest.raises(InvalidInput, match="larger than"):
        load_manifests([tmp_path / "big.yaml"])


@pytest.mark.parametrize("content", [b"\xff\xfe", b""])
def test_files_without_a_corpus_are_an_error(tmp_path, content):
    """Starting nothing, silently, is not what anybody asked for."""
    (tmp_path / "a.yaml").write_bytes(content)

    with pytest.raises(InvalidInput):
        load_manifests([tmp_path])


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    """A misspelt path names itself."""
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml: no such file"):
        load_manifests([tmp_path / "nowhere.yaml"])
