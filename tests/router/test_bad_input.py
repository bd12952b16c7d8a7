"""Every request is bounded, and refused with a problem that names what is wrong; never a 500 for a known cause."""

import json

import pytest

from groundplane.wire.names import format_position
from tests.fakes.installation import INCARNATIONS

BIG = "x" * 4_001


def question(**more):
    return {"query": "where is it", **more}


def documents(**more):
    return {"documents": [{"id": "a", "text": "b", **more}]}


def nested(depth):
    return {"deep": nested(depth - 1)} if depth else 1


CASES = [
    ("/v1/evidence", b"", 400, None),
    ("/v1/evidence", b"{", 400, None),
    ("/v1/evidence", b"[]", 400, None),
    ("/v1/evidence", b'{"query": "x", "k": NaN}', 400, None),
    ("/v1/evidence", b'{"query": "\\ud800"}', 400, None),
    ("/v1/evidence", b'{"query": "\xff\xfe"}', 400, None),
    (
        "/v1/evidence",
        b'{"query": "x", "filter": ' + b'{"op":"not","filter":' * 2_000 + b"1" + b"}" * 2_000 + b"}",
        400,
        None,
    ),
    ("/v1/evidence", b"[" * 100_000, 400, None),
    ("/v1/evidence", b'{"query": "x", "query": "y"}', 400, None),
    ("/v1/documents", b'{"documents": [{"id": "a", "text": "b", "metadata": {"x": {"y": 1, "y": 2}}}]}', 400, None),
    ("/v1/documents", b'{"documents": [{"id": "a", "text": "' + b"b" * 100_000 + b'", "id": "c"}]}', 400, None),
    ("/v1/evidence", {}, 400, None),
    ("/v1/evidence", question(query=""), 400, "query"),
    ("/v1/evidence", question(query="  \n "), 422, "query"),
    ("/v1/evidence", question(query=BIG), 400, "query"),
    ("/v1/evidence", question(query=7), 400, "query"),
    ("/v1/evidence", question(k=0), 400, "k"),
    ("/v1/evidence", question(k=51), 400, "k"),
    ("/v1/evidence", question(k="5"), 400, "k"),
    ("/v1/evidence", question(k=1.5), 400, "k"),
    ("/v1/evidence", question(partial="deny"), 400, "partial"),
    ("/v1/evidence", question(name="memo"), 400, None),
    ("/v1/evidence", question(min_position="!!"), 400, "min_position"),
    ("/v1/evidence", question(min_position="MTp4OjE"), 400, "min_position"),
    ("/v1/evidence", question(min_position=format_position(INCARNATIONS["acme"], 2**64)), 400, "min_position"),
    ("/v1/evidence", question(filter={"op": "sql", "key": "a"}), 400, "filter"),
    ("/v1/evidence", question(filter={"op": "eq", "key": "", "value": 1}), 400, "filter.key"),
    ("/v1/evidence", question(filter={"op": "eq", "key": "a", "value": {"b": 1}}), 400, "filter.value"),
    ("/v1/evidence", question(filter={"op": "in", "key": "a", "values": []}), 400, "filter.values"),
    ("/v1/evidence", question(filter={"op": "eq", "key": "a", "value": 2**70}), 400, None),
    (
        "/v1/evidence",
        question(filter={"op": "and", "filters": [{"op": "eq", "key": "a", "value": 1}] * 64}),
        400,
        "filter",
    ),
    ("/v1/ground", question(name="a"), 400, "fingerprint"),
    ("/v1/ground", question(fingerprint="a"), 400, "name"),
    ("/v1/ground", question(name="a/b", fingerprint="c"), 400, "name"),
    ("/v1/ground", question(name="a\x00", fingerprint="c"), 400, "name"),
    ("/v1/ground", question(fresh="yes"), 400, "fresh"),
    ("/v1/documents", {"documents": []}, 400, "documents"),
    ("/v1/documents", {"documents": [{"id": str(one), "text": ""} for one in range(501)]}, 400, "documents"),
    ("/v1/documents", documents(id=""), 400, "documents[0].id"),
    ("/v1/documents", documents(id="x" * 513), 400, "documents[0].id"),
    ("/v1/documents", documents(id="a\nb"), 400, "documents[0].id"),
    ("/v1/documents", documents(text=None), 400, "documents[0].text"),
    ("/v1/documents", documents(title="x" * 1_025), 400, "documents[0].title"),
    ("/v1/documents", documents(metadata=[]), 400, "documents[0].metadata"),
    ("/v1/documents", documents(metadata={"x": "y" * 16_400}), 400, "documents[0].metadata"),
    ("/v1/documents", documents(metadata=nested(9)), 400, "documents[0].metadata"),
    ("/v1/documents", documents(metadata={"x": 2**64}), 400, None),
    ("/v1/documents", documents(metadata={"": 1}), 400, None),
    ("/v1/documents", b'{"documents": [{"id": "a", "text": "b", "metadata": {"x": 1e999}}]}', 400, None),
    ("/v1/documents", documents(vector=[1.0]), 400, None),
]


@pytest.mark.parametrize(("path", "body", "status", "field"), CASES, ids=lambda one: str(one)[:40])
async def test_a_bad_body_is_refused_by_name(installation, path, body, status, field):
    """One table of everything a body can get wrong."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = installation.headers() | {"content-type": "application/json"}
    answer = await installation.http.post(path, content=content, headers=headers)
    problem = answer.json()

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert problem["status"] == status
    assert field is None or problem["field"].startswith(field)
    assert all(path not in {"/search", "/write"} for shard in installation.shards.values() for path in shard.paths())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nowhere", 404, "not_found"),
        ("GET", "/v1/evidence", 405, "method_not_allowed"),
        ("GET", "/v1/documents?limit=0", 400, "invalid_input"),
        ("GET", "/v1/documents?limit=1001", 400, "invalid_input"),
        ("GET", "/v1/documents?limit=x", 400, "invalid_input"),
        ("GET", "/v1/documents?limit=%D9%A3", 400, "invalid_input"),
        ("GET", "/v1/documents?limit=5&limit=6", 400, "invalid_input"),
        ("GET", "/v1/documents?cursor=!!", 400, "invalid_input"),
        ("GET", "/v1/documents?cursor=" + "a" * 5_000, 400, "invalid_input"),
        ("GET", "/v1/documents/", 400, "invalid_input"),
        ("GET", "/v1/documents/" + "x" * 513, 400, "invalid_input"),
        ("GET", "/v1/documents/a%00b", 400, "invalid_input"),
        ("GET", "/v1/documents/none", 404, "document_not_found"),
        ("DELETE", "/v1/documents/a%0Ab", 404, "not_found"),
        ("GET", "/v1/memos/a/" + "x" * 257, 400, "invalid_input"),
        ("GET", "/v1/memos/a/b", 404, "memo_not_found"),
        ("GET", "/v1/memos/a", 404, "not_found"),
    ],
)  # fmt: skip
async def test_a_bad_path_or_parameter_is_refused(installation, method, path, status, code):
    """As for bodies."""
    answer = await installation.http.request(method, path, headers=installation.headers())

    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"content-type": "text/plain"}, 415, id="other-type"),
        pytest.param({"content-type": "application/json", "content-encoding": "gzip"}, 415, id="compressed"),
        pytest.param({"content-type": "application/json; charset=utf-8"}, 200, id="with-charset"),
    ],
)
async def test_only_plain_json_is_read(installation, headers, status):
    """A compressed body is a bomb until it has been unpacked."""
    answer = await installation.http.post(
        "/v1/evidence", content=b'{"query": "x"}', headers=installation.headers() | headers
    )

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "size"), [("/v1/evidence", 256 * 1024), ("/v1/ground", 256 * 1024), ("/v1/documents", 8 * 1024 * 1024)]
)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_a_body_past_its_bound_is_refused(installation, path, size, declared):
    """Refused as soon as it is known, not after it was read."""
    body = b'{"query": "' + b"x" * size + b'"}'

    async def parts():
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    headers = installation.headers() | {"content-type": "application/json"}
    answer = await installation.http.post(path, content=body if declared else parts(), headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_a_memo_past_its_bound_is_refused(installation):
    """A memo is an answer, not a store."""
    body = {"response": "x" * (256 * 1024)}
    answer = await installation.http.put("/v1/memos/a/b", json=body, headers=installation.headers())

    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("basis", "field"),
    [
        ({"tenant": {"incarnation": INCARNATIONS["acme"], "sequence": 2**63}}, "basis.tenant.sequence"),
        ({"tenant": {"incarnation": INCARNATIONS["acme"], "sequence": 1, "new": 1}}, "basis.tenant"),
        ({"platform": None}, "basis.tenant"),
    ],
    ids=["too-large", "unknown-field", "other-scope"],
)
async def test_a_basis_that_no_answer_carries_is_refused(installation, basis, field):
    """A memo with it would be stale for ever, or break the message to the shard."""
    body = {"response": 1, "basis": basis}
    answer = await installation.http.put("/v1/memos/a/b", json=body, headers=installation.headers())

    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_memo_that_is_not_utf8_is_refused(installation):
    """Its bytes come back as they are; they must be readable then."""
    headers = installation.headers() | {"content-type": "application/json"}
    answer = await installation.http.put("/v1/memos/a/b", content=b'{"response": "\xff"}', headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("text", ["' OR 1=1 --", '"; DROP TABLE chunks', "\\", "\u202e", "🙂" * 100, "%_", "\x7f"])
async def test_a_hostile_filter_value_reaches_the_shard_as_it_is(installation, text):
    """The router neither interprets nor changes it; the shard compares it."""
    wanted = {"op": "eq", "key": "title", "value": text}
    answer = await installation.evidence("x", filter=wanted)
    (search,) = [message for _, path, message in installation.shards["acme"].seen if path == "/search"]

    assert answer.status_code == 200
    assert search.filter.value == text
