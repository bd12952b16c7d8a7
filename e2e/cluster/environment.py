"""Which cluster the end-to-end tests use, and how they reach it.

    KUBECONFIG is set   that cluster, whatever it is; `GROUNDPLANE_E2E_IMAGE` names the product's image in its registry
    kind is installed   a kind cluster called groundplane-e2e
    otherwise           a cluster of our own, which needs root

`GROUNDPLANE_CLUSTER=own` or `=kind` chooses, where a machine has more than one of them.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from e2e.cluster import lifecycle, node, state
from e2e.cluster.addons import SERVICES_NAMESPACE
from e2e.cluster.images.archive import ImageArchive
from e2e.cluster.state import Cluster, state_directory
from e2e.cluster.steps import Command, StepFailed, run
from e2e.cluster.toolchain import cache_directory

Kind = Literal["given", "kind", "own"]

KIND_NAME = "groundplane-e2e"
KIND_SECONDS = 600.0
VARIABLE = "GROUNDPLANE_E2E_ENVIRONMENT"  # how the runner tells the tests


class ObjectStore(msgspec.Struct, frozen=True, kw_only=True):
    """An S3 server that pods reach."""

    endpoint: str
    access_key: str
    secret_key: str


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """A running cluster, as the tests see it: they run in its network, with kubectl and helm on PATH."""

    kind: Kind
    kubeconfig: str
    enter: tuple[str, ...] = ()  # what to put before a command that has to reach the API server, Services or pods
    programs: tuple[str, ...] = ()  # folders to put before PATH
    image: str = ""  # of the product
    object_store: ObjectStore | None = None  # None: none that we know of
    prometheus_url: str | None = None  # for pods and tests alike; None: none that we know of


def choose_kind(environment: Mapping[str, str]) -> Kind:
    """Return which cluster is to be used on this machine. Raises StepFailed, saying what to do, where there can be none."""
    return kind_for(environment, has_kind=shutil.which("kind") is not None, is_root=os.geteuid() == 0)


def kind_for(environment: Mapping[str, str], *, has_kind: bool, is_root: bool) -> Kind:
    """Return which cluster is to be used on such a machine. Raises StepFailed."""
    wanted = environment.get("GROUNDPLANE_CLUSTER", "")
    if wanted not in {"", "own", "kind"}:
        raise StepFailed(f"GROUNDPLANE_CLUSTER={wanted}: expected own or kind, or KUBECONFIG for a cluster of yours")
    if environment.get("KUBECONFIG") and not wanted:
        return "given"
    if wanted == "kind" and not has_kind:
        raise StepFailed(
            "GROUNDPLANE_CLUSTER=kind: no kind on this machine; install it with docker, then run this again"
        )
    if has_kind and wanted != "own":
        return "kind"
    if not is_root:
        raise StepFailed(
            "no Kubernetes for the tests: KUBECONFIG names none, kind is not installed, and a cluster of our own needs "
            "root. One of: install docker and kind; set KUBECONFIG; run this as root (docs/cluster.md)"
        )
    return "own"


def bring_up(kind: Kind, environment: Mapping[str, str]) -> Environment:
    """Return a running cluster, made if there is none yet. Raises StepFailed."""
    match kind:
        case "given":
            return given(Path(environment["KUBECONFIG"]))
        case "kind":
            return kind_cluster(state_directory(environment, KIND_NAME))
        case "own":
            directory = state_directory(environment, state.NODE_CLUSTER)
            return own(lifecycle.up(lifecycle.new_cluster(directory, cache_directory(environment), has_node=True)))


def take_down(kind: Kind, environment: Mapping[str, str]) -> None:
    """Remove the cluster that `bring_up` made; a given one stays."""
    match kind:
        case "given":
            return
        case "kind":
            run(Command(arguments=("kind", "delete", "cluster", "--name", KIND_NAME), limit_seconds=KIND_SECONDS))
        case "own":
            lifecycle.down(state_directory(environment, state.NODE_CLUSTER))


def own(cluster: Cluster) -> Environment:
    """Return how a cluster of our own is reached."""
    store = ObjectStore(
        endpoint=f"http://s3.{SERVICES_NAMESPACE}.svc.cluster.local:{node.S3_PORT}",
        access_key=node.S3_ACCESS_KEY,
        secret_key=node.S3_SECRET_KEY,
    )
    return Environment(
        kind="own",
        kubeconfig=str(cluster.kubeconfig),
        enter=cluster.enter,
        programs=tuple(str(cluster.program(name).parent) for name in ("kubectl", "helm")),
        object_store=store,
        prometheus_url=f"http://{state.NODE_ADDRESS}:{node.PROMETHEUS_PORT}",
    )


def given(kubeconfig: Path) -> Environment:
    """Return how a cluster that somebody else made is reached. Raises StepFailed if it does not answer."""
    for program in ("kubectl", "helm"):
        if not shutil.which(program):
            raise StepFailed(f"KUBECONFIG={kubeconfig}: {program} is needed to use it and is not on PATH")
    run(Command(arguments=("kubectl", f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz", "--request-timeout=10s")))
    return Environment(kind="given", kubeconfig=str(kubeconfig))


def kind_cluster(directory: Path) -> Environment:
    """Return a kind cluster, made if there is none; its kubeconfig lies in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    kubeconfig = directory / "admin.kubeconfig"
    if KIND_NAME not in run(Command(arguments=("kind", "get", "clusters"))).split():
        create = Command(
            arguments=(
                "kind",
                "create",
                "cluster",
                "--name",
                KIND_NAME,
                "--kubeconfig",
                str(kubeconfig),
                "--wait=120s",
            ),
            what="make a kind cluster",
            usual_seconds=60,
            limit_seconds=KIND_SECONDS,
        )
        run(create)
    kubeconfig.write_text(run(Command(arguments=("kind", "get", "kubeconfig", "--name", KIND_NAME))))
    return msgspec.structs.replace(given(kubeconfig), kind="kind")


def load_images(there: Environment, images: Sequence[ImageArchive], environment: Mapping[str, str]) -> None:
    """Give the cluster images from their archives. Raises StepFailed for a given one, into which nothing can be loaded."""
    match there.kind:
        case "given":
            raise StepFailed(f"images cannot be loaded into the cluster of KUBECONFIG={there.kubeconfig}")
        case "kind":
            load = ("kind", "load", "image-archive", "--name", KIND_NAME)
            for image in images:
                command = (*load, str(image.path))
                run(Command(arguments=command, what=f"load {image.path.name}", limit_seconds=KIND_SECONDS))
        case "own":
            cluster = state.read(state_directory(environment, state.NODE_CLUSTER))
            if cluster is None:
                raise StepFailed("the cluster was removed meanwhile: run this again")
            there_already = node.image_references(cluster)
            node.import_images(cluster, [image.path for image in images if image.reference not in there_already])
