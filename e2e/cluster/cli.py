"""The verbs: `python -m e2e.cluster up|down|status|env|load-image|logs|kubectl|run`."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.cluster import control_plane, lifecycle, node, state
from e2e.cluster.processes import records
from e2e.cluster.state import Cluster, state_directory
from e2e.cluster.steps import StepFailed
from e2e.cluster.toolchain import cache_directory

Verb = Callable[[argparse.Namespace, Path], None]
AddParser = Callable[..., argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code: 0, or 1 with a line on standard error that says what failed."""
    options = _parser().parse_args(arguments)
    name = options.name or (state.CONTROL_PLANE if options.control_plane else state.NODE_CLUSTER)
    try:
        options.verb(options, state_directory(os.environ, name))
    except StepFailed as failure:
        print(f"groundplane: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("groundplane: interrupted; the next up or down tidies up", file=sys.stderr)
        return 130
    return 0


def up(options: argparse.Namespace, directory: Path) -> None:
    """Make the cluster, or use the one that is there."""
    wanted = lifecycle.new_cluster(directory, cache_directory(os.environ), has_node=not options.control_plane)
    lifecycle.up(wanted)


def down(_options: argparse.Namespace, directory: Path) -> None:
    """Remove the cluster and whatever is left of it."""
    lifecycle.down(directory)


def status(_options: argparse.Namespace, directory: Path) -> None:
    """Print each program and whether it runs; fail if the cluster cannot be used."""
    cluster = _existing(directory)
    for found in records(directory):
        print(f"{found.name:<26}{'running' if found.is_alive else 'ended':<10}{found.pid}")
    reason = lifecycle.why_not_usable(cluster, cluster)
    if reason:
        raise StepFailed(f"cluster {cluster.name} cannot be used: {reason}; `up` makes a new one in its place")
    print(f"cluster {cluster.name} is healthy: {cluster.api_url}")


def env(_options: argparse.Namespace, directory: Path) -> None:
    """Print shell assignments: eval "$(python -m e2e.cluster env)"."""
    cluster = _existing(directory)
    programs = cluster.program("kubectl").parent
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    print(f"export PATH={shlex.quote(str(programs))}:$PATH")
    print(f"export GROUNDPLANE_CLUSTER_ENTER={shlex.quote(shlex.join(cluster.enter))}")


def load_image(options: argparse.Namespace, directory: Path) -> None:
    """Give the node images from docker-archive files."""
    cluster = _existing(directory)
    if not cluster.has_node:
        raise StepFailed(f"cluster {cluster.name} has no node to load images into: it is a control plane alone")
    node.import_images(cluster, options.archive)


def logs(options: argparse.Namespace, directory: Path) -> None:
    """Print the log of one program, or name the programs that have one."""
    path = _existing(directory).log(options.component)
    if not path.exists():
        names = ", ".join(sorted(log.stem for log in path.parent.glob("*.log")))
        raise StepFailed(f"no log of {options.component}: expected one of {names}")
    sys.stdout.write(path.read_text(errors="replace"))


def kubectl(options: argparse.Namespace, directory: Path) -> None:
    """Become kubectl, as the administrator, where the API server is reached."""
    command = control_plane.kubectl(_existing(directory), *options.arguments)
    os.execvp(command.arguments[0], command.arguments)


def run(options: argparse.Namespace, directory: Path) -> None:
    """Become any command, with KUBECONFIG set, inside the node's network."""
    cluster = _existing(directory)
    programs = cluster.program("kubectl").parent
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    command = (*cluster.enter, *options.arguments)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise StepFailed(f"cannot start {command[0]}: {error.strerror}") from error


def _existing(directory: Path) -> Cluster:
    cluster = state.read(directory)
    if cluster is None:
        raise StepFailed(f"no cluster {directory.name} on this machine: make it with `up`")
    return cluster


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="A throwaway Kubernetes for tests.")
    _add_options(parser, name=None, control_plane=False)
    add_parser = parser.add_subparsers(required=True, metavar="VERB").add_parser
    for name, verb in {"up": up, "down": down, "status": status, "env": env}.items():
        _add(add_parser, name, verb)
    _add(add_parser, "load-image", load_image).add_argument("archive", nargs="+", type=Path)
    _add(add_parser, "logs", logs).add_argument("component")
    for name, verb in {"kubectl": kubectl, "run": run}.items():
        _add(add_parser, name, verb, options_after=False).add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _add(add_parser: AddParser, name: str, verb: Verb, *, options_after: bool = True) -> argparse.ArgumentParser:
    """Add a verb; the options of all verbs may stand after it too, unless everything after it is another command's."""
    parser = add_parser(name, help=(verb.__doc__ or "").splitlines()[0])
    parser.set_defaults(verb=verb)
    if options_after:
        _add_options(parser, name=argparse.SUPPRESS, control_plane=argparse.SUPPRESS)
    return parser


def _add_options(parser: argparse.ArgumentParser, **defaults: object) -> None:
    named = "which cluster, where there are several (default: e2e, or control-plane)"
    alone = "etcd, API server and controller manager alone, on 127.0.0.1, without root"
    parser.add_argument("--name", default=defaults["name"], help=named)
    parser.add_argument("--control-plane", action="store_true", default=defaults["control_plane"], help=alone)
