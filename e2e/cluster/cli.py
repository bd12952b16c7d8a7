"""The verbs of `python -m e2e.cluster`: making, using and removing a cluster."""

import os
import shlex
import sys
from pathlib import Path

import click

from e2e.cluster import control_plane, lifecycle, node, state
from e2e.cluster.processes import records
from e2e.cluster.state import Cluster, state_directory
from e2e.cluster.steps import StepFailed, end_tidily_when_asked
from e2e.cluster.toolchain import cache_directory

AS_IT_IS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


class Choice:
    """Which cluster the verb is about."""

    def __init__(self, name: str | None, *, control_plane: bool) -> None:
        usual = state.CONTROL_PLANE if control_plane else state.NODE_CLUSTER
        self.directory = state_directory(os.environ, name or usual)
        self.has_node = not control_plane

    def existing(self) -> Cluster:
        """Return the cluster. Raises StepFailed if there is none."""
        cluster = state.read(self.directory)
        if cluster is None:
            raise StepFailed(f"no cluster {self.directory.name} on this machine: make it with `up`")
        return cluster


@click.group(help="A throwaway Kubernetes for tests; docs/cluster.md.")
@click.option("--name", help="Which cluster, where there are several; by default e2e, or control-plane.")
@click.option("--control-plane", is_flag=True, help="etcd, API server and controller manager alone, without root.")
@click.pass_context
def cluster(context: click.Context, name: str | None, control_plane: bool) -> None:  # noqa: FBT001 - click hands it over
    """Choose the cluster."""
    context.obj = Choice(name, control_plane=control_plane)


@cluster.command()
@click.pass_obj
def up(choice: Choice) -> None:
    """Make the cluster, or use the one that is there."""
    cache = cache_directory(os.environ)
    lifecycle.up(lifecycle.new_cluster(choice.directory, cache, has_node=choice.has_node))


@cluster.command()
@click.pass_obj
def down(choice: Choice) -> None:
    """Remove the cluster and everything that it left on this machine."""
    lifecycle.down(choice.directory)


@cluster.command()
@click.pass_obj
def status(choice: Choice) -> None:
    """Print each program and whether it runs; fail if the cluster cannot be used."""
    there = choice.existing()
    for found in records(there.directory):
        click.echo(f"{found.name:<26}{'running' if found.is_alive else 'ended':<10}{found.pid}")
    reason = lifecycle.why_not_usable(there)
    if reason:
        raise StepFailed(f"cluster {there.name} cannot be used: {reason}; `up` makes a new one in its place")
    click.echo(f"cluster {there.name} is healthy: {there.api_url}")


@cluster.command()
@click.pass_obj
def env(choice: Choice) -> None:
    """Print shell assignments: eval "$(python -m e2e.cluster env)"."""
    there = choice.existing()
    click.echo(f"export KUBECONFIG={shlex.quote(str(there.kubeconfig))}")
    click.echo(f"export PATH={shlex.quote(_path(there))}")
    click.echo(f"export GROUNDPLANE_CLUSTER_ENTER={shlex.quote(shlex.join(there.enter))}")


@cluster.command("load-image")
@click.argument("archives", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.pass_obj
def load_image(choice: Choice, archives: tuple[Path, ...]) -> None:
    """Give the node the images of docker-archive files."""
    there = choice.existing()
    if not there.has_node:
        raise StepFailed(f"cluster {there.name} has no node to load images into: it is a control plane alone")
    node.import_images(there, archives)


@cluster.command()
@click.argument("component")
@click.pass_obj
def logs(choice: Choice, component: str) -> None:
    """Print what a program of the cluster has written."""
    path = choice.existing().log(component)
    if not path.exists():
        names = ", ".join(sorted(log.stem for log in path.parent.glob("*.log")))
        raise StepFailed(f"no log of {component}: expected one of {names}")
    click.echo(path.read_text(errors="replace"), nl=False)


@cluster.command(context_settings=AS_IT_IS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubectl(choice: Choice, arguments: tuple[str, ...]) -> None:
    """Become kubectl, as the administrator, where the API server is reached."""
    command = control_plane.kubectl(choice.existing(), *arguments)
    os.execvpe(command.arguments[0], command.arguments, control_plane.without_proxies(os.environ))


@cluster.command(context_settings=AS_IT_IS)
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run(choice: Choice, arguments: tuple[str, ...]) -> None:
    """Become any command, in the node's network, with KUBECONFIG and PATH set."""
    there = choice.existing()
    command = (*there.enter, *arguments)
    environment = {
        **control_plane.without_proxies(os.environ),
        "KUBECONFIG": str(there.kubeconfig),
        "PATH": _path(there),
    }
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise StepFailed(f"cannot start {command[0]}: {error.strerror}") from error


def main() -> None:
    """Run one verb. Exits with 0; with 1 and a line on standard error that says what failed; with 2 for a wrong call."""
    end_tidily_when_asked()
    try:
        cluster(prog_name="python -m e2e.cluster")
    except (StepFailed, OSError) as failure:
        click.echo(f"groundplane: {failure}", err=True)
        sys.exit(1)


def _path(there: Cluster) -> str:
    """Return PATH with the cluster's own kubectl and helm first."""
    folders = [str(there.program(name).parent) for name in ("kubectl", "helm")]
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
