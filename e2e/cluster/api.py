"""The least client of the API server that our own programs on the node need: JSON over one connection."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Manifest = dict[str, Any]

ANSWER_SECONDS = 10.0
MERGE = "application/merge-patch+json"


class NotDone(Exception):
    """The API server did not do what it was asked, or does not answer; asking again later may help."""


class Api:
    """The API server, as one user sees it; not for several threads."""

    def __init__(self, url: str, certificates: Path, user: str) -> None:
        trust = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        trust.load_cert_chain(certificates / f"{user}.crt", certificates / f"{user}.key")
        self._connection = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=ANSWER_SECONDS, context=trust)

    def list(self, path: str) -> list[Manifest]:
        """Return the objects of a collection. Raises NotDone."""
        items: list[Manifest] = self._send("GET", path)["items"]
        return items

    def create(self, path: str, manifest: Manifest) -> None:
        """Add an object to a collection. Raises NotDone."""
        self._send("POST", path, manifest)

    def merge(self, path: str, change: Manifest) -> None:
        """Change some fields of an object. Raises NotDone."""
        self._send("PATCH", path, change, content_type=MERGE)

    def delete(self, path: str) -> None:
        """Delete an object. Raises NotDone."""
        self._send("DELETE", path)

    def _send(
        self, method: str, path: str, body: Manifest | None = None, content_type: str = "application/json"
    ) -> Manifest:
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, content, {"Content-Type": content_type})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request opens it again
            raise NotDone(f"{method} {path}: {error!r}") from error
        if answer.status >= http.client.BAD_REQUEST:
            raise NotDone(f"{method} {path}: status {answer.status}: {text[:256].decode(errors='replace')}")
        received: Manifest = json.loads(text)
        return received
