"""The real API server of a test, as its administrator: JSON in, JSON out, and the refusals of a person's `kubectl`."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from e2e.cluster.state import Cluster
from groundplane.api.crd import CRD_NAME, PLURAL, tenant_corpus_crd
from groundplane.api.v1alpha1 import API_VERSION

Manifest = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ESTABLISHED_SECONDS = 20.0


class Refusal(Exception):
    """The API server said no; the text is its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Administrator:
    """Calls the API server with the administrator's certificate; a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        pki = cluster.directory / "pki"
        trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        trust.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._http = httpx.Client(base_url=cluster.api_url, verify=trust, timeout=30)

    def __enter__(self) -> "Administrator":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> Manifest:
        return self._send("GET", path)

    def create(self, path: str, manifest: Manifest, **query: str) -> Manifest:
        return self._send("POST", path, manifest, query)

    def replace(self, path: str, manifest: Manifest, **query: str) -> Manifest:
        return self._send("PUT", path, manifest, query)

    def delete(self, path: str) -> Manifest:
        return self._send("DELETE", path)

    def merge(self, path: str, change: Manifest) -> Manifest:
        """Merge `change` into an object, as `kubectl patch --type=merge` does."""
        answer = self._http.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"})
        return self._checked(answer)

    def install_crd(self) -> None:
        """Install the CRD of TenantCorpus and wait until it is served; idempotent."""
        self._http.patch(
            f"{CRDS}/{CRD_NAME}?fieldManager=tests&force=true",
            json=tenant_corpus_crd(),
            headers={"Content-Type": "application/apply-patch+yaml"},
        ).raise_for_status()
        ends_at = time.monotonic() + ESTABLISHED_SECONDS
        while self._http.get(f"/apis/{API_VERSION}/{PLURAL}").status_code != 200:
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{CRD_NAME} is not served after {ESTABLISHED_SECONDS:g} s")
            time.sleep(0.05)

    def _send(
        self, method: str, path: str, manifest: Manifest | None = None, query: dict[str, str] | None = None
    ) -> Manifest:
        return self._checked(self._http.request(method, path, json=manifest, params=query))

    def _checked(self, answer: httpx.Response) -> Manifest:
        body: Manifest = answer.json()
        if answer.status_code >= 400:
            raise Refusal(answer.status_code, body["message"])
        return body


@contextmanager
def administrator(cluster: Cluster) -> Iterator[Administrator]:
    """Give the administrator of a cluster that serves TenantCorpora."""
    with Administrator(cluster) as admin:
        admin.install_crd()
        yield admin


def corpora(namespace: str, name: str = "") -> str:
    """Return the path of the TenantCorpora of a namespace, or of one of them."""
    collection = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"
    return f"{collection}/{name}" if name else collection
