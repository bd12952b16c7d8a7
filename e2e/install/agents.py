"""Agents: pods with a ServiceAccount and its token for us, and nothing else of ours."""

import json
from typing import Any

import msgspec

from e2e.cluster.api import Manifest
from e2e.kubectl import Kubectl
from e2e.smoke.manifests import AUDIENCE, IDLE, TOKENS, Workload, render_pod, render_token_source

_CALL = """
import json, sys, urllib.error, urllib.request
method, url, token_file, headers, body = sys.argv[1:]
headers = {"Authorization": "Bearer " + open(token_file).read(), "Content-Type": "application/json", **json.loads(headers)}
request = urllib.request.Request(url, body.encode() or None, headers, method=method)
try:
    with urllib.request.urlopen(request, timeout=20) as answer:
        status, content = answer.status, answer.read()
except urllib.error.HTTPError as error:
    status, content = error.code, error.read()
print(json.dumps({"status": status, "body": json.loads(content)}))
"""


class Answer(msgspec.Struct, frozen=True):
    """What the router answered."""

    status: int
    body: Any


class Agent(msgspec.Struct, frozen=True):
    """A pod that is named like its ServiceAccount and calls the router at `url`."""

    kubectl: Kubectl
    name: str
    url: str

    def index(self, doc_id: str, text: str) -> Answer:
        """Index one document."""
        return self.call("POST", "/v1/documents", {"documents": [{"id": doc_id, "text": text}]})

    def ground(self, query: str, **headers: str) -> Answer:
        """Ask."""
        return self.call("POST", "/v1/ground", {"query": query}, **headers)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send any request, from inside the pod."""
        told = (
            method,
            f"{self.url}{path}",
            f"{TOKENS}/{AUDIENCE}",
            json.dumps(headers),
            json.dumps(body) if body else "",
        )
        return msgspec.json.decode(self.kubectl.python(self.name, _CALL, *told), type=Answer)


def start_agent(kubectl: Kubectl, name: str, *, image: str, url: str) -> Agent:
    """Return an agent whose pod runs, with a ServiceAccount of the same name."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    kubectl.apply(account, _with_account(Workload(name=name, image=image, command=IDLE, volumes=_TOKEN), name))
    kubectl.await_state(f"pod/{name}", "condition=Ready")
    return Agent(kubectl, name, url)


_TOKEN = {TOKENS: render_token_source()}


def _with_account(workload: Workload, account: str) -> Manifest:
    pod = render_pod(workload)
    return {**pod, "spec": {**pod["spec"], "serviceAccountName": account}}
