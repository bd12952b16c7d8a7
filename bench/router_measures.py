"""The router's half of the bench: evidence over two shards, and what a whole installation takes of memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Figure, across, interleave, resident_mb, resident_mb_of_tree
from bench.raw_measures import Measure
from bench.router import TENANT, BenchRouter, two_corpora
from bench.workbench import Workbench
from groundplane.demo import SCOPES, corpus_path, load_questions
from tests.support.processes import RouterProcess, ShardProcess, free_port, running

TENANT_ROWS = 500
CACHED_QUERIES = 100
ASKED = 200
REPOSITORY = Path(__file__).resolve().parents[1]
_START_SECONDS = 60.0


def measure_evidence(bench: Workbench) -> Mapping[str, Figure]:
    """Time evidence over a tenant's 500 rows and the platform's 10,000, beside raw LanceDB over 10,000."""
    queries = bench.small_queries[:CACHED_QUERIES]
    raw = bench.raw_small()
    with two_corpora(bench.directory / "router", bench.corpus.rows(TENANT_ROWS, "own"), bench.small, queries) as router:
        for query in queries:
            router.evidence(query)
        timings = interleave(bench.plan, queries, {"raw": raw.search, "router": router.evidence})
    return {
        "evidence_10k_over_raw_p50": timings["router"].over(timings["raw"], 50),
        "evidence_10k_p50_ms": timings["router"].milliseconds(50),
        "evidence_10k_p95_ms": timings["router"].milliseconds(95),
    }


def measure_embedded(bench: Workbench) -> Mapping[str, Figure]:
    """Read a router's memory after 200 questions through the embedded model."""
    root = bench.directory / "embedded"
    root.mkdir()
    shard = ShardProcess(root, key=TENANT)
    process = RouterProcess(root, [shard], {"GROUNDPLANE_EMBEDDER": "embedded"})
    with running(shard), running(process):
        router = BenchRouter(process)
        router.introduce(TENANT)
        for query in bench.small_queries[:ASKED]:
            router.evidence(query)
        return {"router_rss_mb_embedded": across([resident_mb(process.pid)])}


def measure_demo(bench: Workbench) -> Mapping[str, Figure]:
    """Read the memory of everything that `groundplane up` runs for the demo, after its corpora were indexed and asked."""
    data = bench.directory / "demo"
    with _up(data) as process:
        for scope in SCOPES:
            whose = ["--platform"] if scope == "platform" else ["--tenant", scope]
            _groundplane(data, "index", *whose, str(corpus_path(scope)))
        for question in load_questions()[:20]:
            _groundplane(data, "ask", "--tenant", question.tenant, question.text)
        return {"demo_rss_mb_total": across([resident_mb_of_tree(process.pid)])}


@contextmanager
def _up(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *_COMMAND,
        "up",
        "-f",
        str(REPOSITORY / "examples"),
        "--data",
        str(data),
        "--port",
        str(free_port()),
        "--embedder",
        "embedded",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment()) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not (data / "up.json").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("`groundplane up` did not come up")
                time.sleep(0.1)
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=_START_SECONDS)


_COMMAND = (str(Path(sys.executable).with_name("groundplane")),)


def _groundplane(data: Path, command: str, *arguments: str) -> None:
    subprocess.run(
        [*_COMMAND, command, "--data", str(data), *arguments], check=True, capture_output=True, env=_environment()
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GROUNDPLANE_")}


MEASURES = (
    Measure(("evidence_10k_over_raw_p50", "evidence_10k_p50_ms", "evidence_10k_p95_ms"), measure_evidence),
    Measure(("router_rss_mb_embedded",), measure_embedded),
    Measure(("demo_rss_mb_total",), measure_demo),
)
