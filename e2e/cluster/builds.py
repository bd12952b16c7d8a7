"""The programs of the cluster, built from pinned Go modules, once per version, outside the work tree.

A binary lies in `<cache>/<module>/<digest>/<name>`; the digest covers the module's go.mod, go.sum and sources, and how
they are built. It gets its name only when it is complete, so that one that exists can be used. Go builds all programs
of a module in one run, because they share most of their packages and it keeps every core busy.

`python -m e2e.cluster.builds NAME...` builds the named programs, or all of them.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from e2e.cluster.locks import lock
from e2e.cluster.steps import Command, StepFailed, end_tidily_when_asked, run, say
from e2e.cluster.toolchain import cache_directory, go, go_environment

MODULES = Path(__file__).with_name("modules")
RECIPE = ("-mod=readonly", "-trimpath")
KUBERNETES_VERSION = "1.34.4"
FREE_BYTES = 8 << 30  # Go's own cache takes 4 GiB of them
BUILD_LIMIT_SECONDS = 3600.0


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A folder below modules/ and the programs that are built from it."""

    name: str
    packages: Mapping[str, str]  # name of the binary -> Go package
    usual_seconds: float  # all of it from nothing, on two cores
    linker_flags: str = "-s -w"

    @property
    def directory(self) -> Path:
        """Where its go.mod lies."""
        return MODULES / self.name

    @property
    def digest(self) -> str:
        """What the binaries depend on, as 16 hexadecimal digits."""
        digest = hashlib.sha256(" ".join((*RECIPE, self.linker_flags)).encode())
        for path in sorted([*self.directory.glob("go.*"), *self.directory.glob("*.go")]):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def binary(self, cache: Path, name: str) -> Path:
        """Return where a program lies once it is built."""
        return cache / self.name / self.digest / name


def _kubernetes() -> Module:
    version = "k8s.io/component-base/version"  # unset, the API server calls itself v0.0.0
    major, minor, _ = KUBERNETES_VERSION.split(".")
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    stamps = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    return Module(
        name="kubernetes",
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in programs} | {"etcd": "go.etcd.io/etcd/server/v3"},
        usual_seconds=420,
        linker_flags=" ".join(("-s -w", *(f"-X {version}.{key}={value}" for key, value in stamps.items()))),
    )


ALL_MODULES = (
    _kubernetes(),
    Module(name="pause", packages={"pause": "groundplane.dev/e2e/pause"}, usual_seconds=5),
    Module(name="coredns", packages={"coredns": "groundplane.dev/e2e/coredns"}, usual_seconds=30),
    Module(
        name="kube-router",
        packages={"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"},
        usual_seconds=130,
    ),
    Module(name="helm", packages={"helm": "helm.sh/helm/v3/cmd/helm"}, usual_seconds=100),
    Module(name="seaweedfs", packages={"weed": "github.com/seaweedfs/seaweedfs/weed"}, usual_seconds=400),
)
PROGRAMS = {name: module for module in ALL_MODULES for name in module.packages}


def binary(cache: Path, name: str) -> Path:
    """Return where the program `name` lies once it is built."""
    return PROGRAMS[name].binary(cache, name)


def plan_builds(cache: Path, names: Iterable[str]) -> list[tuple[Module, list[str]]]:
    """Return what has to be built for `names`: modules in the order of ALL_MODULES, each with its missing programs."""
    missing = {name for name in names if not binary(cache, name).exists()}
    return [
        (module, sorted(missing & set(module.packages))) for module in ALL_MODULES if missing & set(module.packages)
    ]


def build(cache: Path, names: Iterable[str]) -> None:
    """Build those of `names` that the cache lacks; others who want the same wait for it. Raises StepFailed."""
    plan = plan_builds(cache, names)
    if not plan:
        return
    require_free_space(cache, FREE_BYTES)
    minutes = sum(module.usual_seconds for module, _ in plan) / 60
    say(f"programs to build into {cache}, once: {len(plan)} Go modules, at most {minutes:.0f} minutes on two cores")
    compiler = go(cache)
    for module, _ in plan:
        directory = cache / module.name / module.digest
        with lock(directory / ".lock", what=f"another build of {module.name} ends", limit_seconds=BUILD_LIMIT_SECONDS):
            _build_missing(compiler, module, cache, [name for name in names if name in module.packages])


def require_free_space(directory: Path, size_bytes: int) -> None:
    """Raise StepFailed if less than `size_bytes` is free where `directory` lies or will lie."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < size_bytes:
        raise StepFailed(
            f"{existing} has {free >> 20} MiB free, {size_bytes >> 20} MiB are needed: make room, "
            "or set XDG_CACHE_HOME and XDG_STATE_HOME to a larger disk"
        )


def _build_missing(compiler: Path, module: Module, cache: Path, names: list[str]) -> None:
    """Build under the lock. What an earlier run left unfinished lies in folders of its own and is removed."""
    directory = cache / module.name / module.digest
    for unfinished in directory.glob("unfinished-*"):
        shutil.rmtree(unfinished)
    missing = [name for name in names if not (directory / name).exists()]
    if not missing:
        return
    target = Path(tempfile.mkdtemp(prefix="unfinished-", dir=directory))
    packages = {name: module.packages[name] for name in missing}
    run(_go_build(compiler, module, target, packages))
    for name, package in packages.items():
        (target / output_name(package)).rename(directory / name)
    target.rmdir()


def _go_build(compiler: Path, module: Module, target: Path, packages: Mapping[str, str]) -> Command:
    flags = ("-v", *RECIPE, f"-ldflags={module.linker_flags}")  # -v: the packages, which the progress line shows
    return Command(
        arguments=(str(compiler), "build", *flags, "-o", f"{target}/", *packages.values()),
        what=f"build {', '.join(packages)}",
        usual_seconds=module.usual_seconds,
        limit_seconds=BUILD_LIMIT_SECONDS,
        directory=module.directory,
        environment=go_environment(),
    )


def output_name(package: str) -> str:
    """Return what Go calls the program of a package: the last part of its path that is no version."""
    parts = package.split("/")
    return parts[-2] if parts[-1][0] == "v" and parts[-1][1:].isdecimal() else parts[-1]


if __name__ == "__main__":
    end_tidily_when_asked()
    try:
        build(cache_directory(os.environ), sys.argv[1:] or PROGRAMS)
    except StepFailed as failure:
        sys.exit(f"groundplane: {failure}")
