"""Every status in the OpenAPI document can happen, and its answer is of the documented shape."""

import asyncio
import json

import jsonschema
import pytest

from groundplane.errors import Unavailable
from groundplane.process import bodies
from groundplane.wire.names import format_position
from groundplane_router.admission import Admission
from groundplane_router.openapi import build_openapi
from groundplane_router.operations import OPERATIONS
from tests.fakes.installation import INCARNATIONS

DOCUMENT = build_openapi(OPERATIONS, "test")
BODIES: dict[str, dict[str, object]] = {
    "ground": {"query": "what about pumps"},
    "evidence": {"query": "what about pumps"},
    "indexDocuments": {"documents": [{"id": "a", "text": "b"}]},
    "putMemo": {"response": 1},
    "reindexCorpus": {},
}
CASES = [
    pytest.param(one, status, id=f"{one.id}-{status}")
    for one in OPERATIONS
    if not one.is_open
    for status in (200, *one.problems)
]


@pytest.fixture
async def filled(installation, monkeypatch):
    await installation.index(a="some text about pumps")
    await installation.http.put("/v1/memos/n/f", json={"response": 1}, headers=installation.headers())
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    return installation


def refuse(_self):
    raise Unavailable("full", code="overloaded", retry_after_seconds=1)


async def endless():
    yield b"{"
    await asyncio.Event().wait()


CONTENTS = {
    408: lambda _body: endless(),
    409: lambda body: json.dumps(body | {"min_position": format_position(INCARNATIONS["globex"], 1)}).encode(),
    413: lambda _body: b" " * (8 * 1024 * 1024 + 1),
    422: lambda body: json.dumps(body | {"query": " "}).encode(),
}


async def provoke(running, operation, status, monkeypatch):
    """Bring about what the request itself cannot."""
    if (operation.id, status) == ("indexDocuments", 422):
        running.embedder.dimension = 128
    elif (operation.id, status) in {("getCorpus", 503), ("ground", 503)}:
        monkeypatch.setattr(Admission, "admit", refuse)  # these two answer 200 while a shard is down, and say so
    elif status == 503:
        await running.shards["acme"].stop()


async def request_for(running, operation, status):
    """Return the answer of a request that must end in `status`."""
    missing = "none" if status == 404 else None
    path = operation.path.format(id=missing or "a", name="n", fingerprint=missing or "f")
    headers = running.headers("stranger" if status == 403 else "acme-agent")
    headers["content-type"] = "text/plain" if status == 415 else "application/json"
    if status == 401:
        headers["Authorization"] = "Bearer x"
    body = BODIES.get(operation.id)
    content = json.dumps(body).encode() if body is not None else None
    if status in CONTENTS and not (operation.id == "indexDocuments" and status == 422):
        content = CONTENTS[status](body)
    query = "?unknown=1" if status == 400 else ""
    return await running.http.request(operation.method, path + query, content=content, headers=headers)


@pytest.mark.parametrize(("operation", "status"), CASES)
async def test_a_documented_status_happens_in_the_documented_shape(filled, operation, status, monkeypatch):
    """A status that cannot happen misleads; a shape that differs breaks generated clients."""
    await provoke(filled, operation, status, monkeypatch)
    answer = await request_for(filled, operation, status)
    documented = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"][str(status)]
    ((media_type, content),) = documented["content"].items()

    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == media_type
    for name in documented.get("headers", {}):
        assert name in answer.headers
    schema = content["schema"] | {"components": DOCUMENT["components"]}
    jsonschema.validate(answer.json(), schema, cls=jsonschema.Draft202012Validator)
