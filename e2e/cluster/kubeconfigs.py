"""Kubeconfig files: who somebody is and where the API server is, complete in themselves."""

import base64
from collections.abc import Iterable
from typing import Any

import yaml

from e2e.cluster.state import Cluster


def write_kubeconfigs(cluster: Cluster, names: Iterable[str]) -> None:
    """Write `config/<name>.kubeconfig` for each name, with the certificate of that name below pki/."""
    for name in names:
        path = cluster.config(f"{name}.kubeconfig")
        path.touch(mode=0o600)
        pki = cluster.directory / "pki"
        content = render_kubeconfig(
            cluster.api_url,
            cluster.name,
            authority=(pki / "ca.crt").read_bytes(),
            certificate=(pki / f"{name}.crt").read_bytes(),
            key=(pki / f"{name}.key").read_bytes(),
        )
        path.write_text(content)


def render_kubeconfig(url: str, name: str, *, authority: bytes, certificate: bytes, key: bytes) -> str:
    """Return a kubeconfig with one cluster, one user and one context, all called `name`; the rest are PEM files."""
    server = {"server": url, "certificate-authority-data": _base64(authority)}
    user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
