"""The OpenAPI 3.1 document, generated from the operations and the wire structs, and the page that shows it."""

import html
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundplane.wire.public import Problem
from groundplane_router.operations import Operation, Parameter

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
_REF: Final = "#/components/schemas/{name}"
_PROBLEM_TEXTS: Final = {
    400: "The request must be changed; `field` names the faulty part.",
    401: "No valid token.",
    403: "The token's subject may not do this here.",
    404: "There is none.",
    408: "The body did not arrive in time.",
    409: "`min_position` is of another corpus or of an earlier life of this one.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    422: "The request is well-formed but cannot be processed.",
    503: "Cannot be done now: `reason` says why; see Retry-After.",
}

Document = dict[str, Any]


def build_openapi(operations: Sequence[Operation], version: str) -> Document:
    """Return the document; the same operations give the same bytes."""
    types = sorted({kind for one in operations for kind in (one.body, one.answer) if kind} | {Problem}, key=_name)
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: Document = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Groundplane",
            "version": version,
            "summary": "Grounds agents in their own tenant's records.",
            "description": "The tenant comes from the token and from nothing else. Failures are RFC 9457 problem documents.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _name(kind: type) -> str:
    return kind.__name__


def _operation(one: Operation) -> Document:
    answers: Document = {"200": _answer(one)}
    if one.path == "/readyz":
        answers["503"] = {**_answer(one), "description": "Not ready yet."}
    answers |= {str(status): _problem(status) for status in sorted(one.problems)}
    described: Document = {"operationId": one.id, "summary": one.summary, "tags": [one.tag], "responses": answers}
    if one.text:
        described["description"] = one.text
    if one.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in one.parameters]
    if one.body is not None:
        content = {"application/json": {"schema": _reference(one.body)}}
        described["requestBody"] = {"required": True, "content": content}
    if one.is_open:
        described["security"] = []
    return described


def _answer(one: Operation) -> Document:
    schema = {"type": "string"} if one.answer is None else _reference(one.answer)
    return {"description": "Done.", "content": {one.answer_media_type: {"schema": schema}}}


def _problem(status: int) -> Document:
    answer: Document = {
        "description": _PROBLEM_TEXTS[status],
        "content": {PROBLEM_MEDIA_TYPE: {"schema": _reference(Problem)}},
    }
    if status == 503:
        answer["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    if status == 401:
        answer["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return answer


def _parameter(parameter: Parameter) -> Document:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.text,
        "schema": parameter.schema,
    }


def _reference(kind: type) -> Document:
    return {"$ref": _REF.format(name=kind.__name__)}


class OpenApiPages:
    """Serves the document and a page about it that loads nothing from elsewhere."""

    def __init__(self, document: Document) -> None:
        self._json = msgspec.json.encode(document)
        self._html = render_page(document).encode()

    async def document(self, _request: Request) -> Response:
        """Serve `GET /openapi.json`."""
        return Response(self._json, media_type="application/json")

    async def page(self, _request: Request) -> Response:
        """Serve `GET /docs`."""
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(self._html, media_type="text/html", headers=headers)


def render_page(document: Document) -> str:
    """Return the operations and schemas of `document` as one HTML page."""
    operations = [
        _render_operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<section><h3 id="{html.escape(name)}">{html.escape(name)}</h3>'
        f"<p>{_prose(schema.get('description', ''))}</p><pre>{_pretty(schema)}</pre></section>"
        for name, schema in document["components"]["schemas"].items()
    ]
    info = document["info"]
    return _PAGE.format(
        title=html.escape(f"{info['title']} {info['version']}"),
        text=_prose(info["description"]),
        operations="".join(operations),
        schemas="".join(schemas),
    )


def _render_operation(path: str, method: str, operation: Document) -> str:
    answers = "".join(
        f"<tr><td>{html.escape(status)}</td><td>{_prose(answer['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return (
        f"<section><h3><code>{html.escape(method.upper())} {html.escape(path)}</code></h3>"
        f"<p>{_prose(operation['summary'])}. {_prose(operation.get('description', ''))}</p>"
        f"{_schema_link(body)}<table>{answers}</table></section>"
    )


def _prose(text: str) -> str:
    """Return `text` as HTML; what stands between back-ticks becomes code, an empty line a new paragraph."""
    marked = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return marked.replace("\n\n", "</p><p>")


def _schema_link(schema: Document) -> str:
    name = html.escape(schema.get("$ref", "").rpartition("/")[2])
    return f'<p>Body: <a href="#{name}">{name}</a></p>' if name else ""


def _pretty(schema: Document) -> str:
    return html.escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #f4f4f4; padding: .75rem; overflow-x: auto; font-size: .85rem }}
td {{ padding: .1rem 1rem .1rem 0; vertical-align: top }} section {{ border-top: 1px solid #ddd }}
</style></head><body><h1>{title}</h1><p>{text} The same as JSON: <a href="/openapi.json">/openapi.json</a>.</p>
<h2>Operations</h2>{operations}<h2>Schemas</h2>{schemas}</body></html>
"""
