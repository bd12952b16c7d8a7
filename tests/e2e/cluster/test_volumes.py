"""Claims get volumes, larger ones when they ask, and leave nothing."""

from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.volumes import (
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    Enlarge,
    Make,
    Remove,
    plan_steps,
    render_volume,
    take,
)


def claim(*, size: str = "1Gi", granted: str = "", node: str = "node1", **spec: str) -> dict[str, Any]:
    """Return a claim as the API server lists it."""
    annotations = {SELECTED_NODE: node} if node else {}
    metadata = {"namespace": "tenant", "name": "data-0", "uid": "u1", "annotations": annotations}
    wanted = {
        "storageClassName": "standard",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    status = {"phase": "Bound", "capacity": {"storage": granted}} if granted else {"phase": "Pending"}
    return {"metadata": metadata, "spec": wanted | spec, "status": status}


def volume(*, phase: str = "Bound", size: str = "1Gi", by: str = PROVISIONER, **metadata: str) -> dict[str, Any]:
    """Return the volume of that claim."""
    named = {"name": "pvc-u1", "annotations": {PROVISIONED_BY: by}, **metadata}
    return {"metadata": named, "spec": {"capacity": {"storage": size}}, "status": {"phase": phase}}


class Recorder:
    """An API server that only remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def create(self, *call: Any) -> None:
        self.calls.append(("create", *call))

    def merge(self, *call: Any) -> None:
        self.calls.append(("merge", *call))

    def delete(self, *call: Any) -> None:
        self.calls.append(("delete", *call))


@pytest.mark.parametrize(
    ("claims", "volumes", "kinds"),
    [
        pytest.param([claim()], [], [Make], id="wanted-by-a-pod"),
        pytest.param([claim(node="")], [], [], id="no-pod-yet"),
        pytest.param([claim(storageClassName="other")], [], [], id="another-class"),
        pytest.param([claim()], [volume(phase="Available")], [], id="made-not-bound-yet"),
        pytest.param([claim(granted="1Gi")], [volume()], [], id="as-wanted"),
        pytest.param([claim(size="2Gi", granted="1Gi")], [volume()], [Enlarge], id="asks-for-more"),
        pytest.param([claim(size="2Gi", granted="1Gi")], [volume(size="2Gi")], [Enlarge], id="half-enlarged"),
        pytest.param([], [volume(phase="Released")], [Remove], id="claim-gone"),
        pytest.param([], [volume(phase="Released", deletionTimestamp="now")], [], id="being-removed"),
        pytest.param([], [volume(phase="Released", by="somebody")], [], id="volume-of-somebody-else"),
    ],
)
def test_what_is_done_follows_from_what_is_there(claims, volumes, kinds):
    """Nothing is remembered between two looks, so that a restart changes nothing."""
    assert [type(step) for step in plan_steps(claims, volumes)] == kinds


def test_a_volume_is_bound_to_its_claim_and_node_from_the_beginning():
    """Another claim of the same size must not get it, and its pod must not be put elsewhere."""
    spec = render_volume(claim(), "node1", Path("/volumes/pvc-u1"))["spec"]

    assert (spec["claimRef"]["uid"], spec["local"]["path"]) == ("u1", "/volumes/pvc-u1")
    terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["node1"]


def test_the_folder_is_there_before_the_volume(tmp_path: Path):
    """The kubelet mounts as soon as it sees the volume."""
    api = Recorder()

    take(Make(claim(), "node1"), api, tmp_path)  # type: ignore[arg-type]  # it has the verbs that are used

    assert (tmp_path / "pvc-u1").is_dir()
    assert api.calls[0][:2] == ("create", "/api/v1/persistentvolumes")


def test_a_removed_volume_takes_its_files_with_it(tmp_path: Path):
    """A corpus that was deleted must not lie on the disk."""
    (tmp_path / "pvc-u1").mkdir()
    (tmp_path / "pvc-u1" / "record").touch()
    api = Recorder()

    take(Remove(volume(phase="Released")), api, tmp_path)  # type: ignore[arg-type]

    assert list(tmp_path.iterdir()) == []
    assert api.calls == [("delete", "/api/v1/persistentvolumes/pvc-u1")]


def test_more_room_is_told_to_volume_and_claim(tmp_path: Path):
    """The operator waits for the claim's status."""
    api = Recorder()

    take(Enlarge(claim(size="2Gi", granted="1Gi"), volume()), api, tmp_path)  # type: ignore[arg-type]

    assert [call[1] for call in api.calls] == [
        "/api/v1/persistentvolumes/pvc-u1",
        "/api/v1/namespaces/tenant/persistentvolumeclaims/data-0/status",
    ]
