"""The OpenAPI document is what the router does: same routes, same structs, same statuses."""

import re
import sys
from importlib.metadata import version

import jsonschema
import pytest
from starlette.routing import Route

from groundplane_router.openapi import _prose, build_openapi
from groundplane_router.operations import OPERATIONS

OUTSIDE_THE_DOCUMENT = {("GET", "/openapi.json"), ("GET", "/docs")}


@pytest.fixture(scope="module")
def document():
    return build_openapi(OPERATIONS, version("groundplane"))


async def test_every_route_is_documented_and_every_operation_has_a_route(installation):
    """A route that is not in the document is a secret; an operation without a route is a lie."""
    routes = {
        (method, re.sub(r":path\}", "}", route.path))
        for route in installation.app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert routes - OUTSIDE_THE_DOCUMENT == {(one.method, one.path) for one in OPERATIONS}


def test_the_document_holds_against_the_openapi_schema(document):
    """Generators and gateways read it."""
    assert document["openapi"].startswith("3.1")
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["operationId"]
            assert operation["summary"]
            assert not operation["summary"].endswith(".")
    jsonschema.Draft202012Validator.check_schema({"$defs": document["components"]["schemas"]})


def test_operation_ids_are_unique(document):
    """They become method names of generated clients."""
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]

    assert len(ids) == len(set(ids))


def test_every_reference_resolves(document):
    """A dangling reference breaks every generator."""
    text = str(document)
    names = set(re.findall(r"#/components/schemas/(\w+)", text))

    assert names <= set(document["components"]["schemas"])


def test_everything_but_the_probes_needs_a_token(document):
    """No anonymous mode."""
    open_paths = {
        path for path, methods in document["paths"].items() for one in methods.values() if one.get("security") == []
    }

    assert document["security"] == [{"bearer": []}]
    assert open_paths == {"/healthz", "/readyz", "/metrics"}


def test_every_failure_is_a_problem_document(document):
    """One shape for all clients."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status != "200" and path != "/readyz":
                    assert list(answer["content"]) == ["application/problem+json"], (path, status)


def test_no_request_schema_names_a_tenant(document):
    """The tenant comes from the token; a field for it would be believed."""
    schemas = document["components"]["schemas"]
    for name in ("GroundRequest", "EvidenceRequest", "IndexRequest", "DocumentInput", "MemoInput"):
        assert not {"tenant", "corpus", "scope", "incarnation"} & set(schemas[name]["properties"])


def test_requests_are_closed_and_answers_are_open(document):
    """A client made from the document today must read what a newer router adds."""
    requests = {name for name in document["components"]["schemas"] if name.endswith(("Request", "Input"))}
    filters = {"And", "Or", "Not", "Eq", "Ne", "In", "Gt", "Gte", "Lt", "Lte", "Prefix"}
    closed = {name for name, one in document["components"]["schemas"].items() if "additionalProperties" in one}

    assert closed == requests | filters


def test_the_document_is_the_same_every_time():
    """Generated files must not change without a reason."""
    import msgspec

    first, second = (msgspec.json.encode(build_openapi(OPERATIONS, "1")) for _ in range(2))

    assert first == second


async def test_the_document_and_its_page_are_served(installation):
    """The page loads nothing from elsewhere: clusters have no way out."""
    document = await installation.http.get("/openapi.json")
    page = await installation.http.get("/docs")

    assert document.json()["info"]["title"] == "Groundplane"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)
    assert "<script" not in page.text
    for one in OPERATIONS:
        assert one.path in page.text
    assert sys.getsizeof(page.text) < 200_000


async def test_the_page_shows_code_as_code(installation):
    """Back-ticks are how we write it, not how it is read; and nothing of a description is taken for markup."""
    page = (await installation.http.get("/docs")).text
    outside_schemas = re.sub("<pre>.*?</pre>", "", page, flags=re.DOTALL)

    assert "<code>field</code> names the faulty part." in page
    assert "`" not in outside_schemas
    assert _prose("a `b<c>` & d") == "a <code>b&lt;c&gt;</code> &amp; d"
