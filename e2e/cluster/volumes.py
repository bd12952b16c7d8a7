"""Gives claims their volumes: a folder on the node each, of the kind `local`, made, enlarged and removed on demand.

The controller manager's own host-path provisioner would do for root alone: its folders never get a pod's fsGroup, and
never grow. Here a claim of the StorageClass waits for its first pod, as in most clouds; a folder gets the pod's group
from the kubelet; a larger request is granted at once (a folder has no size). Arguments: the API server's URL, the
folder with certificates, the folder for volumes.
"""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from e2e.cluster.api import Api, Manifest, NotDone

STORAGE_CLASS = "standard"
PROVISIONER = "groundplane.dev/node-folder"
SELECTED_NODE = "volume.kubernetes.io/selected-node"  # the scheduler's word that a pod wants the claim, and where
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/persistentvolumeclaims"
INTERVAL_SECONDS = 0.5


class Make(msgspec.Struct, frozen=True):
    """A claim lacks its volume."""

    claim: Manifest
    node: str


class Enlarge(msgspec.Struct, frozen=True):
    """A claim asks for another size than its volume has; the API server lets nobody ask for less."""

    claim: Manifest
    volume: Manifest


class Remove(msgspec.Struct, frozen=True):
    """A volume's claim is gone."""

    volume: Manifest


Step = Make | Enlarge | Remove


def plan_steps(claims: Sequence[Manifest], volumes: Sequence[Manifest]) -> list[Step]:
    """Return what has to be done for the claims of our StorageClass and for our volumes."""
    ours = {
        volume["metadata"]["name"]: volume
        for volume in volumes
        if _annotations(volume).get(PROVISIONED_BY) == PROVISIONER
    }
    steps: list[Step] = [
        Remove(volume)
        for volume in ours.values()
        if volume.get("status", {}).get("phase") == "Released" and "deletionTimestamp" not in volume["metadata"]
    ]
    for claim in claims:
        if claim["spec"].get("storageClassName") != STORAGE_CLASS or "deletionTimestamp" in claim["metadata"]:
            continue
        volume = ours.get(volume_name(claim))
        node = _annotations(claim).get(SELECTED_NODE)
        if volume is None and node:
            steps.append(Make(claim, node))
        elif volume is not None and claim.get("status", {}).get("phase") == "Bound" and not _has_size(claim, volume):
            steps.append(Enlarge(claim, volume))
    return steps


def render_volume(claim: Manifest, node: str, folder: Path) -> Manifest:
    """Return the volume of a claim, bound to it from the beginning."""
    metadata, spec = claim["metadata"], claim["spec"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": _requested(claim)},
            "accessModes": spec["accessModes"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def render_storage_class() -> Manifest:
    """Return the default StorageClass of a cluster with a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume_name(claim: Manifest) -> str:
    """Return the name of a claim's volume, and of its folder."""
    return f"pvc-{claim['metadata']['uid']}"


def take(step: Step, api: Api, folders: Path) -> None:
    """Do one step; each can be done again after it was cut short. Raises NotDone."""
    match step:
        case Make(claim, node):
            folder = folders / volume_name(claim)
            folder.mkdir(exist_ok=True)
            api.create(VOLUMES, render_volume(claim, node, folder))
        case Enlarge(claim, volume):
            capacity = {"capacity": {"storage": _requested(claim)}}
            name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
            api.merge(f"{VOLUMES}/{volume['metadata']['name']}", {"spec": capacity})
            api.merge(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status", {"status": capacity})
        case Remove(volume):
            shutil.rmtree(folders / volume["metadata"]["name"], ignore_errors=True)
            api.delete(f"{VOLUMES}/{volume['metadata']['name']}")


def main(url: str, certificates: Path, folders: Path) -> None:
    """Serve claims for ever; what fails is tried again."""
    api = Api(url, certificates, "admin")
    while True:
        try:
            for step in plan_steps(api.list(CLAIMS), api.list(VOLUMES)):
                take(step, api, folders)
                print(f"{type(step).__name__.lower()} {_folder_of(step)}", flush=True)
        except NotDone as error:
            print(error, flush=True)
        time.sleep(INTERVAL_SECONDS)


def _folder_of(step: Step) -> str:
    return volume_name(step.claim) if isinstance(step, Make | Enlarge) else str(step.volume["metadata"]["name"])


def _requested(claim: Manifest) -> str:
    storage: str = claim["spec"]["resources"]["requests"]["storage"]
    return storage


def _has_size(claim: Manifest, volume: Manifest) -> bool:
    wanted = _requested(claim)
    granted = claim.get("status", {}).get("capacity", {}).get("storage")
    return bool(volume["spec"]["capacity"]["storage"] == wanted and granted == wanted)


def _annotations(thing: Manifest) -> Mapping[str, str]:
    annotations: Mapping[str, str] = thing["metadata"].get("annotations") or {}
    return annotations


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
