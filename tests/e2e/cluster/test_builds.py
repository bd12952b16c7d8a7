"""Programs are built once per version, and one that is half built is never used."""

from pathlib import Path

import pytest

from e2e.cluster import builds
from e2e.cluster.builds import ALL_MODULES, PROGRAMS, binary, build, output_name, plan_builds, require_free_space
from e2e.cluster.steps import Command, StepFailed


@pytest.fixture
def compiler(monkeypatch):
    """Replace Go by something that makes the files at once; gives the commands that were run."""
    ran: list[Command] = []

    def run(command: Command) -> str:
        ran.append(command)
        folder, packages = command.arguments[command.arguments.index("-o") + 1 :][0], command.arguments[-1:]
        for package in packages:
            Path(folder, output_name(package)).write_text("complete")
        return ""

    monkeypatch.setattr(builds, "run", run)
    monkeypatch.setattr(builds, "go", lambda cache: Path("/usr/bin/go"))
    return ran


def test_only_what_is_missing_is_planned(tmp_path: Path):
    """A run with warm caches builds nothing, and a new program does not build the others again."""
    etcd = binary(tmp_path, "etcd")
    etcd.parent.mkdir(parents=True)
    etcd.touch()

    plan = plan_builds(tmp_path, ["weed", "etcd", "kubectl", "kubelet"])

    assert [(module.name, names) for module, names in plan] == [
        ("kubernetes", ["kubectl", "kubelet"]),
        ("seaweedfs", ["weed"]),
    ]


def test_a_build_is_used_again(tmp_path: Path, compiler):
    """Builds take minutes: the second run must not do them again."""
    build(tmp_path, ["coredns"])
    build(tmp_path, ["coredns"])

    assert binary(tmp_path, "coredns").read_text() == "complete"
    assert len(compiler) == 1


def test_a_build_that_fails_leaves_nothing_that_looks_complete(tmp_path: Path, monkeypatch, compiler):
    """A half-written program starts, or does not, in ways that nobody understands."""

    def fail(command: Command) -> str:
        Path(command.arguments[command.arguments.index("-o") + 1], "coredns").write_text("half")
        raise StepFailed("the disk is full")

    monkeypatch.setattr(builds, "run", fail)
    with pytest.raises(StepFailed, match="the disk is full"):
        build(tmp_path, ["coredns"])

    assert plan_builds(tmp_path, ["coredns"]) != []


def test_what_an_earlier_build_left_is_removed(tmp_path: Path, compiler):
    """Builds that were killed must not fill the disk over time."""
    left = binary(tmp_path, "coredns").parent / "unfinished-of-a-killed-run"
    left.mkdir(parents=True)

    build(tmp_path, ["coredns"])

    assert sorted(path.name for path in left.parent.iterdir()) == [".lock", "coredns"]


def test_a_full_disk_is_told_before_an_hour_is_spent(tmp_path: Path):
    """The compiler's own message comes late and does not say what to do."""
    with pytest.raises(StepFailed, match=r"MiB free, .* MiB are needed: make room, or set XDG_CACHE_HOME"):
        require_free_space(tmp_path / "does" / "not" / "exist" / "yet", 1 << 60)


def test_versions_are_pinned_by_what_the_digest_covers():
    """A changed go.sum or recipe is another program, and lies elsewhere."""
    digests = {module.digest for module in ALL_MODULES}

    assert len(digests) == len(ALL_MODULES)
    assert all((module.directory / "go.mod").is_file() for module in ALL_MODULES)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        pytest.param("k8s.io/kubernetes/cmd/kubelet", "kubelet", id="last-part"),
        pytest.param("go.etcd.io/etcd/server/v3", "server", id="before-the-version"),
        pytest.param("example.org/tools/vet", "vet", id="no-version"),
    ],
)
def test_the_compiler_names_programs_by_their_package(package: str, name: str):
    """The name of Go's output is not ours to choose when it builds several at once."""
    assert output_name(package) == name


def test_no_program_is_built_from_two_modules():
    """`binary` must have one answer."""
    assert sum(len(module.packages) for module in ALL_MODULES) == len(PROGRAMS)
