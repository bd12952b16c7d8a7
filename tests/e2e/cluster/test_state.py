"""A cluster is found again by its folder, and never taken for complete too early."""

from pathlib import Path

import pytest

from e2e.cluster import state
from e2e.cluster.lifecycle import new_cluster
from e2e.cluster.state import Cluster, state_directory
from e2e.cluster.steps import StepFailed


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Give a cluster that is only recorded."""
    made = new_cluster(tmp_path / "some", tmp_path / "cache", has_node=True)
    state.write(made)
    return made


def test_a_cluster_is_read_as_it_was_written(cluster: Cluster):
    """Another process removes it, by what is recorded."""
    assert state.read(cluster.directory) == cluster


@pytest.mark.parametrize("content", [b"", b'{"name": "so', b"{}"], ids=["empty", "cut-short", "other-version"])
def test_a_record_that_cannot_be_read_is_none(cluster: Cluster, content: bytes):
    """What a killed run or an older version left must not keep the next one from tidying up."""
    (cluster.directory / "cluster.json").write_bytes(content)

    assert state.read(cluster.directory) is None


def test_a_cluster_is_complete_only_for_the_version_that_made_it(cluster: Cluster, monkeypatch):
    """After a change of this program the tests must not run in a cluster of the old one."""
    assert not state.is_complete(cluster)

    state.mark_complete(cluster)
    assert state.is_complete(cluster)

    monkeypatch.setattr(state, "program_digest", lambda: "another")
    assert not state.is_complete(cluster)


def test_keys_are_for_the_owner_alone(cluster: Cluster):
    """The administrator's key lies in the folder."""
    assert cluster.directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "UPPER", "../elsewhere", "a b", "-x", "x-", "a" * 41])
def test_a_name_that_cannot_name_files_and_namespaces_is_refused(name: str):
    """It becomes part of paths that root removes."""
    with pytest.raises(StepFailed, match=r"cluster name .*: expected at most 40 small letters, digits and hyphens"):
        state_directory({}, name)


def test_state_lies_where_the_user_says(tmp_path: Path):
    """Continuous integration keeps everything below one folder."""
    assert state_directory({"XDG_STATE_HOME": str(tmp_path)}, "e2e") == tmp_path / "groundplane" / "clusters" / "e2e"
