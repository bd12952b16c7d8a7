"""Tells Prometheus which pods want to be scraped: Debian's Prometheus is built without its own discovery of pods.

Every few seconds the annotated pods (`prometheus.io/scrape: "true"`, `prometheus.io/port`, `prometheus.io/path`) are
listed and written as a `file_sd` file. It runs as a file, with the standard library alone, in the node's network.
Arguments: the API server's URL, the folder with certificates, the file to write.
"""

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ANNOTATION = "prometheus.io/"
INTERVAL_SECONDS = 2.0
ANSWER_SECONDS = 10.0


def render_targets(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `file_sd` entries of those pods, as the API server lists them, that ask to be scraped and have an address."""
    wanted = [pod for pod in pods if _annotation(pod, "scrape") == "true" and _annotation(pod, "port")]
    return [_target(pod) for pod in wanted if pod.get("status", {}).get("podIP")]


def _target(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    labels = {
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
        "__metrics_path__": _annotation(pod, "path") or "/metrics",
    }
    return {"targets": [f"{pod['status']['podIP']}:{_annotation(pod, 'port')}"], "labels": labels}


def _annotation(pod: dict[str, Any], name: str) -> str:
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(f"{ANNOTATION}{name}", "")


def list_pods(url: str, trust: ssl.SSLContext) -> list[dict[str, Any]]:
    """Return all pods of the cluster."""
    with urllib.request.urlopen(f"{url}/api/v1/pods", timeout=ANSWER_SECONDS, context=trust) as answer:
        pods: list[dict[str, Any]] = json.load(answer)["items"]
    return pods


def main(url: str, certificates: Path, file: Path) -> None:
    """Keep the file up to date for ever; while the API server does not answer, it stays as it is."""
    trust = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    trust.load_cert_chain(certificates / "addons.crt", certificates / "addons.key")
    while True:
        try:
            content = json.dumps(render_targets(list_pods(url, trust)))
        except (OSError, ValueError) as error:
            print(f"pods cannot be listed: {error}", flush=True)
        else:
            new = file.with_suffix(".new")
            new.write_text(content)
            new.rename(file)
        time.sleep(INTERVAL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
