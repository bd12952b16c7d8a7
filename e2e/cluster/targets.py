"""Tells Prometheus which pods want to be scraped: Debian's Prometheus is built without its own discovery of pods.

Every few seconds the annotated pods (`prometheus.io/scrape: "true"`, `prometheus.io/port`, `prometheus.io/path`) are
listed and written as a `file_sd` file. Arguments: the API server's URL, the folder with certificates, the file.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.api import Api, Manifest, NotDone

ANNOTATION = "prometheus.io/"
INTERVAL_SECONDS = 2.0


def render_targets(pods: Iterable[Manifest]) -> list[Manifest]:
    """Return the `file_sd` entries of those pods that ask to be scraped and have an address."""
    wanted = [pod for pod in pods if _annotation(pod, "scrape") == "true" and _annotation(pod, "port")]
    return [_render_target(pod) for pod in wanted if pod.get("status", {}).get("podIP")]


def _render_target(pod: Manifest) -> Manifest:
    metadata = pod["metadata"]
    labels = {
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
        "__metrics_path__": _annotation(pod, "path") or "/metrics",
    }
    return {"targets": [f"{pod['status']['podIP']}:{_annotation(pod, 'port')}"], "labels": labels}


def _annotation(pod: Manifest, name: str) -> str:
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(f"{ANNOTATION}{name}", "")


def main(url: str, certificates: Path, file: Path) -> None:
    """Keep the file up to date for ever; while the API server does not answer, it stays as it is."""
    api = Api(url, certificates, "addons")
    while True:
        try:
            content = json.dumps(render_targets(api.list("/api/v1/pods")))
        except NotDone as error:
            print(f"pods cannot be listed: {error}", flush=True)
        else:
            new = file.with_suffix(".new")
            new.write_text(content)
            new.rename(file)
        time.sleep(INTERVAL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
