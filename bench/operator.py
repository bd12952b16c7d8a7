"""`python -m bench.operator`: an operator before a real API server without nodes; exit code 1 if a bar is missed.

Pods stay pending, as nothing schedules them: what is measured is the operator. Its writes are counted in the API server's
audit log, in which every program is named.
"""

import argparse
import base64
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from rich.console import Console

from bench.bars import OPERATOR_BARS
from bench.measure import across, resident_mb
from bench.report import Report
from e2e.cluster.state import Cluster
from tests.support.control_plane import build, running_control_plane
from tests.support.kubernetes_api import Administrator, administrator
from tests.support.live_objects import LiveObjects
from tests.support.manifest_cases import manifest
from tests.support.operator_process import SECRET, OperatorProcess

FEW, MANY = 100, 500
STEADY_SECONDS = 600.0
WAIT_SECONDS = 300.0
POLL_SECONDS = 0.5
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
OPERATOR_AGENTS = ("OpenAPI-Generator", "kopf")
"""How the two libraries through which the operator calls the API server name themselves."""


class Scene(NamedTuple):
    """An operator and the namespace that it works on."""

    operator: OperatorProcess
    objects: LiveObjects

    def applied(self) -> int:
        """Return how many corpora have all their children, and wait for nothing but their pods."""
        return sum(_is_applied(corpus) for corpus in self.objects.list_all("TenantCorpus"))

    def looked_at(self) -> float:
        """Return how many passes this process has made, once none is due any more."""
        page = httpx.get(f"{self.operator.url}/metrics", timeout=5).text
        samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        if float(samples["groundplane_operator_queue_depth"]) > 0:
            return 0
        return sum(float(value) for name, value in samples.items() if "operator_passes_total" in name)


def main(arguments: Sequence[str]) -> int:
    """Run the measures and return the exit code."""
    options = _parse(arguments)
    report = Report(OPERATOR_BARS, "The operator before a real API server, without nodes")
    build()
    with tempfile.TemporaryDirectory(prefix="groundplane-bench-") as name:
        directory = Path(name)
        with running_control_plane(directory / "control-plane") as cluster, administrator(cluster) as admin:
            _measure(report, cluster, admin, 20.0 if options.quick else STEADY_SECONDS)
    report.print(Console(width=None if sys.stdout.isatty() else 120))
    report.write(options.output, keeps_others=True)
    return 0 if report.is_good else 1


def _measure(report: Report, cluster: Cluster, admin: Administrator, steady_seconds: float) -> None:
    with _operating(cluster, admin, "few") as few:
        _apply(few, FEW)
        writes = _writes_while_steady(cluster, steady_seconds)
        report.add({"operator_steady_mutating_calls_100": across([writes])})
    with _operating(cluster, admin, "many") as many:
        report.add({"operator_apply_to_applied_s_500": across([_apply(many, MANY)])})
        report.add({"operator_rss_mb_500": across([resident_mb(many.operator.pid)])})
        many.operator.kill()
        report.add({"operator_restart_relist_s_500": across([_restart(many, MANY)])})


def _apply(scene: Scene, count: int) -> float:
    """Create corpora at once and return the seconds until all their children are applied."""
    _say(f"{count} corpora at once")
    started = time.monotonic()
    for number in range(count):
        scene.objects.create(manifest({"tenant": f"tenant-{number}"}, f"tenant-{number}"))
    _await(lambda: scene.applied() == count, f"{count} corpora are applied")
    return time.monotonic() - started


def _restart(scene: Scene, count: int) -> float:
    """Start the operator again and return the seconds until it has looked at every corpus."""
    _say("start again")
    started = time.monotonic()
    scene.operator.start()
    scene.operator.await_ready()
    _await(lambda: scene.looked_at() >= count, f"{count} passes")
    return time.monotonic() - started


def _writes_while_steady(cluster: Cluster, seconds: float) -> int:
    """Return how often the operator wrote anything but a Lease within `seconds` without a change."""
    log = cluster.log("audit")
    size = log.stat().st_size
    ends_at = time.monotonic() + seconds
    while (left := ends_at - time.monotonic()) > 0:
        _say(f"steady for {left:.0f} more seconds")
        time.sleep(min(left, 60.0))
    with log.open("rb") as file:
        file.seek(size)
        entries = [json.loads(line) for line in file]
    return sum(_is_write_of_operator(entry) for entry in entries)


def _is_write_of_operator(entry: dict[str, object]) -> bool:
    agent = str(entry.get("userAgent", ""))
    of_lease = "/leases/" in str(entry.get("requestURI", ""))
    return entry.get("verb") in WRITES and agent.startswith(OPERATOR_AGENTS) and not of_lease


def _is_applied(corpus: dict[str, object]) -> bool:
    status = corpus.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return any(each["type"] == "Progressing" and each["reason"] == "ShardStarting" for each in conditions)


@contextmanager
def _operating(cluster: Cluster, admin: Administrator, namespace: str) -> Iterator[Scene]:
    admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    objects = LiveObjects(admin, namespace)
    data = {name: base64.b64encode(b"x").decode() for name in ("access-key", "secret-key")}
    objects.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data})
    log = cluster.directory.with_name(f"operator-{namespace}.log")
    operator = OperatorProcess(cluster.kubeconfig, namespace, log, GROUNDPLANE_RESYNC_SECONDS="600")
    operator.start()
    try:
        operator.await_ready()
        yield Scene(operator, objects)
    finally:
        if operator.is_running:
            operator.kill()


def _await(is_done: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not is_done():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"not within {WAIT_SECONDS:g} s: {what}")
        time.sleep(POLL_SECONDS)


def _say(what: str) -> None:
    Console(stderr=True).print(f"bench: {what}", highlight=False)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 steady seconds in place of 10 minutes")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="default: build/bench.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
